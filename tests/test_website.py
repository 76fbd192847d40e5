"""The site's parts that need no browser: what a page is made of, what runs again and what does not, and what is recorded."""

import json
import shutil
import tomllib

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from grader.course.metadata import cell_metadata
from grader.course.source import ROOT
from tests.conftest import missing
from website.outputs import Unrunnable, outputs, solved
from website.pages import entry, opens, page

WORDS = tomllib.loads((ROOT / "website" / "words.toml").read_text(encoding="utf-8"))
BUTTON = "[![Open in Colab](https://elsewhere.example/badge.svg)](https://elsewhere.example/open)"


def code(kind, name, source):
    return new_code_cell(source, id=name, metadata=cell_metadata(kind, name, 2 if kind == "check" else 0))


def text(source, kind="text", name="title"):
    return new_markdown_cell(source, id=name, metadata={"grader": {"kind": kind, "name": name}})


def toy(answer="raise NotImplementedError()", show="print(double(21))"):
    cells = [
        text("# A title\n\nA first paragraph.\n\n| | |\n|---|---|\n| **Difficulty** | easy |\n| **Time** | a minute |"),
        text(f"{BUTTON}\n\n*More.*", "machinery", "opening"),
        code("machinery", "feedback", "feedback = 'packed'"),
        text("# A part\n\n[key](../solutions/key.ipynb)", name="part"),
        code("solution", "double", f"def double(x):\n    {answer}"),
        code("check", "doubles", "# @title It doubles <x>.\nassert double(2) == 4"),
        code("show", "look", show),
        code("machinery", "score", "feedback.score()"),
    ]
    return new_notebook(cells=cells)


def test_every_language_has_the_same_words():
    assert all(words.keys() == WORDS["en"].keys() and all(words.values()) for words in WORDS.values())


def test_a_page_has_text_code_and_outputs_and_no_machinery():
    shown = page("01_toy", toy(), {"look": [new_output("stream", text="42\n")]}, WORDS["en"])
    nbformat.validate(shown)
    everything = json.dumps(shown)
    assert "packed" not in everything and "feedback" not in everything
    assert "../solutions" not in everything and "badge.svg" not in everything
    assert "[Open in Colab](https://elsewhere.example/open)" in everything and 'href=\\"notebooks/01_toy.ipynb\\"' in everything
    assert sum(cell.source.startswith("# ") for cell in shown.cells if cell.cell_type == "markdown") == 1
    (check,) = [cell for cell in shown.cells if cell.id == "doubles"]
    assert check.metadata.mystnb["code_prompt_show"] == "Check: It doubles <x> (points: 2)" and check.source == "assert double(2) == 4"
    assert [cell.outputs for cell in shown.cells if cell.id == "look"] == [[new_output("stream", text="42\n")]]


def test_the_first_page_tells_title_paragraph_difficulty_and_time():
    assert entry("01_toy", toy()) == "## [A title](01_toy)\n\nA first paragraph.\n\n- **Difficulty**: easy\n- **Time**: a minute"


def test_every_notebook_has_an_entry_and_says_where_to_open_it():
    for path in (ROOT / "notebooks").rglob("[0-9][0-9]_*.ipynb"):
        nb = nbformat.read(path, 4)
        assert entry(path.stem, nb).count("\n- **") == 2 and "http" in opens(nb), path


def test_cells_run_with_the_keys_answers_once_for_each_content(tmp_path):
    ran = []
    for _ in range(2):
        shown = outputs(solved(toy(), toy("return 2 * x")), tmp_path, lambda done, count: ran.append(done))
        assert shown["look"][0]["text"] == "42\n" and "double" not in shown
        ran.append("end")
    assert ran[-2:] == ["end", "end"]
    outputs(solved(toy(show="print(double(1))"), toy("return 2 * x")), tmp_path, lambda done, count: ran.append("again"))
    assert ran[-1] == "again"


def test_a_plot_is_described_by_its_own_words(tmp_path):
    show = "import matplotlib.pyplot as plt\nplt.plot([1, 2], label='$p$')\nplt.title('T')\nplt.xlabel('steps')\nplt.legend()\nplt.show()"
    (output,) = outputs(solved(toy(show=show), toy("return 2 * x")), tmp_path, lambda *_: None)["look"]
    assert output["data"]["text/plain"] == "T (steps) [p]" and "image/png" in output["data"]


def test_a_cell_that_fails_is_named_and_nothing_is_kept(tmp_path):
    with pytest.raises(Unrunnable, match="cell look: ZeroDivisionError: division by zero"):
        outputs(solved(toy(show="1 / 0"), toy("return 2 * x")), tmp_path, lambda *_: None)
    assert not list(tmp_path.iterdir())


@pytest.mark.thorough  # which CI runs once the extras are there
@pytest.mark.skipif(bool(missing("furo", "make extras")), reason=missing("furo", "make extras"))
def test_a_language_without_words_is_refused_in_a_sentence_and_the_old_site_stays(tmp_path):
    from website.__main__ import build

    for folder in ("notebooks", "notebooks/xx", "site"):
        (tmp_path / folder).mkdir()
    shutil.copy(ROOT / "notebooks" / "01_advantage.ipynb", tmp_path / "notebooks" / "xx")
    (tmp_path / "site" / "index.html").touch()
    with pytest.raises(SystemExit, match=r"website/words.toml has no table \[xx\]"):
        build(tmp_path / "notebooks", tmp_path / "site", tmp_path / "work")
    assert (tmp_path / "site" / "index.html").exists()


def test_the_replay_holds_a_whole_run_whose_verdicts_are_those_of_arithmetic():
    run = json.loads((ROOT / "docs" / "replay" / "run.js").read_text(encoding="utf-8").removeprefix("const RUN = ").rstrip(";\n"))
    sums = [sum(map(int, prompt.rstrip("=").split("+"))) for prompt in run["prompts"]]
    for step in run["steps"]:
        for total, answers in zip(sums, step["answers"], strict=True):
            assert all(right == text.endswith(f"<answer>{total:02d}</answer>") for text, right in answers)
    thinks = [sum(text.startswith("<think>") for answers in step["answers"] for text, _ in answers) for step in run["steps"]]
    assert thinks[0] < 3 and thinks[-1] == 12, "what the page says of haste and thought"
