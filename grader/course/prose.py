"""What a notebook's own text offers to somebody who is stuck: its hints in steps, and the shapes of the arguments."""

from __future__ import annotations

import re

from grader.course.source import Notebook

DETAILS = re.compile(r'<details(?: data-checks="([\w ]+)")?><summary>.*?</summary>(.*?)</details>', re.DOTALL)
ARGUMENT = re.compile(r"^\| (.+?) \| .*?`(\[[^\]]*\])`.*? \|", re.MULTILINE)


def hints(notebook: Notebook) -> dict[str, tuple[list[tuple[str, str]], str]]:
    """Exercise -> the ideas of its text, each after the checks it is for ("": all of them), and the place where to read."""
    return {exercise.name: (_ideas(exercise.prose), _where(exercise.prose)) for exercise in notebook.exercises}


def shapes(notebook: Notebook) -> dict[str, dict[str, str]]:
    """Exercise -> argument -> its shape as the text gives it, such as "[N, T]"."""
    return {exercise.name: _shapes(exercise.prose) for exercise in notebook.exercises}


def _shapes(prose: str) -> dict[str, str]:
    return {name: shape for names, shape in ARGUMENT.findall(prose) for name in re.findall(r"`(\w+)`", names)}


def _ideas(prose: str) -> list[tuple[str, str]]:
    return [(checks, " ".join(idea.split())) for checks, idea in DETAILS.findall(prose)]


def _where(prose: str) -> str:
    """The sections that lead to the exercise, the exercise's own heading last."""
    headings = re.findall(r"^##+ (.+)$", prose, re.MULTILINE)[-2:]
    return "Where to read: " + ", then ".join(f"“{heading.replace('`', '')}”" for heading in headings) + "."
