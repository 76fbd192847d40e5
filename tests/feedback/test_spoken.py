"""What grading says is said in the language of the hand-in."""

import re

import pytest

from grader.course.texts import fields, kept_fields
from grader.course.translation import GRADING, entries, languages, translated
from grader.feedback.errors import meaning
from grader.feedback.naming import sentences
from grader.feedback.spoken import speaker
from grader.mistakes import versions
from tests.conftest import COURSE
from tests.judge.hands import hand_in, warm_judge

NOTEBOOK = COURSE[0]
of_languages = pytest.mark.parametrize("language", languages())
ENGLISH = re.compile(r"\b[a-z]{2,}(?: [a-z]{2,}){2,}\b")  # three words of it


def filled(words, fields_in_order):
    """An f-string's words with ‹a›, ‹b›, … in the place of the fields of its English."""
    for i, field in enumerate(fields_in_order):
        words = words.replace(field, f"‹{'abcdef'[i]}›", 1)
    return words


@of_languages
def test_every_sentence_of_the_judge_is_found_again(language):
    say = speaker(language, NOTEBOOK.name)
    for words, translation, formatted in entries(language, GRADING):
        assert not formatted or kept_fields(words) == kept_fields(translation)
        own = fields(words) if formatted else []
        assert say(filled(words, own)) == filled(translation, own)


@of_languages
def test_sentences_in_a_sentence_and_behind_it_are_said_too(language):
    say = speaker(language, NOTEBOOK.name)
    lines = ("Cell double did not finish in time; only what it defines was kept.", "  An added cell stopped with ZeroDivisionError: by 0.")
    spoken = say("\n".join(lines))
    assert not ENGLISH.search(spoken) and "double" in spoken and "ZeroDivisionError: by 0" in spoken and "\n  " in spoken
    version = next(v for v in versions(NOTEBOOK.name) if v.wrong)
    for sure in (True, False):
        (told,) = sentences(["it"], sure, {"it": (version.summary, version.hint)})
        assert not ENGLISH.search(say(told)) and say(told) != told
    for message in ("shape mismatch", "list index out of range"):  # a sentence, and one more about shapes
        told = meaning("IndexError", message, {"group_ids": "[N]", "x": "[N, T]"})
        assert told.count(". ") >= 1 and not ENGLISH.search(say(told))


@of_languages
def test_what_a_learner_wrote_stays_as_it_is(language):
    say = speaker(language, NOTEBOOK.name)
    for own in ("ValueError: only what I want; nothing else", "my tensors, numbers", r"a \d backslash \g<1>", "", "  \n\n", "双倍：x is y"):
        assert say(own) == own
    assert say(r"f raised ValueError: \g<2> and \1").endswith(r"ValueError: \g<2> and \1")


@of_languages
@pytest.mark.parametrize("words", ["cell ", "line ", "x raised ", 100 * " raised " + 160 * " (in "])
def test_words_that_look_like_hundreds_of_sentences_stay_what_they_are(language, words):
    """Where a pattern tries every way to split them, or a sentence is looked for in each, this takes minutes or ends in an error."""
    text = (6400 * words)[:6400]
    assert speaker(language, NOTEBOOK.name)(text).count("raised") >= text.count("raised") - 9


SLOW = "never comes back"
HEAD = "def group_advantages(rewards, group_ids, eps=1e-6):\n    "
ANSWERS = {
    "open": HEAD + "raise NotImplementedError()",
    "a set": HEAD + "return {1}",
    "a sparse tensor": HEAD + "import torch\n    return torch.eye(2).to_sparse()",
    "writes into its argument": HEAD + "rewards += 1\n    return rewards",
    "another shape": HEAD + "return rewards[:1].float() + rewards[None].float().T @ rewards[None, :2].float()",
    "an index": HEAD + "return [1][group_ids[0] + 99]",
    "in a helper": "def helper(x):\n    raise KeyError(x)\n\n\n" + HEAD + "return helper(1)",
    "a cell that failed": "import no_such_library\n" + HEAD + "return rewards",
    "ends the process": HEAD + "import os\n    os._exit(0)",
    SLOW: HEAD + "\n    while True:\n        pass",
    "nothing": HEAD + "return None",
    "a mistake": next(v.source for v in versions(NOTEBOOK.name) if v.name == "sample_std"),
}
OF_PYTHON = re.compile(r"(\w+Error|Exception): [^。（\n]*")  # and of torch: what it says of its own errors


@of_languages
@pytest.mark.parametrize("kind", [pytest.param(kind, marks=[pytest.mark.thorough] if kind == SLOW else []) for kind in ANSWERS])
def test_a_hand_in_is_told_in_its_language_what_is_wrong(language, kind):
    submission = hand_in(translated(NOTEBOOK, language), first="1 / 0", group_advantages=ANSWERS[kind])
    result = warm_judge(3).judge(submission)
    verdicts = [v for v in result.checks if v.exercise == "group_advantages"]
    assert not all(v.passed for v in verdicts) and [v.open for v in verdicts] == [kind == "open"] * len(verdicts)
    for told in (*(v.message for v in result.checks), *result.notes):
        assert not ENGLISH.search(OF_PYTHON.sub("", told)), told
    english = warm_judge(3).judge(hand_in(NOTEBOOK, first="1 / 0", group_advantages=ANSWERS[kind]))
    assert [(v.passed, v.mistake) for v in english.checks] == [(v.passed, v.mistake) for v in result.checks]
