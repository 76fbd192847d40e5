"""The HTML pages of a class: the one a learner gets back, and the report on all of them. Each needs nothing but itself."""

from __future__ import annotations

import functools
import io
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import mistune
from markupsafe import Markup
from nbformat import NotebookNode

from grader.classroom.exports import Ungraded
from grader.classroom.gradebook import Marks
from grader.classroom.similarity import alike
from grader.course.metadata import identity
from grader.course.source import Notebook
from grader.judge.verdict import Result
from grader.mistakes import versions


@functools.cache
def _template(name: str) -> jinja2.Template:
    loader = jinja2.FileSystemLoader(Path(__file__).with_name("templates"))
    return jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True).get_template(name)


def feedback_page(nb: NotebookNode, student: str, marks: Marks) -> str:
    """The page of a learner: points, what each check says, their own code, and what a person wrote. No source of a test is on it.

    nb: the autograded notebook.
    """
    title, question, exercise = "", "", ""
    exercises: dict[str, dict[str, Any]] = {}
    written = []
    for cell in nb.cells:
        known = identity(cell)
        if known.kind == "text" and not title:
            title = _first_line(cell)
        if known.kind in ("solution", "bring"):
            exercise = known.name
        if known.kind == "solution" or (known.graded and not known.written):
            own = exercises.setdefault(exercise, {"name": exercise, "checks": [], "code": []})
            if known.kind == "solution":
                own["code"].append(cell.source)
            else:
                errors = [output.traceback for output in cell.outputs if output.output_type == "error"]
                failed = ["\n".join(lines[1:] or lines) for lines in errors]
                score = marks.scores[known.name]
                own["checks"].append({"title": _first_line(cell).rstrip(". "), "score": score, "points": known.points, "failed": failed})
        if known.written:
            facts = {"name": known.name, "text": cell.source, "points": known.points, "score": marks.scores[known.name]}
            written.append(facts | {"question": Markup(mistune.html(question))})
        if cell.cell_type == "markdown":
            question = cell.source
    points = {known.name: known.points for cell in nb.cells if (known := identity(cell)).graded}
    waiting = sum(value for name, value in points.items() if marks.scores[name] is None)
    return _template("feedback.html").render(
        title=title,
        student=student,
        marks=marks,
        read=sum(points.values()) - waiting,
        waiting=waiting,
        notes=nb.metadata.grader.notes,
        exercises=exercises.values(),
        written=written,
    )


def _first_line(cell: NotebookNode) -> str:
    return cell.source.split("\n", 1)[0].lstrip("# ")


@dataclass(frozen=True)
class Graded:
    """One hand-in as a report sees it. score: as the gradebook has it. code: the learner's own cells."""

    student: str
    score: float
    result: Result
    code: list[str]


def report_page(title: str, graded: Mapping[str, Sequence[Graded]], notebooks: Sequence[Notebook], ungraded: Sequence[Ungraded]) -> str:
    """A class at a glance. graded: by notebook."""
    return _template("report.html").render(
        title=title,
        total=sum(map(len, graded.values())),
        notebooks=[_of_notebook(notebook, graded[notebook.name]) for notebook in notebooks if graded.get(notebook.name)],
        ungraded=sorted(ungraded),
    )


def _of_notebook(notebook: Notebook, graded: Sequence[Graded]) -> dict[str, Any]:
    maximum = sum(cell.points for cell in notebook.of_kind("check", "answer"))
    scores = [hand_in.score for hand_in in graded]
    passed = Counter(verdict.check for hand_in in graded for verdict in hand_in.result.checks if verdict.passed)
    given = [cell.source.partition("### BEGIN")[0] for cell in notebook.of_kind("solution")]
    return {
        "title": notebook.title,
        "count": len(graded),
        "mean": sum(scores) / len(scores),
        "maximum": maximum,
        "histogram": Markup(_histogram(scores, maximum)),
        "rates": [(check.exercise, check.title, passed[check.name] / len(graded)) for check in notebook.of_kind("check")],
        "mistakes": _mistakes(notebook, graded),
        "alike": [(pair.one, pair.other, f"{pair.share:.0%}") for pair in alike({h.student: h.code for h in graded}, given)],
    }


def _mistakes(notebook: Notebook, graded: Sequence[Graded]) -> list[tuple[int, str, str]]:
    """Each mistake once a hand-in, the most frequent first."""
    told = {version.name: version.summary for version in versions(notebook.name)}
    found = Counter(named for hand_in in graded for named in {(v.exercise, v.mistake) for v in hand_in.result.checks if v.mistake})
    return [(count, exercise, f"{told.get(name, '')} [{name}]") for (exercise, name), count in found.most_common()]


def _histogram(scores: Sequence[float], maximum: float) -> str:
    """A picture of how many hand-ins have how many points, as SVG."""
    import matplotlib  # here, since it is slow to come and grading draws nothing
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(8, 2.6), layout="constrained")
    axes = figure.subplots()
    axes.hist(scores, bins=[i - 0.5 for i in range(int(maximum) + 2)], color="#0072B2")
    axes.set(xlabel="points", ylabel="hand-ins", xlim=(-0.7, maximum + 0.7))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(integer=True))
    axes.spines[["top", "right"]].set_visible(False)
    text = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": "grader", "svg.fonttype": "none"}):
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    return text.getvalue()[text.getvalue().index("<svg") :]
