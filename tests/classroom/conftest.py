"""What most tests of a class begin with."""

import pytest

from grader.classroom.commands import new
from tests.classroom.toy import toy_course


@pytest.fixture(scope="session")
def course(tmp_path_factory):
    return toy_course(tmp_path_factory.mktemp("course"))


@pytest.fixture(scope="session")
def empty(course, tmp_path_factory):
    """A class without hand-ins, which takes seconds to make; for tests that change nothing, or change a copy."""
    directory = tmp_path_factory.mktemp("classes") / "autumn"
    new(directory, course, say=lambda line: None)
    return directory
