"""nbgrader's own pipeline with the judge in it: the steps that a class's nbgrader_config.py puts in.

They are for `nbgrader autograde`, `nbgrader generate_feedback` and the formgrader's buttons, and call what `grader grade`
calls: ``Judge`` makes the autograded notebook of whatever was handed in, ``Enter`` writes the gradebook, ``FeedbackPage``
makes the learner's page. Nothing of the learner's runs in a kernel.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import bleach
from nbconvert.exporters import NotebookExporter
from nbconvert.exporters.exporter import Exporter, FilenameExtension
from nbconvert.filters import strip_files_prefix
from nbformat import NotebookNode
from nbformat.v4 import new_notebook
from nbgrader.preprocessors import ClearHiddenTests, NbGraderPreprocessor
from traitlets import Bool
from traitlets.config import Config

from grader.classroom.autograding import autograde, load_result
from grader.classroom.gradebook import ClassGradebook, handed_in, late_penalties
from grader.classroom.pages import feedback_page
from grader.intake.match import Unreadable

TAGS = bleach.ALLOWED_TAGS | {
    *("h1", "h2", "h3", "h4", "h5", "h6", "p", "br", "hr", "div", "span", "pre", "sub", "sup", "del", "dl", "dt", "dd"),
    *("img", "details", "summary", "table", "thead", "tbody", "tr", "th", "td"),
}


def configure(c: Config) -> None:
    """Puts the judge into nbgrader's pipeline: what a class's nbgrader_config.py calls."""
    c.Autograde.exporter_class = HandInExporter
    c.HTMLExporter.filters = {"strip_files_prefix": harmless}  # what the formgrader's template sends all Markdown through
    c.Exporter.optimistic_validation = True  # once a notebook, not once a step
    c.Autograde.sanitize_preprocessors = [Judge]
    c.Autograde.autograde_preprocessors = [Enter]
    c.CsvExportPlugin.to = "nbgrader-export.csv"  # not over the grades.csv of `grader grade`
    c.GenerateFeedback.exporter_class = FeedbackPage
    c.GenerateFeedback.preprocessors = [ClearHiddenTests]


def harmless(html: str) -> str:
    """HTML without scripts: the formgrader shows what learners wrote, in the browser of whoever gives the points."""
    return bleach.clean(strip_files_prefix(html), tags=TAGS, attributes={"*": ["class", "id"], "a": ["href"], "img": ["src", "alt"]})


class HandInExporter(NotebookExporter):
    """Leaves what was handed in to Judge: nbformat cannot read all that it mends, and takes gigabytes for some that it refuses."""

    def from_file(self, file_stream: Any, resources: Any = None, **kw: Any) -> tuple[Any, Any]:
        if any(isinstance(step, Judge) for step in self._preprocessors):
            return super().from_notebook_node(new_notebook(), resources, **kw)
        return super().from_file(file_stream, resources, **kw)


class Judge(NbGraderPreprocessor):
    """Whatever was handed in -> the autograded notebook. Raises Unreadable and JailError."""

    allow_no_jail = Bool(False, help="Grade even where this machine cannot lock a hand-in's code away.").tag(config=True)

    def preprocess(self, nb: NotebookNode, resources: dict[str, Any]) -> tuple[NotebookNode, dict[str, Any]]:
        course, ids = _course(self), resources["nbgrader"]
        path = Path(resources["metadata"]["path"], resources["metadata"]["name"] + ".ipynb")
        source = Path(course.format_path(course.source_directory, ".", ids["assignment"]), ids["notebook"] + ".ipynb")
        try:
            _, autograded = autograde(path, source, _results(course), allow_no_jail=self.allow_no_jail)
        except Unreadable:
            with ClassGradebook(ids["db_url"]) as gradebook:
                gradebook.withdraw(ids["assignment"], ids["student"])
            raise  # blank, not the 0 that nbgrader has just written down
        return autograded, resources


class Enter(NbGraderPreprocessor):
    """Writes what the judge says of an autograded notebook into the gradebook. Raises NotEnteredError."""

    def preprocess(self, nb: NotebookNode, resources: dict[str, Any]) -> tuple[NotebookNode, dict[str, Any]]:
        course, ids = _course(self), resources["nbgrader"]
        result = load_result(_results(course) / f"{nb.metadata.grader.result}.json")
        assert result  # Judge has just kept it
        with ClassGradebook(ids["db_url"]) as gradebook:
            when = handed_in(Path(course.format_path(course.submitted_directory, ids["student"], ids["assignment"])))
            gradebook.enter(ids["assignment"], ids["student"], nb, result, late_penalties(self.config), when)
        return nb, resources


class FeedbackPage(Exporter):
    """An autograded notebook -> the learner's page, with the marks that the gradebook has."""

    file_extension = FilenameExtension(".html")

    def from_notebook_node(self, nb: NotebookNode, resources: Any = None, **kw: Any) -> tuple[Any, Any]:
        nb, resources = super().from_notebook_node(nb, resources, **kw)
        ids = resources["nbgrader"]
        with ClassGradebook(ids["db_url"]) as gradebook:
            marks = gradebook.marks(ids["student"])[ids["student"], ids["assignment"]]
        return feedback_page(nb, ids["student"], marks), resources


def _course(step: NbGraderPreprocessor) -> Any:
    return step.parent.parent.coursedir


def _results(course: Any) -> Path:
    return Path(course.root, ".grader", "results")
