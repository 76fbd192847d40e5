"""The page a learner gets back: points, what each check says, their own code, and what a person wrote."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Any

import mistune
from nbconvert.exporters import Exporter
from nbformat import NotebookNode
from traitlets import default

STYLE = """
:root { color-scheme: light dark; --line: #8884; --good: #00795a; --bad: #b34700; --wait: #0072b2 }
@media (prefers-color-scheme: dark) { :root { --good: #35c79a; --bad: #ff9a4d; --wait: #6bb8ee } }
body { max-width: 52rem; margin: 2rem auto; padding: 0 1rem; font: 1rem/1.5 system-ui, sans-serif }
h2 { margin: 2.2rem 0 .4rem; padding-top: .8rem; border-top: 1px solid var(--line); font-size: 1.15rem }
.points { float: right; font-variant-numeric: tabular-nums }
.check { margin: .5rem 0; padding-left: 1.6rem; text-indent: -1.6rem }
.good { color: var(--good) } .bad { color: var(--bad) } .wait { color: var(--wait) }
.message, .text { margin: .2rem 0 .6rem 1.6rem; white-space: pre-wrap; overflow-wrap: anywhere }
.person { margin: .6rem 0; padding: .5rem 1rem; border-left: .25rem solid var(--wait); white-space: pre-wrap }
pre { overflow-x: auto; padding: .7rem; border: 1px solid var(--line); border-radius: .3rem; font-size: .85rem }
summary { cursor: pointer }
"""


class FeedbackPage(Exporter):
    """An autograded notebook, its marks put in by nbgrader -> one HTML page. No source of a test is on it."""

    @default("file_extension")
    def _file_extension_default(self) -> str:
        return ".html"

    def from_notebook_node(self, nb: NotebookNode, resources: dict[str, Any] | None = None, **kw: Any) -> tuple[str, dict[str, Any]]:
        nb, resources = super().from_notebook_node(nb, resources, **kw)
        return page(nb, resources["nbgrader"]), resources


def page(nb: NotebookNode, facts: dict[str, Any]) -> str:
    """facts: nbgrader's `student`, `notebook` and `late_penalty`."""
    title = nb.cells[0].source.split("\n", 1)[0].lstrip("# ") if nb.cells else facts["notebook"]
    body = "\n".join([*_head(nb, facts), *_exercises(nb), *_written(nb)])
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>\n<body><h1>{escape(title)}</h1>\n{body}\n</body></html>\n"
    )


def _head(nb: NotebookNode, facts: dict[str, Any]) -> Iterator[str]:
    marks = [cell.metadata.nbgrader for cell in nb.cells if cell.metadata.get("nbgrader", {}).get("grade")]
    given = [mark for mark in marks if mark["score"] is not None]
    penalty = facts.get("late_penalty") or 0
    score = _of(max(0, sum(mark["score"] for mark in given) - penalty), sum(mark["points"] for mark in given))
    yield f"<p>{escape(facts['student'])}: <strong>{score} points</strong></p>"
    if penalty:
        yield f'<p class="bad">{penalty:g} points were taken off because the hand-in was late.</p>'
    if waiting := sum(mark["points"] for mark in marks if mark["score"] is None):
        yield f'<p class="wait">{waiting:g} more points are for written answers, which a person reads.</p>'
    for note in nb.metadata.get("grader", {}).get("notes", []):
        yield f"<p>{escape(note)}</p>"


def _exercises(nb: NotebookNode) -> Iterator[str]:
    answers = [cell for cell in nb.cells if cell.metadata.get("grader", {}).get("kind") == "solution"]
    checks: dict[str, list[NotebookNode]] = {cell.metadata.grader.name: [] for cell in answers}
    exercise = ""
    for cell in nb.cells:
        kind, marks = cell.metadata.get("grader", {}).get("kind"), cell.metadata.get("nbgrader", {})
        if kind in ("solution", "bring"):
            exercise = cell.metadata.grader.name
        elif marks.get("grade") and not marks.get("solution"):
            checks.setdefault(exercise, []).append(cell)
    for exercise, cells in checks.items():
        score = _of(sum(cell.metadata.nbgrader.score for cell in cells), sum(cell.metadata.nbgrader.points for cell in cells))
        yield f'<h2><span class="points">{score}</span><code>{exercise}</code></h2>'
        for cell in cells:
            yield from _check(cell)
        for answer in answers:
            if answer.metadata.grader.name == exercise:
                yield f"<details><summary>Your code</summary><pre>{escape(answer.source)}</pre></details>"
                yield from _comment(answer)


def _check(cell: NotebookNode) -> Iterator[str]:
    marks = cell.metadata.nbgrader
    errors = [output for output in cell.outputs if output.output_type == "error"]
    mark, kind = ("✗", "bad") if errors else ("✓", "good")
    title = cell.source.split("\n", 1)[0].lstrip("# ").rstrip(". ")
    yield f'<div class="check {kind}"><span class="points">{_of(marks.score, marks.points)}</span>{mark} {escape(title)}</div>'
    for output in errors:
        yield f'<div class="message">{escape(chr(10).join(output.traceback[1:] or output.traceback))}</div>'


def _written(nb: NotebookNode) -> Iterator[str]:
    before = ""
    for cell in nb.cells:
        marks = cell.metadata.get("nbgrader", {})
        if marks.get("grade") and marks.get("solution"):
            waits = marks.score is None
            points = f"{marks.points:g} points, not read yet" if waits else _of(marks.score, marks.points)
            yield f'<h2><span class="points{" wait" if waits else ""}">{points}</span>Written answer</h2>'
            yield f'{mistune.html(before)}<div class="text">{escape(cell.source)}</div>'
            yield from _comment(cell)
        if cell.cell_type == "markdown":
            before = cell.source


def _comment(cell: NotebookNode) -> Iterator[str]:
    if comment := cell.metadata.nbgrader.get("comment"):
        yield f'<div class="person">{escape(comment)}</div>'


def _of(points: float, total: float) -> str:
    return f"{points:g} of {total:g}"
