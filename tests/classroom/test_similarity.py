"""Copies are found however they are dressed, and nobody is called a copy for what everybody has."""

import ast
import base64
import re

import pytest

from grader.classroom.similarity import alike
from grader.course.build import learner_notebook
from grader.course.metadata import identity
from grader.feedback.release import answer_key
from grader.intake.static_analysis import hidden_code
from grader.mistakes import versions
from tests.conftest import COURSE

SOFTMAX = """
def weights(scores, temperature):
    top = scores.max()
    shifted = (scores - top) / temperature
    exponents = shifted.exp()
    if exponents.sum() == 0:
        return torch.zeros_like(scores)
    return exponents / exponents.sum(dim=-1, keepdim=True).clamp_min(1e-9)
"""
OTHERS = {
    "carl": [
        "def weights(s, t):\n" + "".join(f"    print({i}, s.sum({i}), t * {i})\n" for i in range(9)) + "    return torch.softmax(s / t, 0)"
    ],
    "dora": ["def weights(x, y):\n    z = [exp(v / y) for v in x]\n    total = sum(z)\n    return torch.tensor([v / total for v in z])"],
}


def renamed(source):
    names = {"scores": "a", "top": "b", "shifted": "c", "exponents": "d", "temperature": "t"}
    return re.sub(r"\w+", lambda m: names.get(m[0], m[0]), source)


def commented(source):
    return '"""Mine."""\n' + source.replace("\n    if", "\n    # mine\n    if")


def diluted(source):
    """A value that nothing reads before each statement of a function, the next made of the one before."""
    tree = ast.parse(source)
    for function in [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]:
        spare = [ast.parse(f"spare{i} = {i} * 2 + len('{i}'){f' - spare{i - 1}' * (i > 0)}").body for i in range(len(function.body))]
        function.body = [statement for i, own in enumerate(function.body) for statement in (*spare[i], own)]
    return ast.unparse(tree)


DRESSED = [renamed, commented, diluted, lambda source: renamed(diluted(commented(source))), lambda source: "%matplotlib inline\n" + source]


@pytest.mark.parametrize("dress", DRESSED)
def test_a_copy_is_found_in_any_dress(dress):
    (group,) = alike({"anna": [SOFTMAX], "bo": ["def f(:", dress(SOFTMAX)], **OTHERS})
    assert group.members == ("anna", "bo") and not group.of_key


def test_a_value_that_is_read_counts():
    changed = SOFTMAX.replace("exponents = shifted.exp()", "exponents = torch.where(shifted > -30, shifted, torch.tensor(-30.0)).exp()")
    (group,) = alike({"anna": [SOFTMAX], "bo": [diluted(SOFTMAX)], **OTHERS})
    (loose,) = alike({"anna": [SOFTMAX], "bo": [changed], **OTHERS}) or [None]
    assert group.share == 1 and (loose is None or loose.share < 1)


@pytest.mark.parametrize("size", [3, 120])
def test_copies_of_one_another_are_one_group(size):
    """Each a little different; more of them than the hand-ins that a piece brings together two by two, too."""
    copies = {f"s{i:03}": [diluted(SOFTMAX).replace("1e-09", f"{i} / 7")] for i in range(size)}
    bodies = ["".join(f"    s = s.own{i}_{j}(s)\n" for j in range(20)) for i in range(size)]
    honest = {f"t{i:03}": [f"def weights(s):\n{body}    return s"] for i, body in enumerate(bodies)}
    (group,) = alike({**copies, **honest})
    assert group.members == tuple(sorted(copies)) and 0.8 <= group.share < 1


def test_two_circles_of_copies_are_two_groups():
    other = OTHERS["carl"][0]
    groups = alike({"anna": [SOFTMAX], "bo": [renamed(SOFTMAX)], "carl": [other], "dora": [other + "\n# mine"], "eve": OTHERS["dora"]})
    assert [group.members for group in groups] == [("anna", "bo"), ("carl", "dora")]


@pytest.mark.parametrize("notebook", COURSE, ids=lambda notebook: notebook.name)
def test_blanks_are_nobodys_copies_and_the_answer_key_is_recognised(notebook):
    key = answer_key(notebook)
    own = [[cell.source for cell in nb.cells if identity(cell).kind == "solution"] for nb in (key, learner_notebook(key))]
    solved, blank = own
    hand_ins = {"blank": blank, "another": blank, "copy": [diluted(source) for source in solved]}
    (group,) = alike(hand_ins, blank, solved)
    assert group.of_key and group.members == ("copy",)
    rights = {version.exercise: version.source for version in versions(notebook.name) if not version.wrong}
    assert not alike({"anna": list(rights.values())}, blank, solved), "right answers that were written by others are no copies of the key"


def test_given_code_makes_nobody_alike():
    assert not alike({"anna": [SOFTMAX], "bo": [renamed(SOFTMAX)]}, given=[SOFTMAX])


def test_code_of_any_kind_can_be_compared():
    deep = "x = " + "(" * 500 + ")" * 500
    assert not alike({"anna": [deep], "bo": ["def f(:"], "cleo": [], "dora": ["-" * 5000 + "x"]})


PACKED = base64.b64encode(SOFTMAX.encode()).decode()
HIDDEN = {
    f"import base64\nexec(base64.b64decode('{PACKED}'))": ["base64", "exec"],
    "run = eval\nrun('1 + 1')": ["eval"],
    "from marshal import loads": ["marshal"],
    "getattr(tools, 'ex' + 'ec')": ["getattr"],
    "getattr(tools, 'eval')(text)": ["getattr"],
    "globals()['__builtins__']": ["globals"],
    "weights.__code__ = other.__code__": ["__code__"],
    "import importlib.util": ["importlib"],
    "def f(:\n exec(text)": ["exec"],
}


@pytest.mark.parametrize("source", HIDDEN, ids=lambda source: source[-30:])
def test_code_that_a_reader_does_not_see_is_found(source):
    assert hidden_code(source) == HIDDEN[source]


HONEST = ["model.eval()", "torch.compile(f)", "getattr(torch, 'sum')(x)", "import math", "def f(:\n model.eval()", "# exec\nx = 'eval'"]


@pytest.mark.parametrize("source", HONEST)
def test_honest_code_is_not_taken_for_hidden(source):
    assert hidden_code(source) == []


@pytest.mark.parametrize("notebook", COURSE, ids=lambda notebook: notebook.name)
def test_the_answer_key_hides_nothing(notebook):
    assert not [hidden_code(cell.source) for cell in notebook.of_kind("solution") if hidden_code(cell.source)]
