"""The notebooks as they are released: with the feedback cell in them, and fresh or stale against what is built."""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from nbformat import NotebookNode

from grader.course import build
from grader.course.metadata import ANSWERED, MACHINERY_SOURCES, identity
from grader.course.prose import hints, shapes
from grader.course.source import Notebook, read_course
from grader.feedback.naming import equal
from grader.feedback.table import fingerprints
from grader.mistakes import versions

HERE = Path(__file__).parent
EMBEDDED = ("naming.py", "errors.py", "cell.py")
CELL = '''\
{title}
# Its text, packed: print(feedback.text) shows it; in the course's repository it is in grader/feedback/.
import base64, types, zlib
packed = "{packed}"
module = types.ModuleType("feedback")
module.text = zlib.decompress(base64.b85decode(packed)).decode()
exec(module.text, module.__dict__)
feedback, hint = module.feedback, module.feedback.hint
'''


def answer_key(notebook: Notebook, following: str = "") -> NotebookNode:
    """The answer key with its feedback cell, the text of which is packed. following: the name of the next notebook ("": none)."""
    packed = base64.b85encode(zlib.compress(feedback_text(notebook, following).encode(), 9)).decode()
    return build.answer_key(notebook, CELL.format(title=MACHINERY_SOURCES["feedback"], packed=packed))


def answered(notebook: Notebook, answers: Mapping[str, str] = {}) -> NotebookNode:
    """A learner's notebook with every exercise answered: by the source in `answers` (by name), else as the key does."""
    key = answer_key(notebook)
    nb = build.learner_notebook(key)
    for cell, solved in zip(nb.cells, key.cells, strict=True):
        if (known := identity(solved)).kind in ANSWERED:
            cell.source = answers.get(known.name, solved.source)
    return nb


def released(solutions: Path) -> dict[str, str]:
    """Every file that the source text gives: path relative to the course's folder -> its text."""
    course = read_course(solutions)
    files = {}
    for notebook, following in zip(course, [nb.name for nb in course[1:]] + [""], strict=True):
        key = answer_key(notebook, following)
        files[f"solutions/{notebook.name}.ipynb"] = build.to_text(key)
        files[f"notebooks/{notebook.name}.ipynb"] = build.to_text(build.learner_notebook(key))
    return files


def differences(files: dict[str, str], root: Path) -> Iterator[tuple[str, str]]:
    """(file, what is wrong with it) for each built file that is missing, stale or not ours."""
    for folder in ("solutions", "notebooks"):
        for path in sorted((root / folder).glob("*.ipynb")):
            if f"{folder}/{path.name}" not in files:
                yield f"{folder}/{path.name}", "no source text builds it; delete it"
    for name, text in files.items():
        if not (root / name).exists():
            yield name, "missing; run 'make release'"
        elif not _same(text, (root / name).read_text(encoding="utf-8")):
            yield name, "differs from its source text; run 'make release'"


def feedback_text(notebook: Notebook, following: str = "") -> str:
    """What the feedback cell runs: naming.py, errors.py and cell.py, and all that they have to know of this notebook."""
    text = "\n\n".join((HERE / name).read_text(encoding="utf-8").rstrip() for name in EMBEDDED)
    text = re.sub(r"^from grader\..*\n", "", text, flags=re.MULTILINE)
    prints = fingerprints(notebook)
    told = {name for _, *entries in prints for names, *_ in entries for name in names.split()}
    tables: dict[str, Any] = {
        "checks": {c.title: [c.name, c.exercise, c.points] for c in notebook.of_kind("check")},
        "hints": hints(notebook),
        "shapes": shapes(notebook),
        "mistakes": {v.name: [v.summary, v.hint] for v in versions(notebook.name) if v.name in told},
    }
    written = sum(c.points for c in notebook.of_kind("answer"))
    lines = [
        "feedback = Feedback(",
        f"  notebook={notebook.name!r}, following={following!r}, written={written}, text=text,",
        *(f"  {name}={json.dumps(table, ensure_ascii=False)}," for name, table in tables.items()),
        "  fingerprints=[",
        *(f"  {json.dumps(row, ensure_ascii=False, separators=(',', ':'))}," for row in prints),
        "  ],",
        ")",
    ]
    return text + "\n\n\n" + "\n".join(lines) + "\n"


def _same(built: str, found: str) -> bool:
    """Equal but for the last digits of the fingerprints, which depend on the versions of torch and Python and on the processor."""
    if built == found:
        return True
    try:
        (one, prints), (other, others) = _apart(built), _apart(found)
        return one == other and all(a == b or equal(a, b) for a, b in zip(prints, others, strict=True))
    except (ValueError, LookupError, TypeError, StopIteration, zlib.error):  # it was edited by hand
        return False


def _apart(text: str) -> tuple[object, list[list[float]]]:
    """A notebook with its text unpacked, less the checksum and the fingerprints; and the fingerprints."""
    nb = json.loads(text)
    cell = next(c for c in nb["cells"] if c["id"] == "feedback")
    cell["metadata"]["nbgrader"].pop("checksum", None)
    source = "".join(cell["source"])
    packed = source.partition('\npacked = "')[2].partition('"')[0]
    cell["source"] = source.replace(packed, "")
    lines = zlib.decompress(base64.b85decode(packed)).decode().split("\n")
    rows = [json.loads(line.rstrip(",")) for line in lines if line.startswith('  ["')]
    named = [(check, [names for names, *_ in entries]) for check, *entries in rows]
    rest = [line for line in lines if not line.startswith('  ["')]
    return (nb, rest, named), [print_ for _, *entries in rows for _, *print_ in entries]
