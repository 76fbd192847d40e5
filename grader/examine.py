"""`grader examine`: a function of somebody's trainer against the checks of an exercise, in this very process.

For code that is trusted, as one's own is: there is no jail.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import json
import sys
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from grader.course.prose import shapes
from grader.course.source import Cell, Notebook
from grader.course.trusted import failure, namespace
from grader.feedback.conventions import conventions
from grader.feedback.errors import meaning
from grader.feedback.naming import NO_NUMBERS, agrees, by_mistake, candidates, evidence, sentences
from grader.feedback.table import fingerprints
from grader.mistakes import versions


class CannotExamine(Exception):
    """There is nothing to examine, and why, in a sentence."""


@dataclass(frozen=True)
class Property:
    """A check's outcome. by_convention: it does not hold, and the conventions that were found are why."""

    check: str
    title: str
    holds: bool
    by_convention: bool
    message: str
    mistakes: list[str]  # names of known ones whose numbers these are


@dataclass(frozen=True)
class Examination:
    """What is known of a function after it was examined."""

    function: str
    exercise: str
    notebook: str
    properties: list[Property]
    conventions: list[str]

    @property
    def sound(self) -> bool:
        """Whether every property holds, or differs by convention only."""
        return all(p.holds or p.by_convention for p in self.properties)

    def to_json(self) -> str:
        return json.dumps(asdict(self) | {"sound": self.sound}, ensure_ascii=False, indent=1)


@dataclass
class _Seen:
    """What a check gave. prints, decimals: see `naming.candidates`; of its visible part."""

    message: str = ""
    prints: Any = True
    decimals: int = 0
    hidden: bool = False  # it fails on drawn inputs only


def examine(name: str, exercise: str, course: Sequence[Notebook]) -> Examination:
    """Examines the function "module:function" as an exercise of the course. Raises CannotExamine."""
    home = {e.name: nb for nb in course for e in nb.exercises if e.checks}
    if exercise not in home:
        raise CannotExamine(f"there is no exercise {exercise!r}; there are {', '.join(home)}")
    notebook = home[exercise]
    function = _loaded(name)
    names = namespace(notebook)
    _fits(name, function, names[exercise], exercise)
    checks = next(e.checks for e in notebook.exercises if e.name == exercise)
    names[exercise] = function
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what torch thinks of a mistake
        seen = {check.name: _seen(check, names, notebook, name) for check in checks}
        words, by_convention, wrong = _explained(seen, checks, names, notebook, exercise)
    properties = []
    for check in checks:
        here = wrong.get(check.name, {})
        message = "\n".join([seen[check.name].message, *here.values()]).strip()
        properties.append(Property(check.name, check.title, not message, check.name in by_convention, message, list(here)))
    return Examination(name, exercise, notebook.name, properties, list(words))


def _loaded(name: str) -> Callable:
    module_name, _, function_name = name.partition(":")
    if not (module_name.replace(".", "").isidentifier() and function_name.isidentifier()):
        raise CannotExamine(f"{name!r} is not of the form module:function, such as trainer.losses:grpo_loss")
    if "" not in sys.path:
        sys.path.insert(0, "")  # the folder it is called in, as for python -m
    try:
        with contextlib.redirect_stdout(sys.stderr):
            module = importlib.import_module(module_name)
    except ModuleNotFoundError as e:
        if e.name and (module_name + ".").startswith(e.name + "."):
            raise CannotExamine(f"there is no module {e.name!r} in this folder or among the installed packages") from None
        raise CannotExamine(f"{module_name} cannot be imported: it needs {e.name!r}, which is not installed") from None
    except (Exception, SystemExit) as e:
        frames = [f for f in traceback.extract_tb(e.__traceback__)[1:] if not f.filename.startswith("<frozen")]
        where = f" (line {frames[-1].lineno} of {frames[-1].filename})" if frames else ""
        raise CannotExamine(f"{module_name} cannot be imported: {_told(e)}{where}") from None
    function = getattr(module, function_name, None)
    if not callable(function):
        raise CannotExamine(f"{module_name} has no function {function_name!r}" if function is None else f"{name} is no function")
    return function


