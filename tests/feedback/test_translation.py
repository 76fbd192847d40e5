"""The course in another language: the same code, the same verdicts, its own words.

Tried with a language whose every text is the English one in 「brackets」, so that nothing depends on how far a translation is.
"""

import ast
import json
import re

import matplotlib.pyplot as plt
import pytest
from matplotlib import font_manager

from grader.course import translation
from grader.course.build import learner_notebook, to_text
from grader.course.prose import shapes
from grader.course.source import SOLUTION, Cell, Notebook
from grader.course.texts import fields, labels, of_code, replaced, texts, way_back
from grader.course.translation import languages, translated
from grader.course.trusted import failure, namespace
from grader.feedback import catalogues, pictures
from grader.feedback.release import answer_key, answered, feedback_text
from grader.intake.match import read_submission
from grader.mistakes import versions
from tests.conftest import COURSE, EVERY_NOTEBOOK
from tests.intake.submissions.mangled import without_metadata
from tests.judge.hands import warm_judge

BRACKETS = "eo"  # a language that the course does not have
LANGUAGES = [BRACKETS, *languages()]
IN_FULL = [BRACKETS, *(pytest.param(language, marks=pytest.mark.thorough) for language in languages())]
of_notebooks = pytest.mark.parametrize("notebook", EVERY_NOTEBOOK, ids=lambda nb: nb.name)
of_graded_notebooks = pytest.mark.parametrize("notebook", COURSE, ids=lambda nb: nb.name)


def in_brackets(text):
    """A translation that any text can have: what gives it its form stays outside."""
    if text.startswith("```"):
        return text
    before, words, after = re.fullmatch(r"((?:<details.*?><summary>|\||\s)*)(.*?)((?:</summary>|\||\s)*)", text, re.DOTALL).groups()
    return f"{before}「{words}」{after}"


@pytest.fixture(scope="module", autouse=True)
def brackets(tmp_path_factory):
    """Catalogues in brackets, beside those that the course has."""
    folder = tmp_path_factory.mktemp("locale")
    for language in languages():
        (folder / language).symlink_to(translation.LOCALE / language)
    (folder / BRACKETS).mkdir()
    for path, _ in catalogues.updated(EVERY_NOTEBOOK, folder):
        if path.parent.name == BRACKETS:
            catalogue = catalogues.templates(EVERY_NOTEBOOK)[path.stem]
            for message in catalogue:
                message.string = message.id and in_brackets(message.id)
            path.write_text(catalogues.to_text(catalogue), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(translation, "LOCALE", folder)
        yield


class WithoutWords(ast.NodeTransformer):
    """Empties strings, and puts the fields of f-strings into an order that no language changes."""

    def visit_Constant(self, node):
        return ast.Constant("") if isinstance(node.value, str) else node

    def visit_JoinedStr(self, node):
        found = [
            ast.dump(self.visit(value.value)) + str(value.conversion) for value in node.values if isinstance(value, ast.FormattedValue)
        ]
        return ast.Constant(sorted(found))


def code(source):
    return ast.dump(WithoutWords().visit(ast.parse(source)))


@pytest.mark.parametrize("language", LANGUAGES)
@of_notebooks
def test_a_cell_of_code_differs_in_strings_and_comments_alone(notebook, language):
    for ours, theirs in zip(notebook.cells, translated(notebook, language).cells, strict=True):
        assert (ours.kind, ours.name, ours.points, ours.hidden) == (theirs.kind, theirs.name, theirs.points, theirs.hidden)
        if not ours.markdown:
            assert code(ours.source) == code(theirs.source), ours.name
            assert [line.strip() in SOLUTION for line in ours.source.split("\n")].count(True) == theirs.source.count(" SOLUTION")


@of_notebooks
def test_every_text_stands_in_the_notebook(notebook):
    for ours, theirs in zip(notebook.cells, translated(notebook, BRACKETS).cells, strict=True):
        assert sum(map(theirs.source.count, "「」")) == 2 * sum(not text.words.startswith("```") for text in texts(ours)), ours.name


@of_notebooks
def test_no_code_inside_an_f_string_looks_up_a_text(notebook):
    """What stands in its braces is not translated, and a key that is would not be found."""
    found = [(text, cell.name) for cell in notebook.cells if not cell.markdown for text in of_code(cell.source, comments=False)]
    trees = [(ast.parse(f"f{field!r}"), name) for text, name in found if text.formatted for field in fields(text.words)]
    nodes = [(node, name) for tree, name in trees for node in ast.walk(tree)]
    keys = {node.slice.value for node, _ in nodes if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant)}
    assert not keys & {text.words for text, _ in found if " " in text.words}
    assert not [node.value for node, name in nodes if isinstance(node, ast.Constant) and node.value in labels(name)]


