"""A mangled hand-in is graded as its clean twin, or refused with a reason; it is never a silent zero."""

import json
import random
import time
from unittest.mock import MagicMock

import pytest
from IPython.core.inputtransformer2 import TransformerManager

from grader.course.build import to_text
from grader.course.translation import languages, translated
from grader.course.trusted import failure
from grader.feedback.release import answered
from grader.intake.match import Unreadable, read_submission
from grader.intake.static_analysis import additions, defines, effort, overwrites, parsed
from tests.conftest import COURSE, EVERY_NOTEBOOK
from tests.intake.submissions.mangled import MENDED, REFUSED, as_bytes, code, edit, find, insert_after, source, without_metadata
from tests.intake.submissions.toy import ANSWERS, open_file, solved, toy_course


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    return toy_course(tmp_path_factory.mktemp("course"))


@pytest.fixture(scope="module")
def files(course):
    """The solved notebooks, as text."""
    return [json.dumps(solved(notebook)) for notebook in course]


@pytest.fixture
def file(files):
    """The solved first notebook, to be changed freely."""
    return json.loads(files[0])


def read(file, course, filename="01_toy.ipynb"):
    return read_submission(as_bytes(file), filename, course)


def answers(submission):
    return {c.name: c.source for c in submission.cells if c.kind in ("solution", "answer")}


def points(submission):
    """What the checks give when the cells are run in their order, each on its own."""
    names = {"__name__": "__main__", "get_ipython": MagicMock()}
    for cell in submission.cells:
        if not cell.markdown:
            try:
                exec(TransformerManager().transform_cell(cell.source), names)
            except (Exception, SyntaxError):  # what a learner's cell raises concerns that cell alone
                continue
    return {c.name: c.points for c in submission.notebook.of_kind("check") if failure(c, names)[0] is None}


def test_a_notebook_that_is_not_graded_is_no_hand_in_of_those_whose_functions_it_brings():
    (ungraded,) = [notebook for notebook in EVERY_NOTEBOOK if not notebook.graded]
    assert {c.name for c in ungraded.of_kind("bring")} & {c.name for notebook in COURSE for c in notebook.of_kind("solution")}
    with pytest.raises(Unreadable, match="it holds none of the exercises of 01_advantage"):
        read_submission(to_text(answered(ungraded)).encode(), f"{ungraded.name}.ipynb", COURSE)


def test_a_clean_hand_in_is_read_without_a_note(file, course):
    submission = read(file, course)
    assert submission.notebook == course[0]
    assert answers(submission) == {name: ANSWERS[name] for name in ("doubled", "centred", "why_zero")}
    assert [c.name for c in submission.cells] == ["setup", "clipping", "doubled", "centred", "twice_centred", "why_zero"]
    assert points(submission) == {"twice": 2, "zero_mean": 3}
    assert submission.notes == ()


@pytest.mark.parametrize("condition", MENDED)
def test_it_is_graded_as_its_clean_twin(condition, file, course):
    build, note, other_source, filename = MENDED[condition]
    twin = read(file, course)
    submission = read(build(file), course, filename)
    assert submission.notebook == course[0]
    assert points(submission) == {"twice": 2, "zero_mean": 3}, submission
    if not other_source:
        assert answers(submission) == answers(twin)
    assert note in " ".join(submission.notes)
    assert all(n.endswith(".") and "\n" not in n for n in submission.notes)
    named = [c.name for c in submission.cells if c.name]
    assert sorted(named) == sorted(c.name for c in twin.cells), "each cell of the course once"


@pytest.fixture(scope="module", params=["", *languages()], ids=lambda language: language or "English")
def edition(request):
    """A notebook of the course in a language, solved, as text; and itself."""
    notebook = translated(COURSE[0], request.param) if request.param else COURSE[0]
    return notebook, to_text(answered(notebook))


@pytest.mark.parametrize("condition", [name for name in MENDED if name.startswith("through_") and "text_editor" not in name])
def test_a_notebook_of_the_course_comes_back_from_a_platform_in_its_language(condition, edition):
    notebook, text = edition
    file = json.loads(text)
    twin, submission = read(file, COURSE, "hw.ipynb"), read(MENDED[condition][0](file), COURSE, "hw.ipynb")
    assert submission.notebook == notebook
    assert answers(submission) == answers(twin)


@pytest.mark.parametrize("condition", REFUSED)
def test_it_is_refused_with_a_reason(condition, file, course):
    build, reason, filename = REFUSED[condition]
    with pytest.raises(Unreadable) as refused:
        read(build(file), course, filename)
    assert reason in str(refused.value)
    assert str(refused.value).startswith("01_toy.ipynb: ")
    assert "\n" not in str(refused.value)


def test_there_are_at_least_thirty_kinds():
    assert len(MENDED) + len(REFUSED) >= 30


