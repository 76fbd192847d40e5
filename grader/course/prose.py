"""What a notebook's own text offers to somebody who is stuck: its hints in steps, and the shapes of the arguments."""

from __future__ import annotations

import re

from grader.course.source import Notebook
from grader.course.translation import translator

DETAILS = re.compile(r'<details(?: data-checks="([\w ]+)")?><summary>.*?</summary>(.*?)</details>', re.DOTALL)
READ, THEN, ABOVE = "Where to read: {where}.", ", then ", "the text above"
ARGUMENT = re.compile(r"^\| (.+?) \| .*?`(\[[^\]]*\])`.*? \|", re.MULTILINE)


def hints(notebook: Notebook) -> dict[str, tuple[list[tuple[str, str]], str]]:
    """Exercise -> the ideas of its text, each after the checks it is for ("": all of them), and the place where to read."""
    say = translator(notebook.language, notebook.name)
    found, prose = {}, ""
    for exercise in notebook.exercises:
        prose += exercise.prose + "\n"
        ideas = [(checks, plain(idea)) for checks, idea in DETAILS.findall(exercise.prose)]
        *above, (depth, own) = re.findall(r"^(##+) (.+)$", prose, re.MULTILINE) or [("", say(ABOVE))]
        section = [heading for marks, heading in above if len(marks) < len(depth)][-1:]
        where = say(THEN).join(f"“{re.sub(r' ?[(（].*', '', plain(heading.replace('`', '')))}”" for heading in [*section, own])
        found[exercise.name] = ideas, say(READ).format(where=where)
    return found


def plain(text: str) -> str:
    """A text on one line, its formulas in plain characters: $\\frac{1}{G} A_{t+1}$ becomes (1) / (G) A_(t+1)."""
    for formula in re.findall(r"\$[^$`]+\$", text):
        words = re.sub(r"\\frac\{(.*?)\}\{(.*?)\}", r"(\1) / (\2)", formula.strip("$").replace(r"\dots", "..."))
        text = text.replace(formula, re.sub(r"\\([a-z]*)", r"\1", words).translate(str.maketrans("{}", "()")))
    return " ".join(text.split())


def shapes(notebook: Notebook) -> dict[str, dict[str, str]]:
    """Exercise -> argument -> its shape as the text gives it, such as "[N, T]"."""
    return {
        exercise.name: {name: shape for names, shape in ARGUMENT.findall(exercise.prose) for name in re.findall(r"`(\w+)`", names)}
        for exercise in notebook.exercises
    }
