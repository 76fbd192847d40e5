import os

os.environ.setdefault("MPLBACKEND", "agg")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # two threads on a busy machine can be far slower than one

from pathlib import Path

import matplotlib

from grader.course import read_course

matplotlib.use("agg")
ROOT = Path(__file__).parent.parent
COURSE = read_course(ROOT / "solutions")


def pytest_terminal_summary(terminalreporter):
    """Prints the tables that tests have recorded, so that they are seen whichever process ran the test."""
    for report in terminalreporter.getreports("passed"):
        for name, value in report.user_properties:
            if name == "table":
                terminalreporter.write(value + "\n")
