"""A class -> the zip that Gradescope builds an autograder from: the course's grader and the class's own tests."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

from grader.classroom.atomic import write_atomically
from grader.classroom.directory import ClassDirectory, ClassError, named
from grader.course.source import ROOT
from grader.course.translation import LOCALE

TEMPLATES = Path(__file__).with_name("templates")


def export_gradescope(directory: Path, out: Path, *, notebook: str = "", allow_no_jail: bool = False) -> None:
    """Writes the zip, readable by its owner alone, and says what to set in Gradescope. Raises ClassError.

    notebook: the one that it takes ("": any of the class, whichever is handed in). allow_no_jail: see `Judge`.
    """
    cls = ClassDirectory(directory)
    cls.require_class()
    if out.suffix != ".zip":
        raise ClassError(f"{out}: name a file that ends in .zip, which is what Gradescope takes")
    with cls.translate_errors():
        wanted = named(notebook, cls.names()) if notebook else ""
        masters = [master for master in cls.masters() if (wanted or notebook) in ("", master.name)]
        if not masters:
            raise ClassError(f"{directory} has no notebook {notebook!r}; it has {', '.join(cls.names())}")
        run = (TEMPLATES / "run_autograder").read_text(encoding="utf-8")
        files = {
            "setup.sh": (TEMPLATES / "setup.sh").read_bytes(),
            "run_autograder": (run.rstrip() + " --no-jail\n" if allow_no_jail else run).encode(),
            "constraints.txt": (ROOT / "constraints.txt").read_bytes(),
            **{str(path.relative_to(ROOT)): path.read_bytes() for path in sorted([*ROOT.glob("grader/**/*.py"), *LOCALE.rglob("*.*")])},
            **{f"notebooks/{master.name}.ipynb": cls.source(master.name).read_bytes() for master in masters},
        }
        data = io.BytesIO()
        with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in files.items():
                entry = zipfile.ZipInfo(name)  # of 1980: the same class gives the same bytes
                entry.external_attr = (0o100755 if name in ("setup.sh", "run_autograder") else 0o100644) << 16
                entry.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(entry, content)
        write_atomically(out, data.getvalue())
        out.chmod(0o600)
    print(f"{out} written; it holds the secret tests: keep it to yourself")
    for master in masters:
        written = f", {points} for written answers, by hand" if (points := master.points("answer")) else ""
        print(f"{master.name}: {master.points('check')} autograder points{written}")
    if len(masters) > 1:
        print("it grades whichever of these is handed in; --notebook NAME makes one that takes that notebook alone")
    if allow_no_jail:
        print("where the container has no jail, a hand-in can read the tests and write its own score (--no-jail)")