@pytest.mark.parametrize("language", LANGUAGES)
@of_graded_notebooks
def test_the_key_passes_every_check(notebook, language):
    edition = translated(notebook, language)
    names = namespace(edition)
    assert not [check.name for check in edition.of_kind("check") if failure(check, names)[0]]


@pytest.mark.parametrize("language", LANGUAGES)
@of_graded_notebooks
def test_titles_stay_distinct_and_shapes_are_found(notebook, language):
    edition = translated(notebook, language)
    titles = [check.title for check in edition.of_kind("check")]
    assert len(set(titles)) == len(titles)
    assert shapes(edition) == shapes(notebook)


def verdicts(nb, notebook):
    submission = read_submission(to_text(nb).encode(), f"{notebook.name}.ipynb", COURSE)
    result = warm_judge().judge(submission)
    return [(v.check, v.points, v.mistake) for v in result.checks], submission


@pytest.mark.parametrize("language", IN_FULL)
@of_graded_notebooks
def test_a_hand_in_of_either_language_is_graded_alike(notebook, language):
    edition = translated(notebook, language)
    for build in (answered, lambda nb: learner_notebook(answer_key(nb))):
        expected, _ = verdicts(build(notebook), notebook)
        found, submission = verdicts(build(edition), notebook)
        assert found == expected and submission.notebook == edition
        assert not submission.notes


def test_a_mistake_is_named_in_either_language():
    notebook = COURSE[0]
    wrong = next(version for version in versions(notebook.name) if version.wrong)
    found = [verdicts(answered(nb, {wrong.exercise: wrong.source}), notebook)[0] for nb in (notebook, translated(notebook, BRACKETS))]
    assert found[0] == found[1] and wrong.name in {mistake for *_, mistake in found[0]}


@of_graded_notebooks
def test_a_hand_in_that_lost_all_metadata_is_recognised_by_its_words(notebook):
    file = json.loads(to_text(answered(translated(notebook, BRACKETS))))
    without_metadata(file)
    submission = read_submission(json.dumps(file).encode(), "answers.ipynb", COURSE)
    assert submission.notebook.language == BRACKETS
    assert not [cell for cell in submission.cells if cell.kind == "extra"]


def test_the_notebook_speaks_its_language():
    notebook = translated(COURSE[0], BRACKETS)
    names = {"text": ""}
    exec(feedback_text(notebook), names)
    feedback = names["feedback"]
    assert all(title.startswith("「") for title in feedback.checks)
    assert all(words.startswith("「") for told in feedback.mistakes.values() for words in told)
    assert names["meaning"]("IndexError", "list index out of range").startswith("「An index points outside")
    assert names["sentences"](list(feedback.mistakes)[:1], True, feedback.mistakes)[0].startswith("「It looks like this:」 「")
    cells = learner_notebook(answer_key(notebook)).cells
    english = [cell.id for cell in cells if cell.cell_type == "markdown" and "「" not in cell.source and "YOUR ANSWER" not in cell.source]
    assert set(english) <= {
        cell.id for cell in learner_notebook(answer_key(COURSE[0])).cells if "```" in cell.source or "$$" in cell.source
    }


