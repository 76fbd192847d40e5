"""The command `grader`: builds the notebooks, grades hand-ins, runs a class."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import secrets
import signal
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from grader.classroom.atomic import write_atomically
from grader.course.source import ROOT, CourseError, read_course
from grader.course.trusted import import_torch
from grader.intake.match import NoExercise, Unreadable, read_python, read_submission
from grader.judge.verdict import Result, without_repeats
from grader.sandbox.jail import JailError, layers

NOTES = 6  # shown of a hand-in

if TYPE_CHECKING:
    from grader.examine import Examination


def main(arguments: list[str] | None = None) -> int:
    """Runs one command. Returns 0 when all went well, 1 when something did not hold, 2 when an input could not be used, 130 for Ctrl-C."""
    options = _parser().parse_args(arguments)
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # for torch: tensors are tiny here, a second thread would only wait for the first
    try:
        with _no_lost_ctrl_c():
            return options.command(options)
    except (CourseError, JailError) as e:
        return _refuse(e)
    except BrokenPipeError:  # `| head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as e:
        return _refuse(f"{e.filename or 'this machine'}: {e.strerror}")
    except KeyboardInterrupt:
        return _refuse("stopped; run the same command again", 130)


@contextlib.contextmanager
def _no_lost_ctrl_c() -> Iterator[None]:
    """Python only prints what is raised in a finalizer, of which a large class has many: Ctrl-C comes again a moment later."""
    before = sys.unraisablehook

    def hook(lost: sys.UnraisableHookArgs) -> None:
        if lost.exc_type is KeyboardInterrupt:
            threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
        else:
            before(lost)

    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = before


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="grader", description=__doc__)
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    check = commands.add_parser(
        "check",
        help="grade a notebook or a Python file, or all of a folder, and print what failed",
        description="Grades a notebook, or a Python file that defines the functions of one or more notebooks (of the one that it is named "
        "like, where it is), or all of a folder, and prints what failed. Inside a class it uses that class's own source and seed.",
    )
    check.set_defaults(command=_check)
    check.add_argument("path", type=Path, metavar="FILE|DIR")
    check.add_argument("--json", action="store_true", help="print an object per notebook (a list for a folder or a Python file)")
    check.add_argument("--seed", type=int, help="of the hidden draws (default: 0)")
    _jail_option(check)

    examine = commands.add_parser(
        "examine",
        help="say which properties of an exercise a function of your own has",
        description="Runs the checks of an exercise on a function of your own, and says which properties hold, and which known mistake or "
        "published convention its numbers are those of. The function runs in this very process, without a jail: name code that you trust. "
        "Where yours takes other arguments than the exercise, write a small function that calls it, and name that one.",
    )
    examine.set_defaults(command=_examine)
    examine.add_argument("function", metavar="MODULE:FUNCTION", help="such as trainer.losses:grpo_loss; MODULE as Python imports it here")
    examine.add_argument("--as", required=True, dest="exercise", metavar="EXERCISE", help="such as grpo_objective or group_advantages")
    examine.add_argument("--json", action="store_true", help="print an object")

    challenge = commands.add_parser(
        "challenge",
        help="race the settings of notebook 4's standing challenge against the course's, on secret seeds",
        description="Reads the numbers in CHALLENGE out of notebooks (or all of a folder), runs none of their code, and races them "
        "against the course's settings in this very process, one after the other on one core: seconds of sampling, rewards and "
        "updates until the greedy accuracy is .95, as a ratio, from models that are warmed up on seeds drawn now.",
    )
    challenge.set_defaults(command=_challenge)
    challenge.add_argument("paths", type=Path, nargs="+", metavar="FILE|DIR")
    challenge.add_argument("--models", type=_positive, default=5, metavar="N", help="warmed up, and raced from (default: 5)")
    challenge.add_argument("--seed", type=int, help="race again from the models of an earlier race, which printed it")

    new = commands.add_parser("new", help="make a class directory: an nbgrader course with secret tests of its own")
    new.set_defaults(command=lambda o: _class(lambda c: c.new(o.directory, read_course(ROOT / "solutions"))))

    collect = commands.add_parser("collect", help="file hand-ins: notebooks, folders and zips as a learning platform gives them")
    collect.set_defaults(command=lambda o: _class(lambda c: c.collect(o.directory, o.paths), "collecting"))

    roster = commands.add_parser(
        "roster",
        help="who is in the class: what Canvas, Moodle, Gradescope or GitHub Classroom export, or a CSV with name, email, id",
    )
    roster.set_defaults(command=lambda o: _class(lambda c: c.roster(o.directory, o.paths, o.notebook), "collecting"))

    grade = commands.add_parser("grade", help="grade what is new or changed; safe to stop and to run again")
    grade.set_defaults(
        command=lambda o: _class(
            lambda c: c.grade(o.directory, jobs=o.jobs, ray=o.ray, regrade=o.regrade, allow_no_jail=o.no_jail).ungraded
        )
    )

    report = commands.add_parser("report", help="one page on the class: scores, checks, mistakes, hand-ins that are nearly the same")
    report.set_defaults(command=lambda o: _class(lambda c: c.report(o.directory)))

    export = commands.add_parser("export", help="make what another platform grades with: an autograder for Gradescope")
    export.set_defaults(
        command=lambda o: _class(
            lambda c: c.export_gradescope(o.directory, o.out, notebook=o.notebook, allow_no_jail=o.no_jail), "autograder_zip"
        )
    )
    export.add_argument("platform", choices=("gradescope",))
    export.add_argument("directory", type=Path, metavar="DIR")
    export.add_argument("out", type=Path, metavar="OUT.zip")
    export.add_argument("--notebook", default="", metavar="NAME", help="take this notebook alone (default: whichever is handed in)")
    export.add_argument("--no-jail", action="store_true", help="grade without a jail, too: a hand-in can then write its own score")

    remove = commands.add_parser("remove", help="take a student who has left out of a class; the files are moved aside")
    remove.set_defaults(command=lambda o: _class(lambda c: c.remove(o.directory, o.student)))

    for command in (new, roster, collect, grade, report, remove):
        command.add_argument("directory", type=Path, metavar="DIR")
    roster.add_argument("paths", type=Path, nargs="+", metavar="FILE")
    roster.add_argument("--notebook", default="", metavar="NAME", help="which one a grading worksheet of Moodle is of, such as 02")
    collect.add_argument("paths", type=Path, nargs="+", metavar="PATH")
    grade.add_argument("--jobs", type=_positive, metavar="N", help="hand-ins judged side by side (default: one a core)")
    grade.add_argument("--ray", default="", metavar="ADDRESS", help="judge on the Ray cluster of this address (local: one of this machine)")
    grade.add_argument("--regrade", default="", metavar="NAME", help="grade anew: the hand-ins of a student, a notebook or an exercise")
    remove.add_argument("student", metavar="STUDENT", help="as the folder under submitted/ is called")
    _jail_option(grade)

    doctor = commands.add_parser("doctor", help="what this machine offers to lock a hand-in's code away")
    doctor.set_defaults(command=_doctor)

    release = commands.add_parser("release", help="build the notebooks from their source text")
    release.set_defaults(command=_release)
    release.add_argument(
        "--check", action="store_true", help="write nothing; exit 1 when a built notebook is not what its source text gives"
    )
    return parser


def _check(options: argparse.Namespace) -> int:
    path: Path = options.path
    if not path.exists():
        return _refuse(f"{path}: no such file or folder")
    import_torch()  # here: the process that writes a gradebook does without
    from grader.judge.judge import Judge

    everything = read_course(ROOT / "solutions")
    ungraded = {notebook.name for notebook in everything if not notebook.graded}
    if root := _class_around(path):
        if options.seed is not None:
            return _refuse(f"{path} lies in the class {root}, which has a seed of its own; leave --seed away")
        from grader.classroom.directory import ClassDirectory  # half a second that others need not wait

        course, path = ClassDirectory(root).masters(), path / "submitted" if path.resolve() == root else path
        print(f"graded with the source and the seed of the class {root}", file=sys.stderr)
    else:
        course = [notebook.with_seed(options.seed or 0) for notebook in everything if notebook.graded]
    files = _hand_ins(path) if path.is_dir() else [path]
    results: list[tuple[Path, Result]] = []
    passed_over, status = 0, 0
    with Judge(allow_no_jail=options.no_jail) as judge:
        for file in files:
            if file.suffix == ".ipynb" and file.stem in ungraded:
                print(f"{file}: nothing to check, this notebook has no points", file=sys.stderr)
                continue
            try:
                data = file.read_bytes()
                submissions = read_python(data, file.name, course) if _is_python(file) else [read_submission(data, file.name, course)]
            except NoExercise as e:
                passed_over += 1
                if file is path:
                    status = _refuse(_reason(file, e))
                continue
            except (Unreadable, OSError) as e:
                status = _refuse(_reason(file, e))
                continue
            for submission in submissions:
                results.append((file, judge.judge(submission)))
                if not options.json:
                    print(table(results[-1][1], _name(file)), flush=True)
    if passed_over == len(files) and path.is_dir():
        return _refuse(f"{path}: no notebook (.ipynb) in this folder, and no Python file that defines an exercise")
    if options.json:
        objects = [{"file": str(file)} | json.loads(result.to_json()) for file, result in results]
        several = path.is_dir() or _is_python(path)
        if several or objects:
            print(json.dumps(objects if several else objects[0], ensure_ascii=False, indent=1))
    return status


def _reason(file: Path, e: Unreadable | OSError) -> str:
    """Why a file cannot be graded, which says its name once, and where it lies."""
    return f"{_name(file)}: {e.strerror if isinstance(e, OSError) else str(e).removeprefix(f'{file.name}: ')}"


def _name(file: Path) -> str:
    """A file's name on one line: people choose it themselves, and it could look like a line of ours."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in str(file))


