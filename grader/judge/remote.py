"""One hand-in in the learner's process: its cells run there, its functions are called from here.

Arguments go there as data and results come back as data; `backward()` here asks there for the vector-Jacobian product.
Where the process breaks (a crash, a hang, an answer that is none) the check that ran fails, and the next one gets a new
process in which the cells have run again.
"""

from __future__ import annotations

import builtins
import inspect
import json
import marshal
import math
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import torch

from grader.course.source import Cell
from grader.course.trusted import alarm, failure, memory
from grader.intake.static_analysis import additions, after
from grader.judge.process import WarmProcess
from grader.sandbox.protocol import LIMIT, Channel, Closed, Late, Malformed, NotData, pack, to_bytes, unpack

RUN = ("given", "bring", "solution", "scenario", "extra")  # cells that run there
TEXT = 400  # characters of a learner's error in a message
PATIENCE = 3
NOTES = 20  # of how the cells ran
DATA = "tensors, numbers, strings, None, and lists, tuples and dicts of those"


@dataclass(frozen=True)
class Limits:
    """Seconds: of the learner's processor time for a check and for the cells together, of the clock for a whole hand-in.

    By the clock a check and the cells may take PATIENCE times as long: a busy machine costs nobody a point, and who sleeps
    does not sleep long.
    """

    check: float = 10
    cells: float = 30
    hand_in: float = 300
    memory: int = 4 * 2**30  # bytes that a check of ours may take to look at what came back


class Violation(Exception):
    """A check cannot go on: the learner's process broke a rule.

    safe: words of ours alone. untrusted: words that the learner's code may have chosen; fit for visible input only.
    """

    def __init__(self, safe: str, untrusted: str = ""):
        super().__init__(safe)
        self.safe, self.untrusted = safe, untrusted or safe


@dataclass(frozen=True)
class RemoteError:
    """What the learner's function raised, kept beside the exception of Python's own that stands for it in our process.

    kind: the name of that kind, text: its message, told: both, with its own name, where: the function of the notebook in
    which it arose ("" if in none).
    """

    function: str
    kind: str
    text: str
    told: str
    where: str

    @property
    def is_open(self) -> bool:
        """Whether it is what a stub raises."""
        return self.kind == "NotImplementedError" and not self.text