CODE = {
    'print("one two")': 'print("「one two」")',
    "print(f'one {x[\"k l\"]!r:>{w}} {{b}}')": "print(f'「one {x[\"k l\"]!r:>{w}} {{b}}」')",
    'x = ("one \\"two\\" "\n  f"three {d} \\\\ {{\\n")': 'x = (f"「one \\"two\\" three {d} \\\\ {{」\\n")',
    'assert x, "word"': 'assert x, "「word」"',
    'x = "word"': 'x = "word"',
    'x["two words"] = "lower left"': 'x["「two words」"] = "「lower left」"',
    'plot(x, loc="lower left", label="word")': 'plot(x, loc="lower left", label="「word」")',
    'x = {("one two", "three four"): "five six"}': 'x = {("one two", "three four"): "「five six」"}',
    "# a title\n# a remark\n# of two lines\nx = 1  # more": "# 「a title」\n# 「a remark\n# of two lines」\nx = 1  # 「more」",
    'def f():\n    """Does it.\n\n    Well.\n    """': 'def f():\n    """「Does it.\n\n    Well.」\n    """',
    'é = "a"; print("ü ö ßü")': 'é = "a"; print("「ü ö ßü」")',
    'x = "<answer>one two</answer>"': 'x = "<answer>one two</answer>"',
    "print(f'  {x or \"none\"}')": "print(f'  「{x or \"none\"}」')",
    "print(f'  {x[\"key\"]}')": "print(f'  {x[\"key\"]}')",
    'x = {"label": 1, "key": 2}': 'x = {"「label」": 1, "key": 2}',
}


@pytest.mark.parametrize("source", CODE)
def test_which_texts_a_cell_of_code_has(source):
    assert replaced(source, list(of_code(source, labels=["label"])), in_brackets) == CODE[source]


@pytest.mark.parametrize("words", ["eins", "{y}", "{x} {x}", "{x", "{x['b']}"])
def test_a_translation_that_would_change_code_is_refused(words):
    source = "print(f'one {x}')" if "[" not in words else "print(f\"one {x['a']}\")"
    with pytest.raises(ValueError, match="other code in its braces"):
        replaced(source, list(of_code(source)), lambda _: words)


MARKDOWN = {
    "# One\nTwo\nthree": "# 「One」\n「Two three」",
    "- one\n  more\n- two\n1. three": "- 「one more」\n- 「two」\n1. 「three」",
    "| a | one word |\n|---|---|\n| `x` | $y$ |": "| 「a | one word」 |\n|---|---|\n| `x` | $y$ |",
    "$$a = \\text{one}$$\n\n```text\none\n\ntwo\n```\nthree": "$$a = \\text{one}$$\n\n```text\none\n\ntwo\n```\n「three」",
    "<details><summary>A hint</summary>\n\nOne.\n\n</details>": "<details><summary>「A hint」</summary>\n\n「One.」\n\n</details>",
}


@pytest.mark.parametrize("source", MARKDOWN)
def test_which_texts_prose_has(source):
    assert replaced(source, texts(Cell("text", "", source, markdown=True)), in_brackets) == MARKDOWN[source]


@of_notebooks
def test_a_label_finds_back_to_its_english(notebook):
    for cell in notebook.of_kind("given", "show"):
        for text in of_code(cell.source, comments=False, labels=labels(cell.name)):
            pattern, english = way_back(text.words, in_brackets(text.words), text.formatted)

            def ran(words, formatted=text.formatted):
                for i, field in enumerate(fields(words) if formatted else ()):
                    words = words.replace(field, f"<{i}>", 1)
                return words.replace("{{", "{").replace("}}", "}") if formatted else words

            assert re.sub(pattern, english, ran(in_brackets(text.words)), flags=re.DOTALL) == ran(text.words)


def test_a_label_whose_fields_change_their_order_finds_back():
    pattern, english = way_back("{a} of {b!r}", "{b!r} 中的 {a}", formatted=True)
    assert re.fullmatch(pattern, "7 中的 3") and english == r"\g<2> of \g<1>"


@pytest.fixture
def pictures_as_they_were():
    with pytest.MonkeyPatch.context() as patch, plt.rc_context():
        patch.setattr(pictures.Text, "set_text", pictures.Text.set_text)
        patch.setattr(pictures.Text, "set_text_plainly", pictures.Text.set_text, raising=False)
        yield patch


