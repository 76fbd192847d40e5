"""Whatever a learner hands in -> the course's own notebook with the learner's answers in it, and notes of what was mended.

Cells are recognised by grade id, then cell id, then the functions they define, then their text. Answers are the
learner's; tests and given code are always the course's. What a learner added keeps its place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches

from grader.course.metadata import FORM, MACHINERY, MACHINERY_SOURCES, unfolded
from grader.course.source import Cell, Notebook
from grader.course.translation import languages, translated, translator
from grader.intake.notebook_file import RawCell, RawNotebook, Unreadable, read_file
from grader.intake.python_file import read_python_file
from grader.intake.static_analysis import (
    additions,
    assigned,
    bound,
    defines,
    effort,
    mended,
    names_used,
    overwrites,
    part_of,
    same_code,
    sole_function,
)

__all__ = ["NoExercise", "Submission", "Unreadable", "read_python", "read_submission"]

MAX_ANSWER = 10_000  # characters of a written answer: some five pages
PLACEHOLDER = "YOUR ANSWER HERE"  # nbgrader's, in a written answer
LISTED = 5  # names in a note
OURS = ("given", "scenario", "bring")
ALIKE = 0.5  # share of lines that two cells must have in common for one to be a copy of the other


class NoExercise(Unreadable):
    """A Python file that is no hand-in: it defines none of the functions asked for."""


@dataclass(frozen=True)
class Submission:
    """A hand-in, ready to be run.

    notebook: of the course, the one it answers, in its language. cells: in the order in which they run: the course's text of given,
    scenario and bring cells, the learner's of solution and answer cells (source "" where it is missing), and what
    else the learner wrote (kind "extra", name ""). notes: what was mended, a sentence each.
    """

    notebook: Notebook
    cells: tuple[Cell, ...]
    notes: tuple[str, ...]


def read_submission(data: bytes, filename: str, course: Sequence[Notebook]) -> Submission:
    """The submission in the bytes of a notebook file. Raises Unreadable."""
    raw = _read(read_file, data, filename)
    notebook = _answered(raw, filename, course)
    notes = list(raw.notes)
    others = [nb.name for nb in course if nb.name in filename]
    if others and notebook.name not in others:
        notes.append(f"The file is named {others[0]} but holds {notebook.name}; it was graded as that.")
    return _Reading(_in_its_language(notebook, raw.cells), raw, notes).submission()


def read_python(data: bytes, filename: str, course: Sequence[Notebook]) -> list[Submission]:
    """The submissions in the bytes of a Python file: to each notebook of which it defines an exercise. Raises Unreadable.

    Where the file is named like one of these notebooks, to that one alone. Written answers are no part of them. NoExercise
    is raised where there is none.
    """
    raw = _read(read_python_file, data, filename)
    functions, values = ({name for cell in raw.cells if cell.code for name in how(cell.source)} for how in (defines, assigned))
    solved = {nb.name: {cell.name for cell in nb.of_kind("solution")} for nb in course}
    answered = [nb for nb in course if functions & solved[nb.name]] or [nb for nb in course if values & solved[nb.name]]
    if not answered:
        exercises = [cell.name for nb in course for cell in nb.of_kind("solution")]
        near = next(((name, found[0]) for name in sorted(functions) if (found := get_close_matches(name, exercises, 1))), None)
        meant = f"; is its {near[0]} meant to be {near[1]}?" if near else "; define them under the names that the notebooks give"
        raise NoExercise(f"{filename}: it defines none of the exercises of {', '.join(nb.name for nb in course)}{meant}")
    named = [nb for nb in answered if nb.name in filename]
    programs = [replace(nb, cells=tuple(cell for cell in nb.cells if cell.kind != "answer")) for nb in named or answered]
    return [_Reading(nb, raw, list(raw.notes)).submission() for nb in programs]


def _read(reader: Callable[[bytes], RawNotebook], data: bytes, filename: str) -> RawNotebook:
    try:
        return reader(data)
    except Unreadable as e:
        raise Unreadable(f"{filename}: {e}") from None


def _answered(raw: RawNotebook, filename: str, course: Sequence[Notebook]) -> Notebook:
    """The notebook that was handed in: by its metadata, its grade ids, its cell ids, its functions, its file's name."""

    def evidence(nb: Notebook, *brought: str) -> tuple[int, int, int]:
        cells = [cell for cell in raw.cells if brought or cell.identity.kind != "bring"]
        graded = {cell.name for cell in nb.of_kind("solution", "check", "answer", *brought)}
        written = {cell.name for cell in nb.of_kind("solution", *brought)}
        functions = {name for cell in cells if cell.code for name in defines(cell.source)}
        grade_ids = {name for cell in cells for name in (cell.identity.grade_id, cell.identity.name)}
        return len(graded & grade_ids), len(graded & {cell.identity.cell_id for cell in cells}), len(written & functions)

    candidates = [nb for nb in course if any(evidence(nb))]  # what was brought from an earlier notebook is no reason by itself
    if not candidates:
        names = ", ".join(nb.name for nb in course)
        raise Unreadable(f"{filename}: it holds none of the exercises of {names}; hand in the notebook with your answers")
    return max(candidates, key=lambda nb: (nb.name == raw.name, evidence(nb, "bring"), nb.name in filename))


