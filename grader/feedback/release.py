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
from grader.course.metadata import ANSWERED, DRAWS, FORM, PACKED, SPEAKS, identity
from grader.course.prose import hints, shapes
from grader.course.source import Notebook, read_course
from grader.course.texts import labels, of_code, replaced, way_back
from grader.course.translation import languages, translated, translator
from grader.feedback.catalogues import updated
from grader.feedback.naming import equal
from grader.feedback.table import fingerprints
from grader.mistakes import versions

HERE = Path(__file__).parent
EMBEDDED = ("naming.py", "errors.py", "cell.py")
CELL = """\
{title}
# {about}
import base64, types, zlib
packed = "{packed}"
module = types.ModuleType("feedback")
module.text = zlib.decompress(base64.b85decode(packed)).decode()
exec(module.text, module.__dict__)
feedback, hint = module.feedback, module.feedback.hint
"""
PICTURES = """\
{title}
import base64, zlib
packed = "{packed}"
exec(zlib.decompress(base64.b85decode(packed)).decode(), {{}})
"""


def answer_key(notebook: Notebook, following: str = "") -> NotebookNode:
    """The answer key with its feedback cell, the text of which is packed. following: the name of the next notebook ("": none)."""
    say = translator(notebook.language, notebook.name)
    feedback = CELL.format(title=FORM + say(SPEAKS), about=say(PACKED), packed=_packed(feedback_text(notebook, following)))
    pictures = PICTURES.format(title=FORM + say(DRAWS), packed=_packed(pictures_text(notebook))) if notebook.language else ""
    return build.answer_key(notebook, feedback, pictures)


def answered(notebook: Notebook, answers: Mapping[str, str] = {}) -> NotebookNode:
    """A learner's notebook with every exercise answered: by the source in `answers` (by name), else as the key does."""
    key = answer_key(notebook)
    nb = build.learner_notebook(key)
    for cell, solved in zip(nb.cells, key.cells, strict=True):
        if (known := identity(solved)).kind in ANSWERED:
            cell.source = answers.get(known.name, solved.source)
    return nb


def released(solutions: Path) -> dict[str, str]:
    """Every file that the source text gives, in every language: path relative to the course's folder -> its text."""
    course = read_course(solutions)
    files = {path.relative_to(solutions.parent).as_posix(): text for path, text in updated(course, solutions / "locale")}
    for notebook, following in zip(course, [nb.name for nb in course[1:]] + [""], strict=True):
        for edition in (notebook, *(translated(notebook, language) for language in languages(solutions / "locale"))):
            key = answer_key(edition, following)
            files[f"solutions/{edition.path}"] = build.to_text(key)
            files[f"notebooks/{edition.path}"] = build.to_text(build.learner_notebook(key))
    return files


def differences(files: dict[str, str], root: Path) -> Iterator[tuple[str, str]]:
    """(file, what is wrong with it) for each built file that is missing, stale or not ours."""
    for path in sorted([*root.glob("solutions/**/*.ipynb"), *root.glob("notebooks/**/*.ipynb"), *root.glob("solutions/locale/*/*.po")]):
        name = path.relative_to(root).as_posix()
        if name not in files and path.parent.name != ".ipynb_checkpoints":
            yield name, "no source text builds it; delete it"
    for name, text in files.items():
        if not (root / name).exists():
            yield name, "missing; run 'make release'"
        elif not _same(text, (root / name).read_text(encoding="utf-8")):
            yield name, "differs from its source text; run 'make release'"


def feedback_text(notebook: Notebook, following: str = "") -> str:
    """What the feedback cell runs: naming.py, errors.py and cell.py, and all that they have to know of this notebook."""
    text = "\n\n".join((HERE / name).read_text(encoding="utf-8").rstrip() for name in EMBEDDED)
    text = re.sub(r"^from grader\..*\n", "", text, flags=re.MULTILINE)
    say = translator(notebook.language, notebook.name)
    text = replaced(text, list(of_code(text, comments=False)), say)
    prints = fingerprints(notebook)
    told = {name for _, *entries in prints for names, *_ in entries for name in names.split()}
    tables: dict[str, Any] = {
        "checks": {c.title: [c.name, c.exercise, c.points] for c in notebook.of_kind("check")},
        "hints": hints(notebook),
        "shapes": shapes(notebook.english or notebook),
        "mistakes": {v.name: [say(v.summary), say(v.hint)] for v in versions(notebook.name) if v.name in told},
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


def pictures_text(notebook: Notebook) -> str:
    """What the cell about pictures runs in a translated notebook."""
    say = translator(notebook.language, notebook.name)
    cells = (notebook.english or notebook).of_kind("given", "show", "scenario")
    shown = {t.words: t for cell in cells for t in of_code(cell.source, comments=False, labels=labels(cell.name))}
    drawn = sorted((t for t in shown.values() if not say(t.words).isascii()), key=lambda t: len(say(t.words)), reverse=True)
    letters = "".join(sorted({c for t in drawn for c in say(t.words) if c.isalpha() and not c.isascii()}))
    table = [[*way_back(t.words, say(t.words), t.formatted)] for t in drawn]
    return f"{(HERE / 'pictures.py').read_text(encoding='utf-8')}\n\ndraw({letters!r}, {table!r})\n"


def _packed(text: str) -> str:
    return base64.b85encode(zlib.compress(text.encode(), 9)).decode()


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
