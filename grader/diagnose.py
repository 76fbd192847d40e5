"""Which known mistake gives a learner's numbers: the catalogue is asked what the learner's code was asked, and answers are compared.

The judge keeps what crossed to the learner's process in each check, up to the point where the check stopped: arguments,
results, vector-Jacobian products, errors. A wrong version of the exercise that answers the same calls in the same way,
where the answer key answers differently, is the mistake. No check is run again, and nothing of the learner's either.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import re
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, NoReturn

import torch

from grader.course import Notebook
from grader.hints import shapes
from grader.inprocess import REPLAYED, alarm, namespace
from grader.learner_cell import Feedback
from grader.mistakes import Version, versions
from grader.wire import image, pack, to_bytes, unpack, vjp

try:
    import resource
except ImportError:  # Windows, where nothing is graded
    resource = None  # type: ignore[assignment]

RELATIVE, ABSOLUTE, OF_THE_LARGEST = 1e-4, 1e-6, 2e-6  # within which numbers are equal; float32 leaves less than the sum
LEVELS = ((1.0, False), (0.1, False), (1.0, True))  # of comparison, in turn: the part of the tolerance; whether types count
EVIDENCE = 3  # numbers with decimals that must differ from the key's where a version explains a part of what failed
CALLS = 200  # of a check that are compared
LARGE = 4 * 2**20  # bytes of arguments; a larger call is there to measure speed and names no mistake
SECONDS = 15.0  # of this process's own time for a diagnosis: a busy machine names the same mistakes
SECONDS_OF_A_CALL = 5.0  # of the clock, for one version's answer
MEMORY = 2 * 2**30  # bytes that a version may take on top of what this process has
ANSWERS = 20_000  # kept, so that a class costs each mistake once


@dataclass
class Call:
    """What was asked of the learner's code and what came back.

    Tensors are copies that still say whether they need a gradient. error: "Kind: text" of what was raised, or
    "changed NAMES" of arguments that were written to. products, of backward, in its order: gradients that went, one for
    each tensor of the result (None where there is none), and what came: one for each argument that needs a gradient, or
    the text of an error.
    """

    function: str
    args: Any
    kwargs: Any
    result: Any = None
    error: str = ""
    products: list[tuple[Any, Any]] = field(default_factory=list)


def copied(value: Any) -> Any:
    """A copy for a `Call`: data alone, cut from every graph. Raises NotData."""
    tensors: list[torch.Tensor] = []
    tree = pack(value, tensors)
    own = [t.detach().clone().requires_grad_(t.requires_grad) for t in tensors]
    return unpack(
        tree, [mine if t.is_leaf else mine.clone() for t, mine in zip(tensors, own, strict=True)]
    )  # a leaf refuses to be written to


def diagnose(notebook: Notebook, passed: Mapping[str, bool], traces: Mapping[str, Sequence[Call]]) -> dict[str, list[Version]]:
    """The known mistakes that explain the failed checks: check -> versions, several where nothing tells them apart.

    passed: of every check that was judged. traces: what the judge kept, by check. A check that is not in the answer is
    explained by no known mistake. One mistake that explains all of an exercise is preferred to one for each check.
    """
    found: dict[str, list[Version]] = {}
    catalogue = _catalogue(notebook.name, tuple(c for c in notebook.cells if c.kind in REPLAYED))
    with catalogue.guarded():
        for exercise in dict.fromkeys(c.exercise for c in notebook.of_kind("check")):
            of = {c.name: _Trace(traces[c.name]) for c in notebook.of_kind("check") if c.exercise == exercise and traces.get(c.name)}
            failed = {name: trace for name, trace in of.items() if not passed.get(name, True)}
            rest = {name: trace for name, trace in of.items() if passed.get(name)}
            if failed:
                with suppress(_TooLong):  # then no name, rather than half of the names
                    found |= catalogue.explained(exercise, failed, rest)
    return found


def told(candidates: Sequence[Version]) -> str:
    """Candidates in the words of the notebook's own feedback."""
    start = "Perhaps" if len(candidates) > 1 else "It looks like this"
    return "\n".join(f"{start}: {version.summary} [{version.name}]\n  {version.hint}" for version in candidates)