class Session:
    """One hand-in: its process, started again where it broke, and the check that runs."""

    def __init__(self, process: WarmProcess, cells: Sequence[Cell], limits: Limits):
        self._process = process
        self._limits = limits
        self._end = time.monotonic() + limits.hand_in
        self._cpu_end = self._clock_end = math.inf  # of what runs now: of the process's processor time, of the clock
        self._cells = [c for c in cells if c.kind in RUN and not c.markdown and c.source.strip()]
        self._cells_left = limits.cells
        self._endless: set[int] = set()  # places of cells at which the process broke: from then on only their definitions run
        self._ran: set[int] = set()  # places of cells that came to their end: run again after a crash, they are not held against it
        self._cell_errors: dict[str, str] = {}  # cell name -> what went wrong in it
        self._channel: Channel | None = None
        self._broken: Violation | None = None  # sticks to the check, whatever it catches
        self._dead = ""  # why no check can run any more
        self._slow: set[str] = set()  # exercises that hung in a check: the next of theirs get less time
        self._first = True  # call of a check
        self._exercise = ""  # of the check that runs
        self._raised: list[tuple[Exception, RemoteError]] = []  # in the check that runs
        self.notes: list[str] = []

    def run(self, check: Cell, names: Mapping[str, Any], *, hidden: bool) -> tuple[Exception | None, dict[str, Any]]:
        """Runs a check, or its visible part, alone. Returns what it raised (None when it passes) and its variables."""
        while not self._dead and not self._channel:
            self._start(tell=not hidden)
        if self._dead or not self._channel:
            return Violation(self._dead), {}
        seconds = self._limits.check / (5 if check.exercise in self._slow else 1)
        self._allow(seconds)
        self._channel.bytes = 0
        self._broken, self._first, self._exercise = None, True, check.exercise
        self._raised.clear()
        own: dict[str, Any] = {}
        try:
            with alarm(seconds, self._late), memory(self._limits.memory):
                error, own = failure(check, names, hidden=hidden)
        except Violation as e:  # of the alarm, at the last moment
            error = e
        return self._broken or error, own

    def remote_error(self, error: Exception | None) -> RemoteError | None:
        """What an exception that the last check ended with stands for (None: it arose on our side)."""
        return next((remote for raised, remote in self._raised if raised is error), None)

    def proxy(self, name: str, signature: inspect.Signature) -> Callable[..., Any]:
        """A function that calls the learner's function `name`."""

        def proxy(*args: Any, **kwargs: Any) -> Any:
            return self._call(name, signature, args, kwargs)

        proxy.__name__ = proxy.__qualname__ = name
        return proxy

    def close(self) -> None:
        if self._channel:
            self._channel.close()
            self._channel = None
            self._process.kill()

    def _start(self, *, tell: bool) -> None:
        """Starts a process in which the cells run; where one of them breaks it, there is none."""
        self._channel = self._process.fork()
        for place, cell in enumerate(self._cells):
            started = time.monotonic()
            seconds = self._limits.check if place in self._ran else min(self._limits.check, self._cells_left)
            before = self._allow(seconds)
            self._broken = None
            try:
                self._run_cell(cell, tell)
            except Violation as e:
                self._cells[place] = replace(cell, source=additions(cell.source, "", set()) if place not in self._endless else "")
                self._endless.add(place)
                self._cells_left -= min(seconds, time.monotonic() - started)  # its processor time is not known any more
                if tell:  # not once a hidden input has been seen: when a cell breaks is the learner's choice
                    self._note(cell, f"{e.safe.rstrip('.')}; only what it defines was kept")
                if self._cells_left <= 0 or time.monotonic() > self._end:
                    self._dead = "The cells of this notebook did not finish in time."
                return
            if place not in self._ran:
                self._cells_left -= self._process.cpu_seconds() - before
            self._ran.add(place)

    def _allow(self, seconds: float) -> float:
        """Lets what is asked next take so many seconds of processor time. Returns how many the process has used."""
        assert self._channel
        now, used = time.monotonic(), self._process.cpu_seconds()
        self._cpu_end, self._clock_end = used + seconds, min(now + PATIENCE * seconds, self._end)
        self._channel.deadline, self._channel.more_time = min(now + seconds, self._clock_end), self._more_time
        return used

    def _more_time(self) -> float:
        return min(self._cpu_end - self._process.cpu_seconds(), self._clock_end - time.monotonic())

    def _run_cell(self, cell: Cell, tell: bool) -> None:
        """Runs a cell; where a statement of it fails, those that follow run all the same."""
        where = f"cell {cell.name}" if cell.name else f"the code from line {cell.line}" if cell.line else "an added cell"
        source = cell.source
        if cell.kind == "bring":  # the course's own, without its text: it answers an exercise of an earlier notebook
            code = marshal.dumps(compile(source, f"<{cell.name}>", "exec", optimize=2))
            source = f"import marshal\nexec(marshal.loads({code!r}))"
        reached = 0
        while source.strip():
            reply, _, _ = self._ask(where, {"op": "run", "source": source})
            if not reply.get("error"):
                return
            line = reply.get("line")
            before, reached = reached, line if isinstance(line, int) else 0
            source = after(source, reached) if reached > before else ""
            if tell:
                where = f"line {cell.line + reached - 1}" if reached and cell.line and not cell.name else where  # of a Python file
                told = _error(where, reply["error"])[1].told
                kept = f"{where} stopped with {told}; what follows it was run all the same"
                self._note(cell, kept if source else f"{where} stopped with {told}")

    def _note(self, cell: Cell, sentence: str) -> None:
        sentence = " ".join(printable(sentence[0].upper() + sentence[1:] + ".").split())  # one line: no note looks like another
        self._cell_errors.setdefault(cell.name, sentence)
        if sentence not in self.notes and len(self.notes) < NOTES:
            self.notes.append(sentence)

    def _call(self, name: str, signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        tensors: list[torch.Tensor] = []
        head = {"op": "call", "name": name, "args": pack(args, tensors), "kwargs": pack(kwargs, tensors)}
        reply, results, flags = self._ask(name, head | {"grad": torch.is_grad_enabled(), "first": self._first}, tensors)
        self._first = False
        if reply.get("missing"):
            self._fail(self._cell_errors.get(name, f"{name} is not defined."))
        self._raise_error(name, reply)
        count, arguments, places = reply.get("results"), reply.get("arguments"), dict(enumerate(args)) | kwargs
        if type(count) is not int or not 0 <= count <= len(results) or not isinstance(arguments, list) or len(arguments) != len(places):
            self._break(f"What came from the process of {name} is not an answer")
        changed = [
            _parameter(signature, args, place)
            for (place, value), tree in zip(places.items(), arguments, strict=True)
            if _snapshot(value) != _snapshot_of_tree(tree, results)
        ]
        try:
            results, flags = results[:count], flags[:count]
            value = unpack(reply["result"], results)
        except (Malformed, LookupError):
            self._break(f"What came from the process of {name} is not an answer")
        if changed:
            which = f"its argument {', '.join(map(repr, changed))}"  # of the learner's choice: it may say anything by them
            self._fail(*(f"{name} changed {what} in place; work on a copy." for what in ("an argument", which)))
        inputs = [t for t in tensors if t.requires_grad]
        outputs = [needs and (r.is_floating_point() or r.is_complex()) for r, (needs, _) in zip(results, flags, strict=True)]
        if any(outputs):
            ask = self._products(name, reply["id"], outputs, inputs)
            anchor = torch.zeros((), requires_grad=True)  # results may need gradients though no argument does
            with torch.enable_grad():
                tracked = iter(RemoteFunction.apply(ask, [r for r, o in zip(results, outputs, strict=True) if o], anchor, *inputs))
            value = unpack(reply["result"], [next(tracked) if o else r for r, o in zip(results, outputs, strict=True)])
        return value

    def _products(self, name: str, ident: int, outputs: list[bool], inputs: list[torch.Tensor]) -> Callable[..., list[Any]]:
        """What asks the learner's process for the vector-Jacobian products of a call."""

        def ask(gradients: tuple[torch.Tensor | None, ...]) -> list[Any]:
            given = iter(gradients)
            tensors: list[torch.Tensor] = []
            head = {"op": "vjp", "call": ident, "grads": pack([next(given) if o else None for o in outputs], tensors)}
            reply, results, _ = self._ask(name, head, tensors)
            self._raise_error(name, reply)
            try:
                products = unpack(reply.get("result"), results)
                fits = all(p is None or p.shape == i.shape for p, i in zip(products, inputs, strict=True))
            except (Malformed, TypeError, ValueError, AttributeError):
                fits = False
            if not fits:
                self._break(f"What came from the process of {name} is not a gradient")
            return products

        return ask

    def _ask(
        self, name: str, head: dict[str, Any], tensors: list[torch.Tensor] | tuple[()] = ()
    ) -> tuple[dict[str, Any], list[torch.Tensor], list[tuple[bool, bool]]]:
        if self._broken:
            raise self._broken
        assert self._channel
        ident = secrets.randbits(52)  # an answer that was sent too early cannot know it
        try:
            self._channel.send(head | {"id": ident}, tensors)
            reply, results, flags = self._channel.receive()
        except NotData:
            self._fail(f"{name} is or was given more than can cross to its process.")
        except Closed:
            self._break(f"{name} ended its process")
        except Late:
            self._slow.add(self._exercise)
            self._break(f"{name} did not finish in time")
        except Malformed:
            self._break(f"What came from the process of {name} is not an answer")
        if reply.get("id") != ident:
            self._break(f"{name} sent an answer that nobody had asked for")
        if self._channel.bytes > LIMIT:
            self._break(f"{name} gave back more data than a check may use")
        return reply, results, flags

    def _raise_error(self, name: str, reply: dict[str, Any]) -> None:
        """Raises what the learner's function raised, as Python's own kind of error."""
        if "refused" in reply:
            self._fail(
                f"{name} gave back something that is not data; allowed are {DATA}.",
                f"{name} gave back {str(reply['refused'])[:TEXT]}; allowed are {DATA}.",
            )
        if "error" in reply:
            error, remote = _error(name, reply["error"])
            self._raised.append((error, remote))
            raise error

    def _fail(self, ours: str, theirs: str = "") -> NoReturn:
        """Fails the check, whatever it catches; the process lives on."""
        self._broken = Violation(ours, theirs)
        raise self._broken

    def _break(self, sentence: str) -> NoReturn:
        """Fails the check and ends the process; the next check gets a new one."""
        self.close()
        self._fail(sentence + ".")

    def _late(self) -> NoReturn:
        """Ends a check of ours that runs on and on over what the learner's function gave back."""
        self._slow.add(self._exercise)
        self._break("the check did not finish in time with what came back")


class RemoteFunction(torch.autograd.Function):
    """The node of our graph that stands for a call: backward asks the learner's process."""

    @staticmethod
    def forward(
        ctx: Any, ask: Callable[..., list[Any]], results: list[torch.Tensor], anchor: torch.Tensor, *inputs: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        ctx.ask = ask
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(anchor)
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> tuple[Any, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError("gradients of gradients do not cross to the learner's process")
        _ = ctx.saved_tensors  # raises when backward is called a second time, as in a notebook
        return (None, None, None, *ctx.ask(gradients))


def _error(function: str, said: Any) -> tuple[Exception, RemoteError]:
    """An error that came over the channel: as Python's own kind, and what is known of it."""
    facts = said if isinstance(said, dict) else {}
    kind, name, where = (str(facts.get(key, ""))[:60] for key in ("kind", "name", "where"))
    text = str(facts.get("text", ""))[:TEXT]
    told = f"{name}: {text}" if text else name
    made = getattr(builtins, kind, None)
    if not (isinstance(made, type) and issubclass(made, Exception)):
        made = RuntimeError
    try:
        error = made(text) if text else made()
    except TypeError:  # a kind that wants other arguments
        error = RuntimeError(told)
    return error, RemoteError(function, type(error).__name__, text, told, where if where.isidentifier() else "")


def _snapshot(value: Any) -> Any:
    """Equal for equal values, NaN included."""
    tensors: list[torch.Tensor] = []
    return json.dumps(pack(value, tensors)), [(t.dtype, t.shape, to_bytes(t)) for t in tensors]


def _snapshot_of_tree(tree: Any, tensors: Sequence[torch.Tensor]) -> Any:
    """The snapshot of an argument that came back; None for what is no data any more."""
    try:
        return _snapshot(unpack(tree, tensors))
    except (Malformed, NotData):
        return None


def _parameter(signature: inspect.Signature, args: tuple[Any, ...], place: Any) -> str:
    """The name of the parameter of an argument, by its position or keyword."""
    if isinstance(place, str):
        return place if place in signature.parameters else "?"
    return list(signature.bind_partial(*args[: int(place) + 1]).arguments)[-1]


def printable(text: str) -> str:
    """Text that may hold a learner's words, fit for a terminal and a web page's escape function."""
    return "".join(c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in text[: 4 * TEXT])