def _fits(name: str, function: Callable, key: Callable, exercise: str) -> None:
    """Checks call an exercise by position and by keyword: its arguments' names and order must be the course's."""
    asked = inspect.signature(key).parameters
    needed = [argument for argument, p in asked.items() if p.default is p.empty]
    try:
        has = inspect.signature(function)
        has.bind(*needed)
        has.bind(**dict.fromkeys(asked))
        places = [a for a, p in has.parameters.items() if p.kind is p.POSITIONAL_OR_KEYWORD]
        fits = all(mine == theirs for mine, theirs in zip(places, asked, strict=False))
    except ValueError:  # no signature, as of functions that are written in C
        return
    except TypeError:
        fits = False
    if not fits:
        raise CannotExamine(
            f"{name} takes {has}, and {exercise} is called as {exercise}{inspect.signature(key)}: "
            "write a small function that takes these and calls yours, and name it instead"
        )


def _seen(check: Cell, names: Mapping[str, Any], notebook: Notebook, name: str) -> _Seen:
    error, own = failure(check, names, hidden=False)
    hidden = error is None
    if hidden:
        error, own = failure(check, names)
    if error is None:
        return _Seen()
    prints, decimals = evidence(error, own)
    file = getattr(sys.modules[name.partition(":")[0]], "__file__", None)
    inside = [line for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename == file]
    if inside:
        message, prints = f"raised {_told(error)} (line {inside[-1]} of {file})", []
    elif isinstance(error, AssertionError):
        message = str(error) or "this does not hold"
    else:
        message, prints = f"the check could not use what came back: {_told(error)}", []
    if inside or not isinstance(error, AssertionError):
        explained = meaning(type(error).__name__, str(error), shapes(notebook).get(check.exercise, {}), inside=bool(inside))
        message = "\n".join(filter(None, (message, explained)))
    return _Seen(f"On drawn inputs: {message}", hidden=True) if hidden else _Seen(message, prints, decimals)


def _explained(
    seen: Mapping[str, _Seen], checks: Sequence[Cell], names: dict[str, Any], notebook: Notebook, exercise: str
) -> tuple[tuple[str, ...], set[str], dict[str, dict[str, str]]]:
    """The convention whose numbers came out, the checks that do not hold because of it, and check -> known mistake -> what to say of it.

    A convention that explains all comes first, then a mistake that does, then a convention and a mistake that explain
    a part each, in the way of `naming.candidates`.
    """
    failed = {check for check, what in seen.items() if what.message}
    if not failed:
        return (), set(), {}
    tried: dict[tuple[str, ...], dict[str, list]] = {}  # the fewest departures come first
    for words, function in conventions(exercise):
        names[exercise] = function
        tried[words] = _visible_prints(checks, names)
        if _exactly(tried[words], seen):
            drawn = {check.name for check in checks if check.name not in tried[words] and failure(check, names)[0]}
            if drawn == {check for check, what in seen.items() if what.hidden}:
                return words, failed, {}
    prints = by_mistake(fingerprints(notebook, exercise), seen)
    wrong, sure = _candidates(seen, prints)
    words, by_convention = (), set()
    if not any(_exactly(prints[mistake], seen) for mistake in wrong) and (found := _candidates(seen, tried)[0]):
        words, by_convention = found[0], {check for check in failed if agrees(tried[found[0]].get(check), seen[check].prints)}
        wrong, sure = _candidates({check: what for check, what in seen.items() if check not in by_convention}, prints)
    known = {v.name: (v.summary, v.hint) for v in versions(notebook.name)}
    told = {}
    for check in failed - by_convention:
        here = [mistake for mistake in wrong if agrees(prints[mistake].get(check), seen[check].prints)]
        told[check] = dict(zip(here, sentences(here, sure, known), strict=False))
    return words, by_convention, told


def _visible_prints(checks: Sequence[Cell], names: Mapping[str, Any]) -> dict[str, list]:
    """Check -> the fingerprint there, where it fails."""
    prints = {}
    for check in checks:
        error, own = failure(check, names, hidden=False)
        if error:
            prints[check.name] = next((way for way in evidence(error, own)[0] if way[0]), NO_NUMBERS)
    return prints


def _candidates(seen: Mapping[str, _Seen], prints: Mapping[Any, Any]) -> tuple[list[Any], bool]:
    return candidates({check: what.prints for check, what in seen.items()}, prints, {check: what.decimals for check, what in seen.items()})


def _exactly(theirs: Mapping[str, list], seen: Mapping[str, _Seen]) -> bool:
    """Whether a mistake or a convention, check -> fingerprint, explains all that was seen."""
    for check, what in seen.items():
        if what.prints in (True, []):
            if theirs.get(check, True) != (what.prints or NO_NUMBERS):
                return False
        elif not agrees(theirs.get(check), what.prints):
            return False
    return True


def _told(error: BaseException) -> str:
    """An error in a line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}".removesuffix(": ")
