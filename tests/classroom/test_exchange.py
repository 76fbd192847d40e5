"""nbgrader's exchange, as a JupyterHub has it: released, fetched, submitted, collected, graded, and the feedback back again."""

import shutil
from datetime import datetime, timedelta

import pytest
from nbgrader.api import Gradebook
from nbgrader.apps import NbGraderAPI
from nbgrader.auth import Authenticator
from nbgrader.coursedir import CourseDirectory
from nbgrader.exchange import ExchangeFactory
from traitlets.config import Config, PyFileConfigLoader

from grader.classroom.commands import grade, new
from tests.classroom.toy import hand_in_bytes, judge_here, toy_course

NAME = "01_double"


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    return toy_course(tmp_path_factory.mktemp("course"))


class Hub:
    """An exchange, a class and the homes of students, on one disk."""

    def __init__(self, root, course):
        self.root, self.cls = root, root / "autumn 2026"
        (root / "exchange").mkdir()
        (root / "exchange").chmod(0o777)
        new(self.cls, course, say=lambda line: None)
        config = PyFileConfigLoader("nbgrader_config.py", path=str(self.cls)).load_config()
        self.course_id = config.CourseDirectory.course_id
        self.exchange = Config({"Exchange": {"root": str(root / "exchange")}})
        config.merge(self.exchange)
        config.ExchangeCollect.check_owner = False  # one user is everybody here
        self.instructor = NbGraderAPI(config=config)

    def student(self, name, step):
        """One of nbgrader's commands, as a student types it at home. A hub's own configuration names exchange and course."""
        home = self.root / "homes" / name
        (home / NAME).parent.mkdir(parents=True, exist_ok=True)
        config = Config({"CourseDirectory": {"course_id": self.course_id, "assignment_id": NAME, "student_id": name}})
        config.merge(self.exchange)
        config.Exchange.assignment_dir, config.Exchange.cache = str(home), str(home / ".cache")
        course, authenticator = CourseDirectory(config=config), Authenticator(config=config)
        getattr(ExchangeFactory(config=config), step)(coursedir=course, authenticator=authenticator, config=config).start()
        return home / NAME


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    judge_here(monkeypatch)


@pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SAWarning")
@pytest.mark.filterwarnings("ignore:Passing unrecognized arguments.*authentictor:DeprecationWarning")  # nbgrader's own slips
@pytest.mark.filterwarnings("ignore:unclosed file .*timestamp.txt:ResourceWarning")
def test_a_class_goes_round_through_the_exchange(course, tmp_path):
    hub = Hub(tmp_path, course)
    assert hub.course_id == "autumn 2026" and hub.instructor.exchange_is_functional
    done(hub.instructor.release_assignment(NAME))
    for student, answers in {"ada": {}, "bo": {"double": "def double(x):\n    return x + 1"}}.items():
        fetched = hub.student(student, "FetchAssignment") / f"{NAME}.ipynb"
        assert fetched.read_bytes() == (hub.cls / f"release/{NAME}/{NAME}.ipynb").read_bytes()
        fetched.write_bytes(hand_in_bytes(course[0], **answers))
        hub.student(student, "Submit")
    done(hub.instructor.collect(NAME))
    assert graded(hub) == ({"ada": 3, "bo": 1}, 2)

    due, submitted = datetime(2026, 1, 1), {}
    with Gradebook(f"sqlite:///{hub.cls}/gradebook.db") as gradebook:
        gradebook.find_assignment(NAME).duedate = due
        gradebook.db.commit()
        for submission in gradebook.assignment_submissions(NAME):
            submitted[submission.student.id] = submission.timestamp
    for student in submitted:
        stamp = (hub.cls / f"submitted/{student}/{NAME}/timestamp.txt").read_text()
        assert abs(submitted[student] - datetime.fromisoformat(stamp.removesuffix(" UTC"))) < timedelta(seconds=1)
    config = hub.cls / "nbgrader_config.py"
    config.write_text(config.read_text() + "\nc.LateSubmissionPlugin.penalty_method = 'zero'\n")
    assert graded(hub) == ({"ada": 0, "bo": 0}, 2)

    (tmp_path / "homes/bo" / NAME / f"{NAME}.ipynb").write_bytes(hand_in_bytes(course[0]))
    hub.student("bo", "Submit")
    done(hub.instructor.collect(NAME))  # with --update: what is newer
    with Gradebook(f"sqlite:///{hub.cls}/gradebook.db") as gradebook:
        gradebook.find_assignment(NAME).duedate = datetime.now() + timedelta(days=1)
        gradebook.db.commit()
    assert graded(hub) == ({"ada": 3, "bo": 3}, 2)
    assert graded(hub) == ({"ada": 3, "bo": 3}, 0)

    done(hub.instructor.release_feedback(NAME))
    for student in ("ada", "bo"):
        (page,) = (hub.student(student, "FetchFeedback") / "feedback").glob("*/*.html")
        assert page.read_bytes() == (hub.cls / f"feedback/{student}/{NAME}/{NAME}.html").read_bytes()


def done(said):
    assert said["success"] and "WARNING" not in said["log"], said


def graded(hub):
    """Student -> score less what lateness costs; and how many hand-ins were graded anew."""
    summary = grade(hub.cls, jobs=1, say=lambda line: None)
    assert not summary.ungraded
    with Gradebook(f"sqlite:///{hub.cls}/gradebook.db") as gradebook:
        hand_ins = gradebook.assignment_submissions(NAME)
        scores = {s.student.id: s.score - sum(nb.late_submission_penalty or 0 for nb in s.notebooks) for s in hand_ins}
    return scores, summary.graded


@pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SAWarning")
def test_a_class_that_is_moved_or_renamed_in_the_exchange_keeps_its_gradebook(course, tmp_path):
    hub = Hub(tmp_path, course)
    path = hub.cls / f"submitted/ada/{NAME}/{NAME}.ipynb"
    path.parent.mkdir(parents=True)
    path.write_bytes(hand_in_bytes(course[0]))
    assert graded(hub) == ({"ada": 3}, 1)
    config = hub.cls / "nbgrader_config.py"
    config.write_text(config.read_text().replace("'autumn 2026'", "'grpo'"))
    hub.cls = shutil.move(hub.cls, tmp_path / "moved")
    assert graded(hub) == ({"ada": 3}, 1)  # an edited configuration is a reason to grade again
    with Gradebook(f"sqlite:///{hub.cls}/gradebook.db", "grpo") as gradebook:
        assert [a.name for a in gradebook.assignments] == [NAME, "02_square"]
