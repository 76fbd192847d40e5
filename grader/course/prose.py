"""What a notebook's own text offers to somebody who is stuck: its hints in steps, and the shapes of the arguments."""

from __future__ import annotations

import re

from grader.course.source import Notebook

DETAILS = re.compile(r'<details(?: data-checks="([\w ]+)")?><summary>.*?</summary>(.*?)</details>', re.DOTALL)
ARGUMENT = re.compile(r"^\| (.+?) \| .*?`(\[[^\]]*\])`.*? \|", re.MULTILINE)


def hints(notebook: Notebook) -> dict[str, tuple[list[tuple[str, str]], str]]:
    """Exercise -> the ideas of its text, each after the checks it is for ("": all of them), and the place where to read."""
    found = {}
    for exercise in notebook.exercises:
        ideas = [(checks, " ".join(idea.split())) for checks, idea in DETAILS.findall(exercise.prose)]
        headings = re.findall(r"^##+ (.+)$", exercise.prose, re.MULTILINE)[-2:]  # of its section, and its own
        where = ", then ".join(f"“{heading.replace('`', '')}”" for heading in headings)
        found[exercise.name] = ideas, f"Where to read: {where}."
    return found


def shapes(notebook: Notebook) -> dict[str, dict[str, str]]:
    """Exercise -> argument -> its shape as the text gives it, such as "[N, T]"."""
    return {
        exercise.name: {name: shape for names, shape in ARGUMENT.findall(exercise.prose) for name in re.findall(r"`(\w+)`", names)}
        for exercise in notebook.exercises
    }
