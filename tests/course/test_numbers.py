"""Every number of the prose is what a cell prints: it is looked for in the output and the code of its own section.

A number counts if it has a decimal point, a percent sign or two digits. It is found where a number of the section, or of the last
experiment before it, is the same once rounded to as many digits; after "about", within a tenth. Where a model was trained, whose run
depends on the processor, they may differ by .1 or by a quarter.
"""

import ast
import contextlib
import io
import re
import warnings

import pytest

from tests.conftest import COURSE

NUMBER = re.compile(r"(?<![\w.^_/])(?<![\w]-)(?:\d{1,3}(?:,\d{3})+|\d*\.\d+|\d+)(?:e[-+]?\d+)?(?:\s?%|\spercent)?(?!\w|\.\d)")
NO_PROSE = re.compile(r"```.*?```|\$\$.*?\$\$|\]\(.*?\)|^#[^\n]*", re.DOTALL | re.MULTILINE)  # code, formulas, addresses, headings
ELSEWHERE = {  # a heading, without what stands in brackets -> its numbers that no cell there prints
    "Part 1: PPO asks a critic": ".06",  # the worked number of the exercise; its checks have it
    "Conventions of this course": "1e-4",  # TRL's eps
    '"Why does the loss start at 0, and then increase?"': "2703 239 .9",  # two threads; "above .9" is .97
    "Find the bug 2: `response_ratio`": "20",  # log-ratios may be cut there
    "One ratio per token, or one per answer?": "2025",
    "A price on drifting away": "2020",
    "A sum is not a mean": "0.7183",  # the exercise's worked number
    "Dead groups still feel the KL": "2019",
    "Settings": "70 05 92",  # a sum
    "The task and its language": "500",  # about as many prompts
    "The reward": "12",  # an answer
    "Exercise: `math_reward`": "1.67",
    "From logits to numbers for the loss": "0.75 0.4557",  # ln of 3/4, and of what it is at a temperature of 2
    "What it costs to remember": "18",
    "The rollout": "21",  # an answer
    "What does not matter here, and where it does": "16",  # rules that circulate
}


def sections(notebook):
    """The notebook's cells from one heading to the next."""
    found = [[]]
    for cell in notebook.cells:
        if cell.markdown and cell.source.startswith("##"):
            found.append([])
        found[-1].append(cell)
    return found


def numbers(text):
    """The numbers of a text without their signs: (as written, value, half a unit of the last digit)."""
    for match in NUMBER.finditer(text):
        mantissa, _, exponent = re.sub(r"[,%\s]|percent", "", match[0]).partition("e")
        unit = 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))
        yield match[0], float(mantissa) * 10.0 ** int(exponent or 0), unit / 2


def claims(cell):
    """The numbers of a cell of prose that say something; "about 24" is meant to a tenth."""
    text = NO_PROSE.sub(" ", cell.source)
    about = {m[1] for m in re.finditer(rf"\babout\s({NUMBER.pattern})", text)}
    for written, number, half in numbers(text):
        half = max(half, number / 10) if written in about else half
        if re.search(r"\.|%|percent", written) or sum(c.isdigit() for c in written) > 1:
            yield written, number, half


def there(cells, printed):
    """The numbers that cells of code print, and those that stand in them."""
    for cell in cells:
        yield from (number for _, number, _ in numbers(printed[cell.name]))
        constants = (node.value for node in ast.walk(ast.parse(cell.source)) if isinstance(node, ast.Constant))
        yield from (float(value) for value in constants if type(value) in (int, float))


def printed_by(notebook):
    """Name of a cell -> what it prints with the answer key."""
    names, printed = {"__name__": "__main__"}, {}
    for cell in notebook.cells:
        if not cell.markdown:
            with contextlib.redirect_stdout(io.StringIO()) as said, warnings.catch_warnings():
                warnings.simplefilter("ignore")
                exec(compile(cell.source, f"<{cell.name}>", "exec"), names)
            printed[cell.name] = said.getvalue()
    return printed


def unfounded(notebook, printed):
    """heading: the numbers below it that nothing bears out."""
    experiment = []
    for part in sections(notebook)[1:]:  # the first is the head, with its times
        code = [cell for cell in part if not cell.markdown]
        found = list(there(code + experiment, printed))
        trained = any("train(" in cell.source for cell in code + experiment)
        heading = part[0].source.split("\n")[0].lstrip("# ").partition(" (")[0]
        for written, number, half in (claim for cell in part if cell.markdown and cell.kind == "text" for claim in claims(cell)):
            near = max(half * 1.001, trained and max(0.1, number / 4))
            scales = (1, 100) if re.search("%|percent", written) else (1,)
            borne_out = any(abs(x * scale - number) <= near for x in found for scale in scales)
            if not borne_out and written not in ELSEWHERE.get(heading, "").split():
                yield f"{heading}: {written}"
        experiment = [cell for cell in code if cell.kind == "show"][-1:] or experiment


@pytest.mark.training
@pytest.mark.parametrize(
    "notebook", [pytest.param(nb, id=nb.name, marks=[pytest.mark.thorough] if nb.name.startswith("04") else []) for nb in COURSE]
)
def test_every_number_of_the_prose_is_borne_out_by_a_cell(notebook):
    strange = list(unfounded(notebook, printed_by(notebook)))
    assert not strange, "\n".join(["no cell prints these:", *strange])


def test_a_number_that_no_cell_prints_is_found():
    notebook = COURSE[0]
    printed = {cell.name: "" for cell in notebook.cells if not cell.markdown}
    assert len(list(unfounded(notebook, printed))) > 20
