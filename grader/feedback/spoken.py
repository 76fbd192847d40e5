"""What grading says, in a learner's language.

The judge speaks English. Each of its sentences is found again by the pattern that its source gives, and said as the catalogues say it;
what is in none stays as it is, such as a learner's own words that do not read like one. So nothing that judges has to know of
languages.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable

from grader.course.texts import fields, way_back
from grader.course.translation import COMMON, GRADING, MISTAKES, entries

BEGINS = 8  # characters of a text at least that is looked for at the start of a line, too
DEEPEST = 8  # sentences in or behind one another that are looked for; a learner's own words may look like any number of them


@functools.cache
def speaker(language: str, name: str) -> Callable[[str], str]:
    """What grading says of a notebook, its lines one by one -> the same in a language ("": as it is)."""
    if not language:
        return lambda text: text
    whole: dict[str, str] = {}
    patterns: list[tuple[int, re.Pattern[str], list[str]]] = []
    for catalogue in (COMMON, GRADING, name + MISTAKES):
        for words, translation, formatted in entries(language, catalogue):
            if formatted:
                pattern, put = way_back(translation, words, True)
                plain = len(words) - sum(map(len, fields(words)))
                first, *middle, last = pattern.split("(.*?)")  # the first place is the right one; to try all others takes seconds
                pattern = first + "".join(f"(?>(.*?){part})" for part in middle) + "(.*)" + last
                patterns.append((plain, re.compile(pattern, re.IGNORECASE), re.split(r"\\g<(\d+)>", put)))
            else:
                whole |= {words: translation, words[0].upper() + words[1:]: translation}  # some begin a sentence
    patterns.sort(key=lambda entry: -entry[0])  # what says more is tried first
    begins = sorted((words for words in whole if len(words) >= BEGINS), key=len, reverse=True)

    def sentence(words: str, deep: int) -> str:
        """One that is known, else "". What stands in its fields may be known as well."""
        if words in whole:
            return whole[words]
        for _, pattern, parts in patterns:
            if match := pattern.fullmatch(words):
                return "".join(said(match[int(part)], deep + 1) if i % 2 else part.replace(r"\\", "\\") for i, part in enumerate(parts))
        return ""

    def said(words: str, deep: int = 0) -> str:
        if deep == DEEPEST:
            return words
        if told := sentence(words, deep):
            return told
        if words.endswith(".") and (told := sentence(words[:-1], deep)):
            return told + whole["."]
        start = next((start for start in begins if words.startswith(start)), "")
        return whole[start] + said(words[len(start) :], deep + 1) if start else words

    def of_lines(text: str) -> str:
        return "\n".join(line[: len(line) - len(line.lstrip())] + said(line.lstrip()) for line in text.split("\n"))

    return of_lines