def explain(message: str, exercise: str, notebook: Notebook) -> str:
    """What an error of Python's, told in a verdict's message, usually means in this exercise ("" where that is not known)."""
    match = re.search(r"raised (\w+): (.*)", message, re.DOTALL) or re.search(r"\b(\w*(?:Error|Exception)): (.*)", message, re.DOTALL)
    words = Feedback.meaning(*match.groups()) if match else ""
    given = shapes(notebook).get(exercise)
    if "shape" in words and given:
        words += " The text gives the shapes " + ", ".join(f"{name} {shape}" for name, shape in given.items()) + "."
    return words


class _Trace:
    """The calls of a check that can be compared, each with a digest of what was asked."""

    def __init__(self, calls: Sequence[Call]):
        asked = [(call, _tensors((call.args, call.kwargs))) for call in calls[:CALLS]]
        self.calls = [call for call, tensors in asked if sum(t.numel() * t.itemsize for t in tensors) <= LARGE]
        self.digests = [_digest(call) for call in self.calls]
        self.bytes = sum(t.numel() * t.itemsize for _, tensors in asked for t in tensors)


@functools.lru_cache(maxsize=16)
def _catalogue(name: str, cells: tuple) -> _Catalogue:
    return _Catalogue(Notebook(name, cells))


class _Catalogue:
    """Every version of a notebook's exercises, and what it answered so far."""

    def __init__(self, notebook: Notebook):
        self._notebook = notebook
        self._names: dict[str, dict[str, Any]] = {}
        self._answers: dict[tuple[str, bytes], Call] = {}
        self._end = 0.0

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Versions run in this very process: bounds what they can take of it (they are ours, but what they are asked may be odd)."""
        self._end = time.process_time() + SECONDS
        with warnings.catch_warnings(), _memory_bounded():
            warnings.simplefilter("ignore")  # what torch thinks of a mistake
            yield

    def explained(self, exercise: str, failed: Mapping[str, _Trace], passed: Mapping[str, _Trace]) -> dict[str, list[Version]]:
        wrong = [v for v in versions(self._notebook.name) if v.wrong and v.exercise == exercise]
        differs = {name: self._difference(trace) for name, trace in failed.items()}

        def gives(version: Version, name: str) -> bool:
            return self._gives(version, failed[name], differs[name])

        def best(some: list[Version], least: int = 0) -> list[Version]:
            """Those that give most of what passed, where that is enough."""
            if not some or (len(some) == 1 and not least):
                return some
            agree = [sum(self._gives(v, trace, _Difference()) for trace in passed.values()) for v in some]
            return [v for v, n in zip(some, agree, strict=True) if n == max(agree) and n >= least]

        to_explain = sorted((name for name in failed if differs[name]), key=lambda name: failed[name].bytes)  # the cheapest first
        whole = [v for v in wrong if to_explain and all(gives(v, name) for name in [*to_explain, *(failed.keys() - set(to_explain))])]
        # Many mistakes share words, truth values and whole numbers here or there: where there is nothing else, all must agree.
        whole = best(whole, 0 if any(d.numbers for d in differs.values()) else len(passed))
        if whole:
            return dict.fromkeys(to_explain, whole)
        apart = {name: best([v for v in wrong if gives(v, name)]) for name in to_explain if differs[name].numbers >= EVIDENCE}
        return {name: some for name, some in apart.items() if some}

    def _difference(self, trace: _Trace) -> _Difference:
        """In what a learner's answers differ from the key's."""
        difference = _Difference()
        for call, digest in zip(trace.calls, trace.digests, strict=True):
            if key := self._answer(None, call, digest):
                difference.add(call, key)
        return difference

    def _gives(self, version: Version, trace: _Trace, difference: _Difference) -> bool:
        """Whether a version gives all the learner's answers, compared as closely as is needed to tell them from the key's."""
        for call, digest in zip(trace.calls, trace.digests, strict=True):
            answer = self._answer(version, call, digest)
            if not answer or not _same(_said(answer), _said(call), *difference.closely):
                return False
        return bool(trace.calls)

    def _answer(self, version: Version | None, call: Call, digest: bytes) -> Call | None:
        """What a version (None: the key) gives for a call; None where it takes too long. Raises _TooLong at the end of the time for all."""
        place = (version.name if version else "", digest)
        if place not in self._answers:
            if time.process_time() > self._end:
                raise _TooLong
            if len(self._answers) >= ANSWERS:
                self._answers.clear()
            if place[0] not in self._names:
                self._names[place[0]] = namespace(self._notebook, {version.exercise: version.source} if version else {})
            answer = Call(call.function, None, None)
            try:
                with alarm(SECONDS_OF_A_CALL, _too_long):
                    _replay(self._names[place[0]], call, answer)
            except _TooLong:
                answer.error = "_TooLong: "
            self._answers[place] = answer
        answer = self._answers[place]
        return None if answer.error == "_TooLong: " else answer


class _Difference:
    """How a learner's answers differ from the key's. numbers: how many with decimals do."""

    def __init__(self) -> None:
        self.numbers = 0
        self._seen = [False] * len(LEVELS)

    def add(self, call: Call, key: Call) -> None:
        mine, right = _said(call), _said(key)
        self._seen = [seen or not _same(mine, right, *level) for seen, level in zip(self._seen, LEVELS, strict=True)]
        if not _same(mine, right, *LEVELS[0]):
            self.numbers += _decimals(mine, right)

    def __bool__(self) -> bool:
        return any(self._seen)

    @property
    def closely(self) -> tuple[float, bool]:
        """The first level at which a difference is seen."""
        return next((level for seen, level in zip(self._seen, LEVELS, strict=True) if seen), LEVELS[0])


def _replay(names: Mapping[str, Any], call: Call, answer: Call) -> None:
    """Asks a namespace's function what the learner's was asked; leaves what it says in `answer`."""
    args, kwargs = copied((call.args, call.kwargs))
    places = dict(enumerate(args)) | kwargs
    before = {place: image(value) for place, value in places.items()}
    leaves = [t for t in _tensors((args, kwargs)) if t.requires_grad]
    try:
        result = names[call.function](*args, **kwargs)
        changed = [str(place) for place, value in places.items() if image(value) != before[place]]
        if changed:
            answer.error = f"changed {', '.join(changed)}"
            return
        results = _tensors(result)
        answer.result = copied(result)
    except _TooLong:
        raise
    except Exception as e:
        answer.error = f"{type(e).__name__}: {e}"
        return
    for went, _ in call.products:
        try:
            answer.products.append((None, copied(vjp(results, went, leaves))))
        except _TooLong:
            raise
        except Exception as e:
            answer.products.append((None, f"{type(e).__name__}: {e}"))


def _said(call: Call) -> Any:
    """What came back, as data: the result or the kind of the error, and the products."""
    if call.error:
        return _kind(call.error)
    return [call.result, [_kind(came) if isinstance(came, str) else came for _, came in call.products]]


def _kind(error: str) -> str:
    """An error without the numbers in it, which depend on the machine."""
    return "changed" if error.startswith("changed ") else re.sub(r"[\d,.]+", "#", error)[:80]


def _same(a: Any, b: Any, part: float, types: bool) -> bool:
    """Equal data, numbers within a part of the tolerance. types: dtypes and kinds of numbers and lists count too."""
    if types and (type(a) is not type(b) or (torch.is_tensor(a) and a.dtype != b.dtype)):
        return False
    if torch.is_tensor(a) and torch.is_tensor(b):
        return a.shape == b.shape and a.requires_grad == b.requires_grad and _near(a, b, part)
    if isinstance(a, int | float) and isinstance(b, int | float):
        return a == b or _near(torch.tensor(_float(a)), torch.tensor(_float(b)), part)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(_same(x, y, part, types) for x, y in zip(a, b, strict=True))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same(a[k], b[k], part, types) for k in a)
    return type(a) is type(b) and not torch.is_tensor(a) and a == b


def _near(a: torch.Tensor, b: torch.Tensor, part: float) -> bool:
    a, b = _wide(a), _wide(b)
    finite = a.isfinite()
    if not torch.equal(finite, b.isfinite()):
        return False
    if not bool(finite.all()):
        odd_a, odd_b = a[~finite], b[~finite]
        if not torch.equal(odd_a.nan_to_num(1.5, 2.5, 3.5), odd_b.nan_to_num(1.5, 2.5, 3.5)):
            return False
        a, b = a[finite], b[finite]
    size = b.abs()
    return not a.numel() or bool(((a - b).abs() <= part * (ABSOLUTE + RELATIVE * size + OF_THE_LARGEST * size.max())).all())


def _wide(t: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(t.detach()).double() if t.is_complex() else t.detach().double()


def _decimals(mine: Any, right: Any) -> int:
    """How many numbers with decimals stand in the answer where the key has another; words and whole numbers count for nothing."""
    if isinstance(mine, list | tuple) and isinstance(right, list | tuple) and len(mine) == len(right):
        return sum(_decimals(a, b) for a, b in zip(mine, right, strict=True))
    if isinstance(mine, dict) and isinstance(right, dict) and mine.keys() == right.keys():
        return sum(_decimals(mine[k], right[k]) for k in mine)
    if isinstance(mine, list | tuple | dict):
        return sum(_decimals(v, None) for v in (mine.values() if isinstance(mine, dict) else mine))
    a = _number(mine)
    if a is None:
        return 0
    b = _number(right)
    if b is not None and b.shape == a.shape:
        a = a[~torch.isclose(a, b, rtol=RELATIVE, atol=ABSOLUTE, equal_nan=True)]
    a = a[a.isfinite()]
    return len({f"{x:.5g}" for x in a[(a - a.round()).abs() > 1e-3].tolist()[:100]})


def _number(value: Any) -> torch.Tensor | None:
    if torch.is_tensor(value):
        return _wide(value).flatten()
    return torch.tensor([_float(value)], dtype=torch.float64) if isinstance(value, int | float) else None


def _float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.copysign(math.inf, value)


def _tensors(value: Any) -> list[torch.Tensor]:
    """The tensors in a value, in the order in which they cross. Raises NotData."""
    tensors: list[torch.Tensor] = []
    pack(value, tensors)
    return tensors


def _digest(call: Call) -> bytes:
    """Of all that a call asks."""
    tensors: list[torch.Tensor] = []
    tree = pack((call.args, call.kwargs, [went for went, _ in call.products]), tensors)
    forms = [(str(t.dtype), list(t.shape), t.requires_grad) for t in tensors]
    digest = hashlib.blake2b(json.dumps([call.function, tree, forms]).encode(), digest_size=16)
    for t in tensors:
        digest.update(to_bytes(t))
    return digest.digest()


class _TooLong(BaseException):
    """A version takes longer than it may."""


def _too_long() -> NoReturn:
    raise _TooLong


@contextmanager
def _memory_bounded() -> Iterator[None]:
    """A version that asks for more memory than it may gets an error, as in the learner's process."""
    try:
        with open("/proc/self/statm") as numbers:
            used = int(numbers.read().split()[0]) * resource.getpagesize()
        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    except (OSError, AttributeError):  # not Linux
        yield
        return
    limit = min(x for x in (used + MEMORY, soft, hard) if x != resource.RLIM_INFINITY)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
