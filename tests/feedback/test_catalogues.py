"""The catalogues of translations: complete where they are said to be, and true to what must not change in a text."""

from collections import Counter

import pytest

from grader.course.source import ROOT
from grader.course.texts import data, kept
from grader.course.translation import LOCALE, languages, read_catalogue
from grader.feedback.catalogues import FORMATTED, open_texts, templates
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
    sources = "".join(path.read_text(encoding="utf-8") for path in [*ROOT.glob("solutions/*.py"), *ROOT.glob("grader/feedback/*.py")])
    assert not [text for text in data() if text not in sources and text.replace("\n", "\\n") not in sources]
