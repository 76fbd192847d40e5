"""Shows the grading at work: `python -m grader.demo FOLDER` writes hand-ins as learners would and grades them as a class."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import matplotlib

from grader.cli import main
from grader.course.build import learner_notebook, to_text
from grader.course.source import ROOT, Notebook, read_course
from grader.course.trusted import namespace
from grader.feedback.release import answer_key, answered
from grader.mistakes import versions

RUN = "04_train_a_tiny_model"
TYPICAL = {  # notebook -> known mistakes that are often made, by name
    "01_advantage": ("sample_std", "gae_forward_in_time"),
    "02_grpo_loss": ("no_minus", "rows_for_columns"),
    "03_kl": ("unmasked_mean", "kl_sign"),
    RUN: ("no_zero_grad", "last_number"),
}


def write_hand_ins(folder: Path, course: list[Notebook]) -> None:
    """FOLDER/STUDENT/NOTEBOOK.ipynb, from three students: one right, one with nothing written, one with typical mistakes."""
    for notebook in course:
        wrong = {v.exercise: v.source for v in versions(notebook.name) if v.name in TYPICAL.get(notebook.name, ()) and v.wrong}
        for student, nb in {
            "ada_solved": answered(notebook),
            "ben_unsolved": learner_notebook(answer_key(notebook)),
            "cho_mistaken": answered(notebook, wrong),
        }.items():
            path = folder / student / f"{notebook.name}.ipynb"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(to_text(nb), encoding="utf-8")


def demonstrate(folder: Path) -> int:
    """Writes the hand-ins, grades each alone, then all of them as a class, and says where the feedback lies."""
    if folder.exists() and not (folder / "class").is_dir():
        print(f"demo: {folder} exists and holds no demo; name another folder", file=sys.stderr)
        return 2
    shutil.rmtree(folder, ignore_errors=True)
    course = [notebook for notebook in read_course(ROOT / "solutions") if notebook.graded]
    write_hand_ins(folder / "hand-ins", course)
    hand_ins, cls = str(folder / "hand-ins"), str(folder / "class")
    for step in (["check", hand_ins], ["new", cls], ["collect", cls, hand_ins], ["grade", cls], ["report", cls]):
        print(f"\n$ grader {' '.join(step)}", flush=True)
        if status := main(step):
            return status
    show_the_run(next(nb for nb in course if nb.name == RUN), folder / "run.png")
    print(f"\nfeedback for each student: {folder}/class/feedback/STUDENT/NOTEBOOK/\ngrades: {folder}/class/grades.csv")
    print(f"the run of notebook 4: {folder}/run.png")
    return 0


def show_the_run(notebook: Notebook, picture: Path) -> None:
    """Trains the tiny model with the answer key, tells its story and writes its picture."""
    print(f"\n{notebook.title}", flush=True)
    matplotlib.use("agg")
    names = namespace(notebook)
    cells = {cell.name: cell.source for cell in notebook.of_kind("show")}
    for name in ("before_rl", "gallery_before", "the_loop", "the_run", "gallery_after"):
        exec(compile(cells[name], f"<{name}>", "exec"), names)
        if name == "the_run":
            names["plt"].gcf().savefig(picture, dpi=110)


if __name__ == "__main__":
    sys.exit(demonstrate(Path(sys.argv[1])))
