import os

os.environ.setdefault("MPLBACKEND", "agg")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # two threads on a busy machine can be far slower than one

from pathlib import Path

import matplotlib

from grader.course import read_course

matplotlib.use("agg")
ROOT = Path(__file__).parent.parent
COURSE = read_course(ROOT / "solutions") if any((ROOT / "solutions").glob("*.py")) else []