OWN = [font for font in font_manager.fontManager.ttflist if font.name == "DejaVu Sans"]
TABLE = [[*way_back("share of {x}", "{x} 的份额", True)], [*way_back("tokens", "词元", False)]]


def machine_with(patch, fonts, letters, new={}):
    """A machine where matplotlib knows its own font and these, with these letters. new: file -> font, installed since its first start."""
    own, manager = pictures.characters, font_manager.fontManager
    patch.setattr(manager, "ttflist", OWN + fonts)
    patch.setattr(manager, "addfont", lambda file: manager.ttflist.append(new[file]), raising=False)
    patch.setattr(font_manager, "findSystemFonts", lambda: [font.fname for font in OWN + fonts] + list(new))
    patch.setattr(pictures, "characters", lambda file: letters.get(file) or own(file))


def test_where_no_font_has_the_letters_labels_are_english(pictures_as_they_were):
    a_box_for_each = font_manager.FontEntry(fname="Boxes", name="Last Resort High-Efficiency", style="normal", weight=400)
    machine_with(pictures_as_they_were, [a_box_for_each], {"Boxes": set(range(0x110000))})
    for _ in range(2):  # a cell may be run twice
        pictures.draw("词元的份额", TABLE)
    figure, axes = plt.subplots()
    axes.set(xlabel="词元", title="答案 的份额 (词元)")
    assert axes.get_xlabel() == "tokens" and axes.get_title() == "share of 答案 (tokens)"
    plt.close(figure)


@pytest.mark.parametrize("installed_since", [False, True])
def test_where_a_font_has_the_letters_labels_stay(pictures_as_they_were, installed_since):
    entries = [font_manager.FontEntry(fname=name, name=name, style="normal", weight=400) for name in ("Half", "Whole Sans")]
    known = {"Half": {ord("词")}, "Whole Sans": set(map(ord, "词元"))}
    machine_with(pictures_as_they_were, entries[: 2 - installed_since], known, new={"Whole Sans": entries[1]} if installed_since else {})
    pictures.draw("词元", TABLE)
    assert plt.rcParams["font.family"] == ["DejaVu Sans", "Whole Sans"]
    figure, axes = plt.subplots()
    axes.set(xlabel="词元")
    assert axes.get_xlabel() == "词元"
    plt.close(figure)


def test_letters_that_matplotlibs_own_font_has_need_no_other():
    assert pictures.font_with("ñжλ") == ""


def test_a_text_that_changed_keeps_its_translation_marked_fuzzy(tmp_path):
    (tmp_path / "eo").mkdir()
    path = tmp_path / "eo/01_words.po"

    def update(*paragraphs):
        notebook = Notebook("01_words", (Cell("text", "", "\n\n".join(paragraphs), markdown=True),))
        ((_, text),) = [item for item in catalogues.updated([notebook], tmp_path) if item[0] == path]
        path.write_text(text, encoding="utf-8")
        return translation.read_catalogue(path), catalogues.templates([notebook])["01_words"]

    def translate(catalogue):
        for message in catalogue:
            message.string = message.id and in_brackets(message.id)
            message.flags.discard("fuzzy")
        path.write_text(catalogues.to_text(catalogue), encoding="utf-8")

    first, second = "An advantage says more or less of this answer.", "The policy moves several steps on the same batch."
    catalogue, template = update(first, second)
    assert list(catalogues.open_texts(catalogue, template)) == [("missing", first), ("missing", second)]
    translate(catalogue)
    before = path.read_text(encoding="utf-8")
    assert not list(catalogues.open_texts(*update(first, second))) and path.read_text(encoding="utf-8") == before
    changed = second.replace("several", "many")
    catalogue, template = update("Something new stands here, unlike all else: 1, 2, 3.", changed)
    assert set(catalogues.open_texts(catalogue, template)) == {
        ("missing", "Something new stands here, unlike all else: 1, 2, 3."),
        ("fuzzy", changed),
        ("obsolete", first),
    }
    assert catalogue[changed].string == in_brackets(second) and f'#| msgid "{second}"' in path.read_text(encoding="utf-8")
