"""What most tests of a class begin with."""

import pytest

from tests.classroom.toy import toy_course


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    return toy_course(tmp_path_factory.mktemp("course"))
