"""Hand-ins that are nearly the same once the given code is taken away.

Code is compared as Python reads it: comments, docstrings and layout are gone and the names that a function makes for
itself are numbered, but `torch.sum` stays `torch.sum` (tools that fold all names into one find half a class alike in
code that is made of such calls). Pieces are runs of such words; those that many learners wrote weigh little.
"""

from __future__ import annotations

import ast
import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from grader.course.metadata import identity
from grader.intake.static_analysis import parsed

LENGTH = 6  # words in a piece
RARE = 50  # hand-ins that may share a piece for it to bring two of them together
ALIKE = 0.8  # of the weight of all pieces of both
OWN = 40  # pieces that code must have of its own to be compared: shorter answers are alike by themselves


@dataclass(frozen=True)
class Likeness:
    """Two hand-ins, and how alike they are, up to 1."""

    one: str
    other: str
    share: float


def own_code(autograded: Path) -> list[str]:
    """The learner's own cells of code in an autograded notebook: answers and what was added."""
    cells = json.loads(autograded.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code" and identity(cell).kind in ("", "solution")]


def alike(hand_ins: Mapping[str, Sequence[str]], given: Sequence[str] = ()) -> list[Likeness]:
    """Pairs of nearly the same code, the likest first. hand_ins: whose -> sources of cells. given: cells that everyone has."""
    common = _pieces(given)
    pieces = {whose: own for whose, cells in hand_ins.items() if len(own := _pieces(cells) - common) >= OWN}
    number = Counter(piece for own in pieces.values() for piece in own)
    weight = {piece: math.log((len(pieces) + 1) / count) for piece, count in number.items()}
    found = []
    for one, other in _candidates(pieces, number):
        shared = sum(weight[piece] for piece in pieces[one] & pieces[other])
        share = shared / sum(weight[piece] for piece in pieces[one] | pieces[other])
        if share >= ALIKE:
            found.append(Likeness(one, other, share))
    return sorted(found, key=lambda pair: (-pair.share, pair.one, pair.other))


def _candidates(pieces: Mapping[str, frozenset[str]], number: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """Pairs worth a comparison: equal ones, and those that share pieces which few have."""
    equal: dict[frozenset[str], list[str]] = defaultdict(list)
    for whose, own in pieces.items():
        equal[own].append(whose)
    for group in equal.values():
        yield from ((group[0], other) for other in group[1:])  # of a large group, each with the first
    holders: dict[str, list[str]] = defaultdict(list)
    for own, (whose, *_) in equal.items():
        for piece in own:
            holders[piece].append(whose)
    together: Counter[tuple[str, str]] = Counter()
    for group in holders.values():
        if 1 < len(group) <= RARE:
            together.update(combinations(sorted(group), 2))
    yield from (pair for pair, count in together.items() if count >= LENGTH)


def _pieces(cells: Sequence[str]) -> frozenset[str]:
    words: list[str] = []
    for cell in cells:
        tree = parsed(cell)
        words += [word for statement in tree.body for word in _read(statement, _numbered(statement))] if tree else cell.split()
    return frozenset(" ".join(words[i : i + LENGTH]) for i in range(len(words) - LENGTH + 1))


def _numbered(statement: ast.stmt) -> dict[str, str]:
    """The names that a function (or any other statement) makes for itself -> v0, v1 and so on."""
    local: dict[str, str] = {}
    for node in ast.walk(statement):
        match node:
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()):
                local.setdefault(name, f"v{len(local)}")
    return local


def _read(node: ast.AST, local: Mapping[str, str]) -> Iterator[str]:
    """The nodes of a syntax tree in the order of the text, a word or two each."""
    match node:
        case ast.Expr(value=ast.Constant(value=str())) | ast.Load() | ast.Store():  # a docstring, or no word
            return
        case ast.Name(id=name) | ast.arg(arg=name):
            yield local.get(name, name)
        case _:
            yield type(node).__name__
            for part in ("name", "attr", "value", "arg", "module"):
                if isinstance(value := getattr(node, part, None), str | int | float):
                    yield repr(value)
            for child in ast.iter_child_nodes(node):
                yield from _read(child, local)