def test_an_untouched_notebook_is_read_and_earns_nothing(course):
    submission = read(open_file(course[0]), course)
    assert answers(submission)["why_zero"] == ""
    assert points(submission) == {}
    assert submission.notes == ()


def test_a_syntax_error_costs_its_own_exercise_alone(file, course):
    find(file, "doubled")["source"] = "def doubled(x)\n    return 2 * x"
    submission = read(file, course)
    assert answers(submission)["doubled"] == "def doubled(x)\n    return 2 * x"
    names = [c.name for c in submission.cells]
    assert names == ["setup", "clipping", "doubled", "centred", "twice_centred", "why_zero"]


def test_a_deleted_answer_is_named_and_the_others_count(file, course):
    file["cells"].remove(find(file, "centred"))
    submission = read(file, course)
    assert points(submission) == {"twice": 2}
    assert "The cell of centred is missing; the exercise counts as not answered." in submission.notes


def test_the_learners_tests_and_given_code_never_run(file, course):
    for name in ("setup", "clipping", "a_clip_by_hand", "twice", "doubles", "twice_centred", "feedback"):
        edit(file, name, source(find(file, name)), source(find(file, name)) + "\nraise SystemExit('mine')")
    for changed in (file, without_metadata(json.loads(json.dumps(file)))):
        assert not any("mine" in c.source for c in read(changed, course).cells)


def test_cells_of_ones_own_keep_their_place(file, course):
    insert_after(file, "why_zero", code("last = 5"))
    insert_after(file, "doubles", code("fourth = 4"))
    insert_after(file, "clipping", code("second = 2"), code("third = 3"))
    file["cells"].insert(1, code("first = 1"))
    order = [c.name or c.source for c in read(file, course).cells]
    assert order == [
        "first = 1",
        "setup",
        "clipping",
        "second = 2",
        "third = 3",
        "doubled",
        "fourth = 4",
        "centred",
        "twice_centred",
        "why_zero",
        "last = 5",
    ]


def test_bring_cells_take_the_keys_text(files, course):
    file = json.loads(files[1])
    find(file, "doubled")["source"] = "def doubled(x):\n    return x / 0"
    for changed in (file, without_metadata(json.loads(json.dumps(file)))):
        submission = read(changed, course, "hw3.ipynb")
        assert submission.notebook == course[1]
        assert points(submission) == {"four_times": 2}
        assert not any("x / 0" in c.source for c in submission.cells)


def test_the_content_says_which_notebook_it_is_not_the_file_name(files, course):
    submission = read(json.loads(files[1]), course, "Copy of 01_toy (1).ipynb")
    assert submission.notebook == course[1]
    assert submission.notes == ("The file is named 01_toy but holds 02_more_toys; it was graded as that.",)


def test_a_hand_in_for_another_notebook_is_refused_where_one_is_expected(files, course):
    with pytest.raises(Unreadable, match="none of the exercises of 02_more_toys"):
        read(json.loads(files[0]), course[1:])


def test_a_written_answer_keeps_all_its_words(file, course):
    find(file, "why_zero")["source"] = "First."
    insert_after(file, "why_zero", {"cell_type": "markdown", "source": "And second.", "metadata": {}})
    assert answers(read(file, course))["why_zero"] == "First.\n\nAnd second."
    assert answers(read(without_metadata(file), course))["why_zero"] == "First.\n\nAnd second."


def test_a_helper_cell_in_the_place_of_an_answer_is_kept(file, course):
    answer = source(find(file, "doubled")).replace("x + x", "two * x")
    find(file, "doubled")["source"] = "two = math.sqrt(4)"
    submission = read(insert_after(file, "doubles", code(answer)), course)
    assert points(submission) == {"twice": 2, "zero_mean": 3}


def test_an_empty_copy_of_an_answer_behind_it_is_not_taken(file, course):
    cell = find(file, "doubled")
    insert_after(file, "doubled", {"cell_type": "code", "source": "def doubled(x):\n    pass", "metadata": {}, "outputs": []})
    submission = read(file, course)
    assert answers(submission)["doubled"].strip() == source(cell).strip()
    assert any("is written in several cells" in note for note in submission.notes)


def test_functions_are_seen_behind_magics():
    assert defines("%%time\ndef f(x):\n    %timeit x\n    y = !ls\n    return y\nf?") == {"f"}


def test_code_made_to_break_a_parser_is_only_a_syntax_error():
    for hostile in ("-" * 300_000 + "1", "(" * 90_000, "a" + ".b" * 45_000, "lambda:" * 12_000 + "0", "x\0", "'\ud800'", "if 1:\n" * 9_000):
        assert parsed(hostile) is None
        assert defines(hostile) == frozenset()


