"""The course in another language: its gettext catalogues, and a notebook with their words in it.

`solutions/locale/LANGUAGE/NAME.po` holds an entry for each text of a source (see texts.py). What has no entry there, an empty one or
a fuzzy one stays English.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from babel.messages.catalog import Catalog
from babel.messages.pofile import PoFileError, read_po

from grader.course.source import ROOT, CourseError, Notebook
from grader.course.texts import replaced, texts

LOCALE = ROOT / "solutions" / "locale"
COMMON = "common"  # the catalogue of what every notebook says: its opening, its feedback, its closing
MISTAKES = ".mistakes"  # behind a notebook's name: the catalogue of its known mistakes
GRADING = "grading"  # the catalogue of what the judge says, and what stands on a feedback page
FORMATTED = ", f-string"  # in a catalogue, behind where a text stands: what it has in braces is code


def languages(folder: Path | None = None) -> list[str]:
    """The languages that have a folder of catalogues, such as "zh_CN"."""
    folder = folder or LOCALE
    return sorted(path.name for path in folder.iterdir() if path.is_dir()) if folder.exists() else []


def read_catalogue(path: Path) -> Catalog:
    """Raises CourseError."""
    try:
        with path.open("rb") as file:
            return read_po(file, locale=path.parent.name, abort_invalid=True)
    except (PoFileError, UnicodeDecodeError, ValueError) as e:
        raise CourseError(f"{path}: not a catalogue of gettext's ({e})") from None


@functools.cache
def entries(language: str, name: str) -> list[tuple[str, str, bool]]:
    """(text, translation, whether it is an f-string's) of each text of a catalogue that is translated; none without a catalogue."""
    path = LOCALE / language / f"{name}.po"
    found = [m for m in read_catalogue(path) if m.id and m.string and not m.fuzzy] if path.exists() else []
    return [(str(m.id), str(m.string), any(where.endswith(FORMATTED) for where in m.auto_comments)) for m in found]


@functools.cache
def translator(language: str, name: str) -> Callable[[str], str]:
    """A text of a notebook's, of its mistakes or of what every notebook says -> the same in a language ("": as it is)."""
    words: dict[str, str] = {}
    for stem in (COMMON, name + MISTAKES, name) if language else ():
        words |= {text: translation for text, translation, _ in entries(language, stem)}
    return lambda text: words.get(text, text)


@functools.lru_cache(maxsize=64)
def translated(notebook: Notebook, language: str) -> Notebook:
    """The notebook in a language: what runs is the same, and what is hidden stays as it is. Raises CourseError."""
    say = translator(language, notebook.name)
    try:
        cells = [replace(cell, source=replaced(cell.source, texts(cell), say)) for cell in notebook.cells]
    except ValueError as e:
        raise CourseError(f"{LOCALE / language / notebook.name}.po: {e}") from None
    return replace(notebook, cells=tuple(cells), language=language, english=notebook)
