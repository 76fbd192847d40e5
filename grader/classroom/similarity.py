"""Hand-ins that are nearly the same once the given code is taken away.

Code is compared as Python reads it: comments, docstrings and layout are gone and the names that a function makes for
itself are numbered, but `torch.sum` stays `torch.sum` (tools that fold all names into one find half a class alike in
code that is made of such calls). Values that nothing reads are left out: they are how a copy is made to look longer.
Pieces are runs of such words; those that more than half of a class wrote weigh less. The answer key takes part like a hand-in.
"""

from __future__ import annotations

import ast
import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import combinations, pairwise
from pathlib import Path

from grader.course.metadata import identity
from grader.intake.static_analysis import parsed

LENGTH = 6  # words in a piece
RARE = 50  # hand-ins that may share a piece for it to bring each two of them together; of more, each and the next
ALIKE = 0.8  # of the weight of all pieces of both
OWN = 40  # pieces that code must have of its own to be compared: shorter answers are alike by themselves
KEY = ""  # the answer key, where hand-ins have the names of students


@dataclass(frozen=True)
class Group:
    """Hand-ins of which each is nearly the same as another. of_key: as the answer key. share: how alike the least alike of these are."""

    members: tuple[str, ...]
    of_key: bool
    share: float


def own_code(autograded: Path) -> list[str]:
    """The learner's own cells of code in an autograded notebook: answers and what was added."""
    cells = json.loads(autograded.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code" and identity(cell).kind in ("", "solution")]


def alike(hand_ins: Mapping[str, Sequence[str]], given: Sequence[str] = (), key: Sequence[str] = ()) -> list[Group]:
    """Groups of nearly the same code, the largest first. hand_ins: whose -> sources of cells.

    given: cells that everyone has, such as those with nothing in them yet. key: the answer key's cells.
    """
    common = _pieces(given)
    pieces = {whose: own for whose, cells in {**hand_ins, KEY: key}.items() if len(own := _pieces(cells) - common) >= OWN}
    number = Counter(piece for own in pieces.values() for piece in own)
    weight = {piece: min(1.0, math.log2((len(pieces) + 1) / count)) for piece, count in number.items()}
    pairs = []
    for one, other in _candidates(pieces, number):
        weights = dict.fromkeys(pieces[one] | pieces[other], 1.0) if one == KEY else weight  # much copied, it is no less the key's
        shared = math.fsum(weights[piece] for piece in pieces[one] & pieces[other])
        share = shared / math.fsum(weights[piece] for piece in pieces[one] | pieces[other])
        if share >= ALIKE:
            pairs.append((share, one, other))
    groups = [Group(tuple(sorted(members - {KEY})), KEY in members, share) for members, share in _joined(pairs)]
    return sorted(groups, key=lambda group: (not group.of_key, -len(group.members), group.members))


def _joined(pairs: Sequence[tuple[float, str, str]]) -> list[tuple[set[str], float]]:
    """Pairs that have somebody in common, put together; the share of a group is that of the weakest pair that was needed for it."""
    of: dict[str, tuple[set[str], float]] = {}
    for share, one, other in sorted(pairs, reverse=True):
        mine, theirs = (of.get(whose, ({whose}, 1.0)) for whose in (one, other))
        if other not in mine[0]:
            together = mine[0] | theirs[0], min(share, mine[1], theirs[1])
            of |= dict.fromkeys(together[0], together)
    return list({id(group): group for group in of.values()}.values())


def _candidates(pieces: Mapping[str, frozenset[str]], number: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """Pairs worth a comparison: equal ones, those that share pieces which few have, and each with the answer key."""
    equal: dict[frozenset[str], list[str]] = defaultdict(list)
    for whose, own in sorted(pieces.items()):
        equal[own].append(whose)
    for group in equal.values():
        yield from ((group[0], other) for other in group[1:])  # of a large group, each with the first
    holders: dict[str, list[str]] = defaultdict(list)
    for own, (whose, *_) in equal.items():
        for piece in own:
            holders[piece].append(whose)
    together: Counter[tuple[str, str]] = Counter()
    for group in holders.values():
        together.update(combinations(sorted(group), 2) if len(group) <= RARE else pairwise(sorted(group)))
    yield from (pair for pair, count in together.items() if count >= LENGTH and KEY not in pair)
    yield from ((KEY, whose) for _, (whose, *_) in equal.items() if KEY in pieces and whose != KEY)


def _pieces(cells: Sequence[str]) -> frozenset[str]:
    """Runs of words that stay within a cell, so that a cell gives the same ones whatever stands beside it."""
    found = set[str]()
    for cell in cells:
        tree = parsed(cell)
        words = [word for node in tree.body for word in _words(node)] if tree else cell.split()
        found |= {" ".join(words[i : i + LENGTH]) for i in range(len(words) - LENGTH + 1)}
    return frozenset(found)


def _unread(statement: ast.stmt) -> set[ast.AST]:
    """The assignments to names that no other statement needs: not by itself, and not for what it assigns in turn."""
    by_name: dict[str, list[ast.Assign]] = defaultdict(list)
    unread = set[ast.AST]()
    needed, todo = set[str](), list[ast.AST]([statement])
    for node in ast.walk(statement) if isinstance(statement, ast.FunctionDef) else ():
        if isinstance(node, ast.Assign) and (names := _assigned(node)):
            unread.add(node)
            for name in names:
                by_name[name].append(node)
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id not in needed:
            needed.add(node.id)
            read = unread.intersection(by_name[node.id])
            unread -= read
            todo += [child for other in read for child in ast.iter_child_nodes(other)]
        todo += [child for child in ast.iter_child_nodes(node) if child not in unread]
    return unread


def _assigned(node: ast.Assign) -> set[str]:
    """The names that an assignment gives a value; empty where it also changes something else."""
    targets = [inner for target in node.targets for inner in ast.walk(target) if isinstance(inner, ast.expr)]
    plain = all(isinstance(target, ast.Name | ast.Tuple | ast.List) for target in targets)
    return {target.id for target in targets if isinstance(target, ast.Name)} if plain else set()


def _numbered(statement: ast.stmt, without: Set[ast.AST]) -> dict[str, str]:
    """The names that a function (or any other statement) makes for itself -> v0, v1 and so on."""
    local: dict[str, str] = {}
    level: list[ast.AST] = [statement]
    while level := [node for node in level if node not in without]:
        for node in level:
            match node:
                case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()):
                    local.setdefault(name, f"v{len(local)}")
        level = [child for node in level for child in ast.iter_child_nodes(node)]
    return local


def _words(statement: ast.stmt) -> Iterator[str]:
    """The nodes of a statement's syntax tree in the order of the text, a word or two each."""
    unread = _unread(statement)
    local, todo = _numbered(statement, unread), list[ast.AST]([statement])
    while todo:
        match node := todo.pop():
            case ast.Expr(value=ast.Constant(value=str())) | ast.Load() | ast.Store():  # a docstring, or no word
                continue
            case ast.Name(id=name) | ast.arg(arg=name):
                yield local.get(name, name)
            case _ if node not in unread:
                yield type(node).__name__
                for part in ("name", "attr", "value", "arg", "module"):
                    if isinstance(value := getattr(node, part, None), str | int | float):
                        yield repr(value)
                todo += reversed([*ast.iter_child_nodes(node)])
