"""A class at a glance: one HTML page that needs nothing else."""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from grader.classroom.gradebook import Ungraded
from grader.classroom.similarity import alike
from grader.course.source import Notebook
from grader.mistakes import versions

BLUE = "#0072B2"
STYLE = """
body { max-width: 62rem; margin: 2rem auto; padding: 0 1rem; font: 1rem/1.5 system-ui, sans-serif; color: #222; background: #fff }
h2 { margin-top: 2.5rem; border-bottom: 1px solid #ccc }
table { border-collapse: collapse; margin: .6rem 0 1.4rem }
th, td { padding: .2rem .9rem .2rem 0; text-align: left; vertical-align: top; border-bottom: 1px solid #eee }
td.n { text-align: right; font-variant-numeric: tabular-nums }
td.bar { width: 10rem } td.bar i { display: block; height: .8rem; margin-top: .35rem; background: #E69F00 }
svg { max-width: 100%; height: auto }
"""


@dataclass(frozen=True)
class Graded:
    """One hand-in as a report sees it. score: as the gradebook has it. result: the judge's, as JSON. code: the learner's own cells."""

    student: str
    score: float
    result: dict[str, Any]
    code: list[str]


def page(title: str, graded: dict[str, list[Graded]], notebooks: Sequence[Notebook], ungraded: Sequence[Ungraded]) -> str:
    """The page. graded: by notebook."""
    total = sum(map(len, graded.values()))
    body = [f"<p>{total} hand-ins graded, {len(ungraded)} not.</p>"]
    for notebook in notebooks:
        if graded.get(notebook.name):
            body += _notebook(notebook, graded[notebook.name])
    if ungraded:
        body.append("<h2>Not graded</h2>")
        body.append(_table(("student", "notebook", "why"), sorted(ungraded)))
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>\n<body><h1>{escape(title)}</h1>\n"
        + "\n".join(body)
        + "\n</body></html>\n"
    )


def _notebook(notebook: Notebook, graded: list[Graded]) -> Iterator[str]:
    yield f"<h2>{escape(notebook.title)}</h2>"
    mean = sum(hand_in.score for hand_in in graded) / len(graded)
    maximum = sum(cell.points for cell in notebook.of_kind("check", "answer"))
    yield f"<p>{len(graded)} hand-ins, {mean:.1f} of {maximum:g} points on average (written answers count once they are read).</p>"
    yield _scores([hand_in.score for hand_in in graded], maximum)
    checks = [verdict for verdict in graded[0].result["checks"] if verdict["points"] is not None]
    passed = Counter(v["check"] for hand_in in graded for v in hand_in.result["checks"] if v["passed"])
    rates = [(check["exercise"], check["title"], passed[check["check"]] / len(graded)) for check in checks]
    yield _rates(rates)
    for words, rate in (("Everybody passes", 1.0), ("Nobody passes", 0.0)):
        if same := [f"<li>{exercise}: {escape(title)}</li>" for exercise, title, share in rates if share == rate]:
            yield f"<p>{words}:</p><ul>{''.join(same)}</ul>"
    if rows := _mistakes(notebook, graded):
        yield "<h3>Mistakes by name</h3>"
        yield _table(("hand-ins", "exercise", "mistake"), rows)
    given = [cell.source.partition("### BEGIN")[0] for cell in notebook.of_kind("solution")]
    if pairs := alike({hand_in.student: hand_in.code for hand_in in graded}, given):
        yield "<h3>Nearly the same</h3><p>Given code, comments and the names of variables do not count, and what many wrote counts little. "
        yield "It says where to look, not what happened.</p>"
        yield _table(("one", "other", "alike"), [(pair.one, pair.other, f"{pair.share:.0%}") for pair in pairs])


def _mistakes(notebook: Notebook, graded: list[Graded]) -> list[tuple[object, ...]]:
    """Each mistake once a hand-in, the most frequent first."""
    told = {version.name: version.summary for version in versions(notebook.name)}
    found = Counter(
        mistake for hand_in in graded for mistake in {(v["exercise"], v["mistake"]) for v in hand_in.result["checks"] if v["mistake"]}
    )
    return [(count, exercise, f"{told.get(name, '')} [{name}]") for (exercise, name), count in found.most_common()]


def _scores(scores: list[float], maximum: float) -> str:
    figure = Figure(figsize=(8, 2.6), layout="constrained")
    axes = figure.subplots()
    axes.hist(scores, bins=[i - 0.5 for i in range(int(maximum) + 2)], color=BLUE)
    axes.set(xlabel="points", ylabel="hand-ins", xlim=(-0.7, maximum + 0.7))
    for axis in (axes.xaxis, axes.yaxis):
        axis.get_major_locator().set_params(integer=True)
    axes.spines[["top", "right"]].set_visible(False)
    text = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": "grader", "svg.fonttype": "none"}):
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    return text.getvalue()[text.getvalue().index("<svg") :]


def _rates(rates: list[tuple[str, str, float]]) -> str:
    rows = "".join(
        f"<tr><td><code>{exercise}</code></td><td>{escape(title)}</td>"
        f'<td class="bar"><i style="width: {rate:.1%}"></i></td><td class="n">{rate:.0%}</td></tr>'
        for exercise, title, rate in rates
    )
    return f"<table><tr><th>exercise</th><th>check</th><th colspan=2>hand-ins that pass</th></tr>{rows}</table>"


def _table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    head = "".join(f"<th>{escape(title)}</th>" for title in header)
    body = "".join(f"<tr>{''.join(map(_field, row))}</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def _field(value: object) -> str:
    return f'<td class="n">{value}</td>' if isinstance(value, int | float) else f"<td>{escape(str(value))}</td>"


def own_code(autograded: Path) -> list[str]:
    """The learner's own cells of code in an autograded notebook: answers and what was added."""
    cells = json.loads(autograded.read_text(encoding="utf-8"))["cells"]
    own = [c for c in cells if c["cell_type"] == "code" and c["metadata"].get("grader", {}).get("kind", "solution") == "solution"]
    return [source if isinstance(source := c["source"], str) else "".join(source) for c in own]
