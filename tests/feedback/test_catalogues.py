"""The catalogues of translations: complete where they are said to be, and true to what must not change in a text."""

from collections import Counter

import pytest

from grader.course.source import ROOT
from grader.course.texts import data, kept, labels, of_code
from grader.course.translation import LOCALE, languages, read_catalogue
from grader.feedback.catalogues import FORMATTED, JUDGING, open_texts, templates
from tests.conftest import EVERY_NOTEBOOK

TEMPLATES = templates(EVERY_NOTEBOOK)
CATALOGUES = [f"{language}/{name}" for language in languages() for name in TEMPLATES]


def test_there_is_a_catalogue_for_every_notebook_and_none_besides():
    assert {f"{path.parent.name}/{path.stem}" for path in LOCALE.rglob("*.po")} == set(CATALOGUES)


@pytest.mark.parametrize("name", CATALOGUES)
def test_every_text_is_translated_and_none_is_left_over(name):
    catalogue, template = read_catalogue(LOCALE / f"{name}.po"), TEMPLATES[name.partition("/")[2]]
    to_do = [f"{what}: {text[:80]!r}" for what, text in open_texts(catalogue, template)]
    assert not to_do, "\n".join(to_do)


@pytest.mark.parametrize("name", CATALOGUES)
def test_a_translation_keeps_code_formulas_and_addresses(name):
    wrong = []
    for message in read_catalogue(LOCALE / f"{name}.po"):
        if message.id and message.string and not message.fuzzy:
            formatted = any(FORMATTED in where for where in message.auto_comments)
            ours, theirs = kept(message.id, formatted), kept(message.string, formatted)
            if ours != theirs:
                lost, new = list((Counter(ours) - Counter(theirs)).elements()), list((Counter(theirs) - Counter(ours)).elements())
                wrong.append(f"{message.string[:60]!r}: lost {lost}, new {new}")
    assert not wrong, "\n".join(wrong)


def test_every_text_that_is_data_still_stands_in_the_source():
    files = [*ROOT.glob("solutions/*.py"), *ROOT.glob("grader/feedback/*.py"), *(ROOT / "grader" / name for name in JUDGING)]
    sources = "".join(path.read_text(encoding="utf-8") for path in files)
    assert not [text for text in data() if text not in sources and text.replace("\n", "\\n") not in sources]


def test_every_label_still_stands_in_a_cell_of_its_name():
    lines = (LOCALE / "labels.txt").read_text(encoding="utf-8").splitlines()
    for name in {line.partition(":")[0] for line in lines if line and not line.startswith("#")}:
        cells = [cell for notebook in EVERY_NOTEBOOK for cell in notebook.cells if cell.name == name]
        assert labels(name) <= {text.words for cell in cells for text in of_code(cell.source, labels=labels(name))}, name


@pytest.mark.parametrize("name", CATALOGUES)
def test_a_label_with_a_formula_has_letters_of_matplotlibs_own_font_alone(name):
    """Such a label is set by matplotlib's mathtext, which looks into no other font."""
    entries = [m for m in read_catalogue(LOCALE / f"{name}.po") if m.id and any(where.startswith("show ") for where in m.auto_comments)]
    assert not [m.string for m in entries if "$" in m.string and not m.string.isascii()]
