"""The pages that exist in two languages say the same: as many sections, the same commands, code and links; and no link leads nowhere."""

import re

import pytest

from grader.course.source import ROOT

PAGES = sorted([*ROOT.glob("*.zh.md"), *ROOT.glob("docs/*.zh.md")])
FENCE = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?://)([^)#\s]*)(#[^)\s]+)?\)")


def english(page):
    return page.with_name(page.name.replace(".zh.", "."))


def text(page):
    return page.read_text(encoding="utf-8")


def in_one_language(target):
    """What is linked, by its English name; a place inside a page has another name in each language."""
    return re.sub(r"[/.]zh\b", "", target.partition("#")[0])


def headings(page):
    return re.findall(r"^(#+) ", FENCE.sub("", text(page)), re.MULTILINE)


def commands(page):
    """The lines of the code blocks, without what is said of them behind: a comment, or words in a second column."""
    lines = [line for block in FENCE.findall(text(page)) for line in block.splitlines() if not line.startswith(" " * 10)]
    return [re.split(r"\s{2,}", line.strip())[0] for line in lines]


def code(page):
    """What stands in backticks in the text, however its lines are broken."""
    return {in_one_language(" ".join(span.split())) for span in re.findall(r"`([^`]+)`", FENCE.sub("", text(page)))}


def links(page):
    return sorted({in_one_language(target) for target in re.findall(r"\]\(([^)\s]+)\)", text(page))})


def anchors(page):
    """The names that GitHub gives to the sections of a page."""
    titles = re.findall(r"^#+ (.*)$", FENCE.sub("", text(page)), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


of_pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


@of_pages
@pytest.mark.parametrize("part", [headings, commands, code, links], ids=lambda part: part.__name__)
def test_a_page_and_its_translation_have_the_same(part, page):
    ours, theirs = part(english(page)), part(page)
    assert ours, "nothing was found to compare"
    missing, extra = ([item for item in one if item not in other] for one, other in ((ours, theirs), (theirs, ours)))
    assert ours == theirs, f"{page.name} differs from {english(page).name}: it lacks {missing}, has {extra} of its own, or another order"


@of_pages
def test_both_languages_lead_to_each_other_in_their_first_lines(page):
    for here, there in ((page, english(page)), (english(page), page)):
        assert f"({there.name})" in "".join(text(here).splitlines()[:4]), here.name


@pytest.mark.parametrize("page", [page for zh in PAGES for page in (zh, english(zh))], ids=lambda page: page.name)
def test_every_link_leads_somewhere(page):
    for target, anchor in LINK.findall(text(page)):
        found = page.parent / target if target else page
        assert found.exists(), target
        assert not anchor or anchor[1:] in anchors(found), target + anchor