def _class_around(path: Path) -> Path | None:
    """The class directory in which a path lies, if it lies in one."""
    folders = (path.resolve(), *path.resolve().parents)
    return next((folder for folder in folders if (folder / ".grader").is_dir() and (folder / "nbgrader_config.py").is_file()), None)


def _is_python(file: Path) -> bool:
    return file.suffix.lower() == ".py"


def _hand_ins(folder: Path) -> list[Path]:
    """The notebooks and the Python files in a folder, without what editors, Git and virtual environments keep there.

    Nor a link to a device, which would be read for ever.
    """
    found: list[Path] = []
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".") and not Path(place, name, "pyvenv.cfg").exists()]
        found += [path for name in files if name.endswith((".ipynb", ".py")) and (path := Path(place, name)).is_file()]
    return sorted(found)


def _examine(options: argparse.Namespace) -> int:
    import_torch()
    from grader.examine import CannotExamine, examine

    try:
        found = examine(options.function, options.exercise, read_course(ROOT / "solutions"))
    except CannotExamine as e:
        return _refuse(e)
    print(found.to_json() if options.json else _properties(found))
    return 0 if found.sound else 1


def _properties(found: Examination) -> str:
    """What is known of a function that was examined, for a person."""
    hold, differ = sum(p.holds for p in found.properties), sum(p.by_convention for p in found.properties)
    lines = [f"{found.function} as {found.exercise}: {hold} of {len(found.properties)} properties hold"]
    lines[0] += f", {differ} differ by convention" if differ else ""
    told: set[str] = set()  # an error or a mistake that fails several checks is explained once
    for p in found.properties:
        mark = "\u2713" if p.holds else "\u2248" if p.by_convention else "\u2717"
        lines.append(f"  {mark} {p.title}")
        if mark == "\u2717":
            lines += [_indented(line.strip(), 6) for line in p.message.split("\n") if line not in told]
            told.update(p.message.split("\n"))
    if found.conventions:
        where = "" if found.sound else " at \u2248"
        lines.append(f"The numbers{where} are those of another convention, which is no mistake:")
        lines += [_indented(words, 2) for words in found.conventions]
    return "\n".join(lines)


