"""The catalogues of translators, kept up to date with the English texts: what `grader release` writes, and what is still to do."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from babel.messages.catalog import Catalog
from babel.messages.pofile import write_po

from grader.course import build, metadata, prose
from grader.course.source import ROOT, Notebook
from grader.course.texts import of_code, of_markdown, texts
from grader.course.translation import COMMON, FORMATTED, GRADING, MISTAKES, languages, read_catalogue
from grader.feedback import cell, errors, naming
from grader.mistakes import versions

SPEAKING = (cell, naming, errors)  # modules with sentences that a notebook tells
JUDGING = ("judge/judge.py", "judge/remote.py", "sandbox/protocol.py", "intake/match.py")  # files with what grading tells
READING = ("intake/notebook_file.py", "intake/python_file.py")  # and of these the notes, which are whole sentences
PAGE = "classroom/templates/feedback.html"
HEADER = "# Texts of the course, and what they are in another language. `grader release` keeps this file up to date with the English."
BEGUN = datetime(2026, 11, 30, tzinfo=UTC)  # a date of today in each file would be news every day
Entry = tuple[str, str]  # a text, where it stands


def templates(course: Iterable[Notebook]) -> dict[str, Catalog]:
    """Name of a catalogue -> every text that it should have, in their order, without translations."""
    found = {COMMON: _template(_common()), GRADING: _template(_grading())}
    for notebook in course:
        found[notebook.name] = _template(_of_notebook(notebook))
        told = [(text, version.name) for version in versions(notebook.name) if version.wrong for text in (version.summary, version.hint)]
        if told:
            found[notebook.name + MISTAKES] = _template(told)
    return found


def updated(course: Iterable[Notebook], folder: Path) -> Iterator[tuple[Path, str]]:
    """(file, its text) of each catalogue, with every text of the course, in its order.

    A text that changed keeps its translation, marked fuzzy, with the English that it was made from; one that is gone stays as
    obsolete, until a translator has taken from it what still serves.
    """
    wanted = templates(course)
    for language in languages(folder):
        for name, template in wanted.items():
            path = folder / language / f"{name}.po"
            new = Catalog(language, header_comment=HEADER, revision_date=BEGUN, fuzzy=False)
            catalogue = read_catalogue(path) if path.exists() else new
            if [m.id for m in catalogue] == [m.id for m in template]:
                yield path, path.read_text(encoding="utf-8")
            else:
                catalogue.update(template)
                yield path, to_text(catalogue)


def open_texts(catalogue: Catalog, template: Catalog) -> Iterator[tuple[str, str]]:
    """(what is to do, the English text) for each text that is missing, fuzzy or no longer in the course."""
    for message in template:
        mine = catalogue.get(message.id)
        if message.id and (mine is None or not mine.string):
            yield "missing", str(message.id)
        elif message.id and mine and mine.fuzzy:
            yield "fuzzy", str(message.id)
    gone = [*catalogue.obsolete.values(), *(message for message in catalogue if message.id and message.id not in template)]
    yield from (("obsolete", str(message.id)) for message in gone)


def to_text(catalogue: Catalog) -> str:
    """A catalogue as the text of its file."""
    for message in catalogue:
        message.flags -= {"python-format", "python-brace-format"}  # a guess of Babel's, wrong for f-strings and per cents
    file = io.BytesIO()
    write_po(file, catalogue, width=0, include_previous=True)
    return file.getvalue().decode()


def _template(entries: Iterable[Entry]) -> Catalog:
    catalogue = Catalog(creation_date=BEGUN)
    for text, where in entries:
        catalogue.add(text, auto_comments=[where])
    return catalogue


def _of_notebook(notebook: Notebook) -> Iterator[Entry]:
    for part, id in build.with_ids(notebook):
        for text in texts(part):
            yield text.words, f"{'text' if part.markdown else part.kind} {id}{FORMATTED if text.formatted else ''}"


def _common() -> Iterator[Entry]:
    for name, source in build.FRAMING.items():
        for text in of_markdown(source):
            yield text.words, f"text {name}"
    for sentence in (build.UPLOAD, metadata.SPEAKS, metadata.DRAWS, metadata.PACKED, prose.READ, prose.THEN, prose.ABOVE):
        yield sentence, "text of every notebook"
    for module in SPEAKING:
        for text in of_code(Path(module.__file__ or "").read_text(encoding="utf-8"), comments=False):
            yield text.words, f"feedback {module.__name__.rpartition('.')[2]}{FORMATTED if text.formatted else ''}"


def _grading() -> Iterator[Entry]:
    for name in (*JUDGING, *READING):
        for text in of_code((ROOT / "grader" / name).read_text(encoding="utf-8"), comments=False):
            if name in JUDGING or text.words.endswith("."):
                yield text.words, f"{name}{FORMATTED if text.formatted else ''}"
    yield ".", "the end of a sentence"
    for words in re.findall(r'say\("([^"]+)"\)', (ROOT / "grader" / PAGE).read_text(encoding="utf-8")):
        yield words, PAGE
