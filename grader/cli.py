"""The command `grader`: builds the notebooks, grades hand-ins, runs a class."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from grader.course import CourseError
from grader.release import ROOT, build, differences


def main(arguments: list[str] | None = None) -> int:
    """Runs one command. Returns 0 when all went well, 1 when something did not hold, 2 when an input could not be used."""
    options = _parser().parse_args(arguments)
    try:
        return options.command(options)
    except CourseError as e:
        return _refuse(e)
    except KeyboardInterrupt:
        return _refuse("stopped; run the same command again to go on", 130)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="grader", description=__doc__)
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    check = commands.add_parser("check", help="grade a notebook, or all notebooks of a folder, and print what failed")
    check.set_defaults(command=_check)
    check.add_argument("path", type=Path, metavar="FILE|DIR")
    check.add_argument("--json", action="store_true", help="print an object per notebook (a list for a folder)")
    check.add_argument("--seed", type=int, default=0, help="of the hidden draws")
    _jail_option(check)

    release = commands.add_parser("release", help="build the notebooks from their source text")
    release.set_defaults(command=_release)
    release.add_argument(
        "--check", action="store_true", help="write nothing; exit 1 when a built notebook is not what its source text gives"
    )
    return parser


def _jail_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--no-jail", action="store_true", help="grade even where this machine cannot lock a hand-in's code away")


def _release(options: argparse.Namespace) -> int:
    files = build(ROOT / "solutions")
    stale = list(differences(files, ROOT))
    if options.check:
        for sentence in stale:
            print(sentence, file=sys.stderr)
        return 1 if stale else 0
    for name, text in files.items():
        path = ROOT / name
        path.parent.mkdir(exist_ok=True)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(f"built {name}")
    for sentence in differences(files, ROOT):
        print(sentence, file=sys.stderr)
    return 0


def _refuse(sentence: object, status: int = 2) -> int:
    print(f"grader: {sentence}", file=sys.stderr)
    return status