def test_the_effort_of_an_answer_is_how_few_of_its_todos_are_open():
    written = "def f(x):\n    y = x\n    {}\n    {}\n    return y"
    todo = "raise NotImplementedError()"
    answers = [written.format(*todos) for todos in ((todo, todo), (todo, "y += 1"), ("y += 1", "raise NotImplementedError('for x < 0')"))]
    assert sorted(answers, key=lambda source: effort(source, "f")) == answers
    assert len({effort(source, "f") for source in answers}) == 3


@pytest.mark.parametrize("depth", [30, 90, 120, 400, 900])
@pytest.mark.parametrize(
    "nested",
    {
        "elif": lambda n: "if q:\n    pass\n" + "elif q:\n    pass\n" * n,
        "sum": lambda n: "raise E(1" + "+1" * n + ")",
        "attributes": lambda n: "raise a" + ".b" * n,
        "calls": lambda n: "raise a" + "()" * n,
        "lambdas": lambda n: "raise E(" + "lambda: " * n + "0)",
        "not": lambda n: "raise " + "not " * n + "q",
        "lists": lambda n: "raise E(" + "[" * n + "]" * n + ")",
    }.values(),
)
def test_code_of_any_depth_is_read(nested, depth, file, course):
    hostile = nested(depth)
    inside = "def doubled(x):\n    y = x\n    " + hostile.replace("\n", "\n    ")
    for text in (hostile, inside):
        assert parsed(text) is None if depth > 100 else parsed(text) is not None or depth > 80
        assert defines(text) == ({"doubled"} if text is inside else frozenset())
        assert overwrites(text, {"doubled"}) == set()
        assert effort(text, "doubled") in (1, 10_000)
        assert additions(text, "", set()) in ("", text.rstrip())
    find(file, "setup")["source"] += "\n" + hostile
    find(file, "doubled")["source"] = inside
    find(file, "centred")["source"] = behind = ANSWERS["centred"] + "\n" + hostile
    assert answers(read(file, course))["doubled"] == inside
    assert answers(read(file, course))["centred"] == behind


@pytest.mark.parametrize(
    "line", [" " * 99_000 + "!", "a " * 49_000 + "!", "a" * 99_000 + "?b", "\t" * 99_000 + "=!", "def" + " " * 99_000 + "("]
)
def test_a_line_of_any_length_is_read_in_linear_time(line):
    started = time.process_time()
    parsed("x = 0\n" + line)
    defines(line + "0" * 9_000)
    assert time.process_time() - started < 2


def test_an_answer_in_thousands_of_cells_is_read_in_linear_time(file, course):
    for _ in range(4_000):
        insert_after(
            file, "why_zero", {"cell_type": "markdown", "source": "Because. " * 500, "metadata": {"nbgrader": {"grade_id": "why_zero"}}}
        )
    started = time.process_time()
    assert "Because. Because." in answers(read(file, course))["why_zero"]
    assert time.process_time() - started < 10


def test_what_is_added_on_one_line_is_kept_once():
    line = "import re; " * 5_000
    assert additions(f"x = 1\n{line}\ny = 2", "x = 1", set()) == f"{line}\ny = 2"


def test_magics_may_stand_behind_any_name_they_are_given_to():
    assert defines("a, b.c = !ls\n  \nd\t=\t%pwd\nx ? 1\ndef f(x):\n    y = %who\n") == frozenset({"f"})


def test_whatever_the_bytes_are_it_is_read_or_refused(file, course):
    draw = random.Random(0)
    data = as_bytes(file)
    junk = [b"", b"{", b"]", b'"', b"\\", b"null", b"1e999", b"\xff", b"\x00", b"[]", b'"source"', b"# %%"]
    for _ in range(150):
        changed = data
        for _ in range(draw.choice((1, 1, 5))):
            start = draw.randrange(len(changed))
            changed = changed[:start] + draw.choice(junk) + changed[start + draw.choice((0, 1, 7, 300)) :]
        try:
            read(changed, course)
        except Unreadable as e:
            assert "\n" not in str(e)


def test_whatever_the_values_are_it_is_read_or_refused(file, course):
    draw = random.Random(1)
    junk = [None, 0, -1.5, "", "x", [], {}, [None], {"source": []}, True, "doubled"]

    def places(value):
        """Every (container, key) in a JSON value."""
        for key, inner in list(value.items() if isinstance(value, dict) else enumerate(value)):
            yield value, key
            if isinstance(inner, dict | list):
                yield from places(inner)

    for _ in range(150):
        changed = json.loads(json.dumps(file))
        for container, key in draw.sample(list(places(changed)), draw.choice((1, 3, 20))):
            container[key] = draw.choice(junk)
        try:
            read(changed, course)
        except Unreadable as e:
            assert "\n" not in str(e)