def _challenge(options: argparse.Namespace) -> int:
    from grader.challenge import NOTEBOOK, NoSettings, Referee, course_settings, read_settings

    notebook = next(nb for nb in read_course(ROOT / "solutions") if nb.name == NOTEBOOK)
    course, entries, passed_over, status = course_settings(notebook), {}, 0, 0
    for path in options.paths:
        folder = path / "submitted" if path.resolve() == _class_around(path) else path
        for file in _hand_ins(folder) if path.is_dir() else [path]:
            try:
                entries[file] = read_settings(file.read_bytes(), file.name, course)
            except (Unreadable, OSError) as e:
                passed_over += isinstance(e, NoSettings)
                if file is path or not isinstance(e, NoSettings):
                    status = _refuse(_reason(file, e))
    if not entries:
        return status or _refuse(f"no settings to race: {passed_over} files without a CHALLENGE of their own")
    seed = secrets.randbelow(10**6) if options.seed is None else options.seed
    print(
        f"{len(entries)} to race, {passed_over} without settings of their own; --seed {seed} races from the same models again", flush=True
    )
    import_torch()
    referee = Referee(notebook, seed, options.models, lambda line: print(line, file=sys.stderr, flush=True))
    ranking, began = [], time.monotonic()
    for count, (file, settings) in enumerate(entries.items(), 1):
        race = referee.race(settings)
        ranking.append((race.ratio, _name(file)))
        left = (time.monotonic() - began) / count * (len(entries) - count)
        each = " ".join(f"{ratio:.2f}" for ratio in race.ratios)
        print(f"[{count}/{len(entries)}, {left:.0f} s left]  {race.ratio:.2f} of the course's seconds ({each})  {_name(file)}", flush=True)
    if len(ranking) > 1:
        print(
            "\n".join(["\nfastest first", *(f"{place:3}  {ratio:.2f}  {file}" for place, (ratio, file) in enumerate(sorted(ranking), 1))])
        )
    return status


