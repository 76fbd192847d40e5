"""The house: which room may use which, how large it may grow, and that the map names every file."""

import ast
import re
from pathlib import Path

import pytest

from grader.course.source import ROOT

GRADER = ROOT / "grader"
FILES = sorted(GRADER.rglob("*.py"))
HAND_WRITTEN = [path for path in FILES if path.parent.name != "mistakes"]  # the catalogue of mistakes is data and may grow
EVERYTHING = {"sandbox", "course", "mistakes", "feedback", "intake", "judge", "classroom", "challenge", "examine", "cli", "demo"}
MAY_USE = {  # room -> the rooms it may import from
    "sandbox": {"sandbox"},
    "course": {"course"},
    "mistakes": {"mistakes"},
    "feedback": {"course", "mistakes", "feedback"},
    "intake": {"course", "intake"},
    "judge": {"sandbox", "intake", "feedback", "course", "mistakes", "judge"},
    "examine": {"course", "feedback", "mistakes", "examine"},
    "challenge": {"course", "intake", "challenge"},
    "classroom": EVERYTHING - {"challenge", "examine", "cli", "demo"},
    "cli": EVERYTHING,
    "demo": EVERYTHING,
    "__main__": {"cli"},
    "__init__": set(),
}


def room(path: Path) -> str:
    return path.relative_to(GRADER).parts[0].removesuffix(".py")


def modules(path: Path, *, at_import: bool) -> set[Path]:
    """The files of ours that a file imports. at_import: only those that come with its own import, not what its functions import."""
    todo, found = list(ast.parse(path.read_text(encoding="utf-8")).body), set()
    while todo:
        node = todo.pop()
        if at_import and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        todo += ast.iter_child_nodes(node)
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: an import with dots; write its whole name"
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        for name in names:
            if name.split(".")[0] == "grader":
                place = ROOT.joinpath(*name.split("."))
                found |= {p for p in (place.with_suffix(".py"), place / "__init__.py") if p.exists()}
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(GRADER)))
def test_a_room_uses_only_the_rooms_it_may(path):
    used = {room(other) for other in modules(path, at_import=False)} - {"__init__"}
    assert used <= MAY_USE[room(path)]


def test_no_import_comes_back_to_where_it_began():
    uses = {path: modules(path, at_import=True) - {path} for path in FILES}
    while ends := [path for path, others in uses.items() if not others]:
        uses = {path: others.difference(ends) for path, others in uses.items() if others}
    assert not uses, "a circle among these: " + ", ".join(str(path.relative_to(GRADER)) for path in uses)


def lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


@pytest.mark.parametrize("path", HAND_WRITTEN, ids=lambda path: str(path.relative_to(GRADER)))
def test_a_file_can_be_read_at_one_sitting(path):
    assert lines(path) <= 400


def test_the_grader_stays_small():
    assert sum(map(lines, HAND_WRITTEN)) <= 9_300


def test_contributing_has_a_line_for_every_file():
    mapped, folder = set(), ""
    for line in (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").splitlines():
        if found := re.match(r"(\w+)/ +\w", line):
            folder = found[1] + "/"
        elif found := re.match(r"( *)(\w+\.py) +\S", line):
            mapped.add((folder if found[1] else "") + found[2])
    files = {str(path.relative_to(GRADER)) for path in HAND_WRITTEN if path.name != "__init__.py"}
    assert mapped == files