def _in_its_language(notebook: Notebook, raw: Sequence[RawCell]) -> Notebook:
    """The edition that has most lines in common with a hand-in; English where they all have as many."""
    lines = {line for cell in raw for line in _lines(cell.source)}
    editions = [notebook, *(translated(notebook, language) for language in languages())]
    return max(editions, key=lambda edition: sum(len(lines & _lines(_visible(cell))) for cell in edition.cells))


@dataclass(frozen=True)
class _Piece:
    """Code of the learner's that will run. place: index in the course's notebook. own: the exercise whose cell it is."""

    place: int
    number: int
    source: str
    own: str = ""


class _Reading:
    """The cells of one hand-in, held against the notebook that they answer."""

    def __init__(self, notebook: Notebook, file: RawNotebook, notes: list[str]) -> None:
        self.notebook, self.notes, self.script = notebook, notes, file.script
        self.unit = "line" if file.script else "cell"
        self.place = {id(cell): place for place, cell in enumerate(notebook.cells)}
        self.exercises = {cell.name for cell in notebook.of_kind("solution")}
        self.protected = _relied_on(notebook) if file.script else {name for cell in notebook.of_kind(*OURS) for name in bound(cell.source)}
        say = translator(notebook.language, notebook.name)
        titled = {name: FORM + say(source.removeprefix(FORM)) if FORM in source else source for name, source in MACHINERY_SOURCES.items()}
        self.machinery = tuple(Cell(MACHINERY, name, source, markdown=not source) for name, source in titled.items())
        self.named = {cell.name: cell for cell in (*self.machinery, *notebook.cells) if cell.name}
        self.lines = {id(cell): _lines(_visible(cell)) for cell in (*notebook.cells, *self.machinery)}
        self.raw: list[tuple[RawCell, Cell | None]] = []
        for cell in file.cells:
            if cell.code and (plain := mended(cell.source)) != cell.source:
                self.notes.append(f"Cell {cell.number}: invisible characters in the code were taken out.")
                cell = replace(cell, source=plain)
            match = self.by_id(cell)
            if not cell.code and match and match.kind == "solution" and match.name in defines(cell.source):
                self.notes.append(f"Cell {cell.number} holds {match.name} but was no code cell; it was read as one.")
                cell = replace(cell, code=True)
            self.raw.append((cell, match or self.by_content(cell)))

    def submission(self) -> Submission:
        # given cells stand first at their place, what the learner wrote behind them in the learner's order
        placed = []
        for place, cell in enumerate(self.notebook.cells):
            if cell.kind in ("given", "scenario", "bring", "answer"):
                placed.append((place, 0, replace(cell, source=self.answer(cell)) if cell.kind == "answer" else cell))
        if self.script:  # whatever the file calls its helpers, scenarios find the course's own under their names
            again = [cell for cell in self.notebook.of_kind(*OURS) if bound(cell.source) & self.protected]
            placed += [(len(self.notebook.cells) + 1, number, cell) for number, cell in enumerate(again)]
        placed += self.solved(self.pieces())
        self.compare_with_ours()
        cells = tuple(cell for *_, cell in sorted(placed, key=lambda where: where[:2]))
        return Submission(self.notebook, cells, tuple(self.notes))

    # Which cell of the course is it?

    def by_id(self, raw: RawCell) -> Cell | None:
        ids = raw.identity
        return next((self.named[key] for key in (ids.grade_id, ids.name, ids.cell_id) if key in self.named), None)

    def by_content(self, raw: RawCell) -> Cell | None:
        if raw.code:
            functions = defines(raw.source)
            if functions & self.exercises:  # one without ids stands for an exercise's cell where it defines but that, and none else does
                found = [cell for cell in self.notebook.of_kind("solution") if cell.name in functions]
                taken = any(match is found[0] for _, match in self.raw)
                return found[0] if len(found) == 1 and not taken else None
            for cell in self.notebook.of_kind("bring", "given", "scenario"):
                if functions & defines(cell.source):
                    return cell
        lines = _lines(raw.source)
        others = [cell for cell in (*self.machinery, *self.notebook.cells) if cell.kind not in ("solution", "answer")]

        def likeness(cell: Cell) -> float:
            ours = self.lines[id(cell)]
            if not ours or cell.markdown == raw.code:
                return 0.0
            common = len(lines & ours)
            return common / (len(ours) if cell.kind == MACHINERY else len(lines) + len(ours) - common)

        best = max(others, key=likeness)
        return best if likeness(best) >= ALIKE else None

    # What of it runs?

    def pieces(self) -> list[_Piece]:
        """Every piece of the learner's code that is to run, in the learner's order."""
        place, pieces, added_to = len(self.notebook.cells) if self.script else -1, [], list[str]()  # a script is behind all that is given
        for raw, match in self.raw:
            if match and match.kind != MACHINERY and not self.script:
                theirs, place = place, self.place[id(match)]
                if match.kind == "solution" and self.by_id(raw) is None:
                    place = max(place, theirs)  # an answer that moved stays behind what it may rely on
            if not raw.code or (match and match.kind in (MACHINERY, "answer")):
                continue
            source, own = raw.source, match.name if match else ""
            if match and match.kind != "solution":
                ours, own = _visible(match), ""
                if not (self.script and match.kind in OURS):
                    source = additions(source, ours, self.protected) if not same_code(source, ours) else ""
                elif part_of(source, ours):
                    source = ""
                if source and match.kind in ("given", "scenario", "check"):
                    added_to.append(match.name)
            if source.strip():
                pieces.append(_Piece(place, raw.number, source, own))
        if added_to and not self.script:
            cells = "cells" if len(added_to) > 1 else "cell"
            self.notes.append(f"What you added to the course's {cells} {_listed(added_to)} was kept, behind it.")
        return pieces

    def solved(self, pieces: list[_Piece]) -> list[tuple[int, int, Cell]]:
        """The learner's code with each exercise's answer chosen: (place, number, cell)."""
        chosen: dict[int, str] = {}  # number of a cell -> the exercise it answers
        dropped: set[int] = set()
        missing: list[Cell] = []
        for cell in self.notebook.of_kind("solution"):
            claims = [p for p in pieces if cell.name in defines(p.source)] or [p for p in pieces if p.own == cell.name]
            if not claims:
                if not self.script:
                    self.notes.append(f"The cell of {cell.name} is missing; the exercise counts as not answered.")
                missing.append(cell)
                continue
            best = max(claims, key=lambda p: (effort(p.source, cell.name), p.number))
            if len(claims) > 1:
                numbers = ", ".join(str(p.number) for p in claims)
                choice = f"the last one with an answer, {self.unit} {best.number}, was taken"
                self.notes.append(f"{cell.name} is written in several {self.unit}s ({numbers}); {choice}.")
            elif best.own != cell.name and not self.script:
                self.notes.append(f"{cell.name} was found in {self.unit} {best.number}, which is not the one meant for it.")
            for p in claims:  # an older or empty version is left out; one with helpers in it runs before the best
                alone = defines(p.source) <= {cell.name} and not self.script  # in a file what stands below may build on it
                if p != best and (p.number > best.number or effort(p.source, cell.name) == 0 or alone):
                    dropped.add(p.number)
            if best.number in chosen:
                missing.append(cell)  # the learner wrote both into one cell, which stands at the other's place
            else:
                chosen[best.number] = cell.name
        cells = [(self.place[id(cell)], 0, replace(cell, source="")) for cell in missing]
        for piece in pieces:
            if name := chosen.get(piece.number):
                place = max(self.place[id(self.named[name])], piece.place)  # never before what it may rely on
                cells.append((place, piece.number, replace(self.named[name], source=self.under_its_name(piece, name))))
            elif piece.number not in dropped:
                source = piece.source
                if lost := overwrites(source, self.exercises):
                    which, names = f"{self.unit.title()} {piece.number}", ", ".join(sorted(lost))
                    self.notes.append(f"{which} puts a value in the place of the function {names}; only what it defines was kept.")
                    source = additions(source, "", self.exercises)
                line = piece.number if self.script else 0
                cells.append((piece.place, piece.number, Cell("extra", "", source, line=line)))
        return cells

    def under_its_name(self, piece: _Piece, name: str) -> str:
        """The source of an answer; a function that the learner renamed is given its name back."""
        if piece.own != name or name in defines(piece.source):
            return piece.source
        other = sole_function(piece.source)
        if not other or other in self.exercises:
            self.notes.append(f"Cell {piece.number}, meant for {name}, defines no function of that name.")
            return piece.source
        self.notes.append(f"The function {name} was renamed {other}; it was graded under its own name.")
        return f"{piece.source}\n\n{name} = {other}"

    def answer(self, cell: Cell) -> str:
        """A written answer: every text cell that has its id, or else what follows its question, and the cells added behind."""
        starts = {i for i, (_, match) in enumerate(self.raw) if match is cell}
        if not starts:
            question = self.notebook.cells[self.place[id(cell)] - 1]
            starts = {i + 1 for i, (_, match) in enumerate(self.raw) if match is question and question.markdown}
        texts: dict[str, None] = {}
        within = False
        for i, (raw, match) in enumerate(self.raw):
            within = (within or i in starts) and (match is cell or (match is None and not raw.code))
            if within:
                texts[raw.source.replace(PLACEHOLDER, "").strip()] = None
        whole = "\n\n".join(text for text in texts if text)
        if len(whole) > MAX_ANSWER:
            self.notes.append(f"A written answer was cut after {MAX_ANSWER:,} characters; the file that was handed in has the rest.")
        return whole[:MAX_ANSWER]

    def compare_with_ours(self) -> None:
        """Notes on what the learner did to cells that are the course's."""
        if self.script:  # it needs none of them, and may hold a part
            theirs = [raw.source for raw, match in self.raw if raw.code and not (match and part_of(raw.source, match.source))]
            brought = {cell.name for cell in self.notebook.of_kind("bring")}
            if other := {name for source in theirs for name in defines(source) & self.protected} - brought:
                self.notes.append(f"The course gives {_listed(sorted(other))}; its own were run.")
            return
        for kinds, what in ((("given", "scenario"), "Given cells"), (("check",), "Test cells")):
            cells = self.notebook.of_kind(*kinds)
            gone = [cell.name for cell in cells if not any(match is cell for _, match in self.raw)]
            edited = {m.name for raw, m in self.raw if m and m.kind in kinds and not same_code(raw.source, _visible(m))}
            if gone:
                self.notes.append(f"{what} are missing ({len(gone)}); the course's own were run.")
            if edited:
                self.notes.append(f"{what} were changed ({len(edited)}); the course's own were run.")
        if any(match and match.kind == "solution" and self.by_id(raw) is None for raw, match in self.raw):
            self.notes.append("Cells of answers came without their ids; they were recognised by what they define.")


def _relied_on(notebook: Notebook) -> set[str]:
    """The names that have to be the course's own, whatever a file calls its helpers: those that its scenarios use, and brought ones."""
    ours = {name: cell.source for cell in notebook.of_kind(*OURS) for name in bound(cell.source)}
    found: set[str] = set()
    new = {cell.name for cell in notebook.of_kind("scenario", "bring")}
    while new:
        found |= new
        new = {name for known in new for name in names_used(ours[known]) & ours.keys()} - found
    return found


def _visible(cell: Cell) -> str:
    """A course cell as a learner gets it."""
    return cell.visible if cell.kind == "check" else PLACEHOLDER if cell.kind == "answer" else cell.source


def _lines(source: str) -> set[str]:
    return {line.strip() for line in unfolded(source).splitlines() if line.strip()}


def _listed(names: Sequence[str]) -> str:
    """Names for a note, of many the first."""
    more = len(names) - LISTED
    return f"{', '.join(names[:LISTED])} and {more} more" if more > 0 else ", ".join(names)