def _class(command: Callable[[ModuleType], Sequence[object] | object], module: str = "commands") -> int:
    """Runs a command of a class, one of `module` in the classroom; what could not be used makes the status 2."""
    classroom = importlib.import_module(f"grader.classroom.{module}")  # nbgrader takes a second, and `grader check` does not need it
    from grader.classroom.directory import ClassError

    try:
        refused = command(classroom)
    except ClassError as e:
        return _refuse(e)
    return 2 if isinstance(refused, list | tuple) and refused else 0


def _doctor(options: argparse.Namespace) -> int:
    on = layers()
    print("\n".join(on.describe()))
    print(
        "hand-ins can be graded here"
        if on.holds
        else "no jail here: install bubblewrap on Linux (--no-jail is for your own work only: the code can then change files and scores)"
    )
    return 0 if on.holds else 1


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number of 1 or more")
    return int(text)


def table(result: Result, heading: str) -> str:
    """The verdicts on one hand-in for a person: exercise, check, points, and what failed."""
    width = max(len(v.title) for v in result.checks)
    lines = [f"\n{heading}: {result.points:g} of {result.max_points} points ({result.notebook})"]
    for exercise in dict.fromkeys(v.exercise for v in result.checks):
        own = [v for v in result.checks if v.exercise == exercise]
        if own[0].points is None:
            lines.append(f"  {exercise}  -/{own[0].max_points}\n    \u2013 {own[0].message}")
            continue
        lines.append(f"  {exercise}  {sum(v.points or 0 for v in own):g}/{sum(v.max_points for v in own)}")
        if not own[0].passed and len({v.message for v in own}) == 1:  # not written yet, say: once is enough
            lines.append(_indented(f"\u2717 {own[0].message}", 4))
            continue
        for verdict, told in zip(own, without_repeats(v.message for v in own), strict=True):
            mark = "\u2713" if verdict.passed else "\u2717"
            lines.append(f"    {mark} {verdict.title:{width}}  {verdict.points:>3g}/{verdict.max_points}")
            if not verdict.passed:
                lines += [_indented(line, 8) for line in told.split("\n")]
    notes = list(dict.fromkeys(result.notes))
    lines += [f"  note: {note}" for note in notes[:NOTES]]
    return "\n".join(lines + ([f"  and {len(notes) - NOTES} more notes (--json has them all)"] if len(notes) > NOTES else []))


def _indented(text: str, columns: int) -> str:
    return textwrap.fill(text, 110, initial_indent=" " * columns, subsequent_indent=" " * columns, break_on_hyphens=False)


def _jail_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--no-jail", action="store_true", help="for your own work only: the code can then change your files and its scores")


def _release(options: argparse.Namespace) -> int:
    from grader.feedback.release import differences, released  # it brings nbgrader

    files = released(ROOT / "solutions")
    stale = dict(differences(files, ROOT))
    for name, sentence in stale.items():
        if options.check or name not in files:
            print(f"{name}: {sentence}", file=sys.stderr)
        else:
            write_atomically(ROOT / name, files[name])
            print(f"built {name}")
    return 1 if options.check and stale else 0


def _refuse(sentence: object, status: int = 2) -> int:
    print(f"grader: {sentence}", file=sys.stderr)
    return status
