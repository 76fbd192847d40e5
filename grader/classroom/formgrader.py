"""The formgrader's page of a hand-in, laid out for whoever reads it: what waits for a person first, what needs no look folded away."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nbconvert.filters.highlight import Highlight2HTML
from nbconvert.preprocessors import Preprocessor
from nbformat import NotebookNode
from nbgrader.coursedir import CourseDirectory
from traitlets.config import Config

from grader.classroom.autograding import OPEN, failure, read_master, title
from grader.classroom.markdown import rendered
from grader.classroom.pages import told_once
from grader.course.metadata import MACHINERY, identity
from grader.course.source import CourseError
from grader.intake.static_analysis import parsed

MAX_COLOURED = 20_000  # characters of a cell of code; colours take time, and nobody reads so much
AT_LINE_ENDS = re.compile(r"(?<![^\S\n])[^\S\n]+$", re.MULTILINE)


def configure_formgrader(c: Config) -> None:
    """Puts these pages into nbgrader's formgrader, whose exporter is the only one of the class HTMLExporter."""
    c.HTMLExporter.filters = {"markdown2html": rendered, "title": title, "coloured": coloured}
    c.HTMLExporter.preprocessors = [ForReading]
    c.HTMLExporter.extra_template_paths = [str(Path(__file__).with_name("templates"))]
    c.HTMLExporter.template_file = "formgrader.html"


def coloured(source: str) -> str:
    """The HTML of a cell of code. What is no Python has no colours: lexers take minutes over some of it, and over spaces at line ends."""
    if len(source) > MAX_COLOURED or parsed(source) is None:
        return f"<pre>{html.escape(source)}</pre>"
    return Highlight2HTML("python3")(AT_LINE_ENDS.sub("", source))


@dataclass
class Section:
    """A part of the page. failed: checks, and what to say of each. passed: checks, folded. model: what the key has for a written answer."""

    title: str
    is_open: bool
    cells: list[NotebookNode]
    failed: list[tuple[NotebookNode, str]] = field(default_factory=list)
    passed: list[NotebookNode] = field(default_factory=list)
    model: str = ""
    is_written: bool = False


class ForReading(Preprocessor):
    """Arranges an autograded notebook in sections: written answers, then exercises, then all that is the course's own."""

    def preprocess(self, nb: NotebookNode, resources: dict[str, Any]) -> tuple[NotebookNode, dict[str, Any]]:
        models = self._models(resources)
        written, exercises, rest = list[Section](), dict[str, list[NotebookNode]](), list[NotebookNode]()
        exercise = ""
        for cell in nb.cells:
            known = identity(cell)
            if known.kind == "solution":
                exercise = known.name
            if known.written or cell.metadata.get("nbgrader", {}).get("task"):
                question = [rest.pop()] if rest and rest[-1].cell_type == "markdown" else []
                cell.source = cell.source.strip() or "*Nothing was written.*"
                written.append(Section("Written answer", True, [*question, cell], model=models.get(known.name, ""), is_written=True))
            elif exercise and cell.cell_type == "code" and known.kind in ("", "solution", "check"):
                exercises.setdefault(exercise, []).append(cell)
            else:
                rest.append(cell)
        own = [cell for cell in rest if identity(cell).kind != MACHINERY]
        resources["sections"] = [
            *written,
            *(_of_exercise(name, cells) for name, cells in exercises.items()),
            Section(f"The rest of the notebook: {len(own)} cells", False, own),
        ]
        return nb, resources

    def _models(self, resources: Mapping[str, Any]) -> dict[str, str]:
        """Written answer -> what the class's source has in its place: a model answer and how points are given."""
        course = CourseDirectory(config=self.config)
        name = resources.get("notebook_id", "")
        try:
            source = Path(course.format_path(course.source_directory, ".", resources.get("assignment_id", "")), f"{name}.ipynb")
            return {answer.name: answer.source for answer in read_master(source).notebook.of_kind("answer")}
        except (CourseError, OSError):  # nothing to show beside the answer, which can be read all the same
            return {}


def _of_exercise(name: str, cells: list[NotebookNode]) -> Section:
    checks = [cell for cell in cells if identity(cell).graded]
    failed, passed = [check for check in checks if failure(check)], [check for check in checks if not failure(check)]
    told = list(zip(failed, told_once([failure(check) for check in failed]), strict=True))
    rest = [cell for cell in cells if cell not in checks]
    if not failed:
        return Section(f"✓ {name}: {len(checks)} of {len(checks)} checks pass", False, rest, [], passed)
    if all(output.get("ename") == OPEN for check in checks for output in check.outputs):
        return Section(f"✗ {name}: not written", False, rest, told)
    return Section(f"✗ {name}: {len(passed)} of {len(checks)} checks pass", True, rest, told, passed)
