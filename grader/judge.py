"""Our side: runs the checks of a notebook, each name that the learner defines standing for a call to the learner's process.

The checks are the master's, unchanged, and run here; the learner's cells run in a jailed process that never sees one.
Arguments go there as data and results come back as data; `backward()` here asks there for the vector-Jacobian product.
Each check is run twice: first what the learner can see, of all checks, then all of them whole. From the first hidden
input on, no word that the learner's code could have chosen reaches a message: else it could tell what it was given.
"""

from __future__ import annotations

import builtins
import inspect
import json
import marshal
import secrets
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, NoReturn

import torch

from grader.asleep import put_to_sleep
from grader.course import Cell, Notebook
from grader.diagnose import Call, copied, diagnose, explain, told
from grader.inprocess import alarm, execute, failure
from grader.jail import JailError, command, environment, layers
from grader.submission import Submission
from grader.wire import LIMIT, Channel, Closed, Late, Malformed, pack, unpack

CALLED = ("solution", "scenario")  # cells whose functions are called in the learner's process
RUN = ("given", "bring", "solution", "scenario", "extra")  # cells that run there
TEXT = 400  # characters of a learner's error in a message
DATA = "tensors, numbers, strings, None, and lists, tuples and dicts of those"


@dataclass(frozen=True)
class Limits:
    """Seconds of the clock, and bytes: of one check, of the cells together, of a hand-in; what crosses in a check."""

    check: float = 10
    cells: float = 30
    hand_in: float = 300
    data: int = LIMIT


@dataclass(frozen=True)
class Verdict:
    """Of one check. points: None for a written answer, which waits for a human. mistake: the name of a known one."""

    exercise: str
    check: str
    title: str
    points: float | None
    max_points: int
    passed: bool
    message: str = ""
    mistake: str | None = None


@dataclass(frozen=True)
class Result:
    """Of one hand-in. notes: what was mended, and what went wrong outside of the checks, a sentence each."""

    notebook: str
    checks: tuple[Verdict, ...]
    notes: tuple[str, ...]

    @property
    def points(self) -> float:
        return sum(v.points for v in self.checks if v.points is not None)

    @property
    def max_points(self) -> int:
        """Without written answers."""
        return sum(v.max_points for v in self.checks if v.points is not None)

    def to_json(self) -> str:
        return json.dumps(asdict(self) | {"points": self.points, "max_points": self.max_points}, ensure_ascii=False)


class Judge:
    """A warm process of the learner's side, and what judges hand-ins with it, one after another."""

    def __init__(self, *, allow_no_jail: bool = False, limits: Limits = Limits()):
        """Raises JailError where there is no jail, unless `allow_no_jail`."""
        if not layers().holds and not allow_no_jail:
            raise JailError(
                "this machine offers no jail for the learners' code: install bubblewrap (apt install bubblewrap) on Linux, "
                "or grade with --no-jail (c.Judge.allow_no_jail for nbgrader): scores stay safe, your files do not"
            )
        put_to_sleep("matplotlib.pyplot")  # given cells import it, checks never draw
        self._limits = limits
        self._warm = _Warm()

    def judge(self, submission: Submission) -> Result:
        """The verdicts on one hand-in. Nothing of it is left afterwards. Raises JailError when the jail breaks."""
        hand_in = _HandIn(self._warm, submission, self._limits)
        try:
            verdicts = self._verdicts(submission.notebook, hand_in)
        finally:
            hand_in.close()
        return Result(
            submission.notebook.name, tuple(_named(submission.notebook, verdicts, hand_in.traces)), submission.notes + tuple(hand_in.notes)
        )

    def close(self) -> None:
        self._warm.close()

    def __enter__(self) -> Judge:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _verdicts(self, notebook: Notebook, hand_in: _HandIn) -> list[Verdict]:
        messages = {check.name: "" for check in notebook.of_kind("check")}
        for hidden in (False, True):
            names = _names(notebook, hand_in)
            for check in notebook.of_kind("check"):
                if not messages[check.name]:
                    messages[check.name] = hand_in.run(check, names, hidden=hidden)
        verdicts = []
        for cell in notebook.of_kind("check", "answer"):
            if cell.kind == "answer":
                title = cell.name.replace("_", " ")
                verdicts.append(Verdict(cell.name, cell.name, title, None, cell.points, False, "This answer waits for a human."))
            else:
                message = messages[cell.name]
                passed = not message
                verdicts.append(Verdict(cell.exercise, cell.name, cell.title, cell.points * passed, cell.points, passed, message))
        return verdicts


def _names(notebook: Notebook, hand_in: _HandIn) -> dict[str, Any]:
    """The names that a check may use: given cells and brought functions of ours, and proxies for what the learner defines."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for cell in notebook.of_kind("given", "bring"):
        execute(cell.source, names, f"<{notebook.name}:{cell.name}>")
    for cell in notebook.of_kind(*CALLED):
        own = dict(names)
        execute(cell.source, own, f"<{notebook.name}:{cell.name}>")  # only for the names of its parameters
        names[cell.name] = hand_in.proxy(cell.name, inspect.signature(own[cell.name]))
    return names


class _Trouble(Exception):
    """A check cannot go on: the learner's process broke a rule. args: words of ours, words that the learner may have chosen."""


class _HandIn:
    """One hand-in: its process, started again where it broke, and the check that runs."""

    def __init__(self, warm: _Warm, submission: Submission, limits: Limits):
        self._warm = warm
        self._limits = limits
        self._end = time.monotonic() + limits.hand_in
        self._cells = [c for c in submission.cells if c.kind in RUN and not c.markdown and c.source.strip()]
        self._cells_left = limits.cells
        self._endless: set[int] = set()  # places of cells at which the process broke, left out from then on
        self._ran: set[int] = set()  # places of cells that came to their end: run again after a crash, they are not held against it
        self._cell_errors: dict[str, str] = {}  # cell name -> what went wrong in it
        self._channel: Channel | None = None
        self._broken: _Trouble | None = None  # sticks to the check, whatever it catches
        self._dead = ""  # why no check can run any more
        self._slow: set[str] = set()  # exercises that hung in a check: the next of theirs get less time
        self._first = True  # call of a check
        self.traces: dict[str, list[Call]] = {}  # check -> calls of its last run, up to where it stopped
        self._calls: list[Call] = []
        self.notes: list[str] = []

    def run(self, check: Cell, names: Mapping[str, Any], *, hidden: bool) -> str:
        """Runs a check, or its visible part. Returns "" when it passes, else what to tell the learner."""
        if not self._ready(tell=not hidden):
            return self._dead
        assert self._channel
        seconds = self._limits.check / (5 if check.exercise in self._slow else 1)
        deadline = min(time.monotonic() + seconds, self._end)
        self._channel.deadline, self._channel.bytes = deadline, 0
        self._broken, self._first = None, True
        self._calls = self.traces[check.name] = []
        try:
            with alarm(seconds + 1, self._late):
                error, _ = failure(check, names, hidden=hidden)
        except _Trouble as e:  # of the alarm, at the last moment
            error = e
        error = self._broken or error
        if self._broken and deadline <= time.monotonic():
            self._slow.add(check.exercise)
        if error is None:
            return ""
        return _hidden_words(check, error) if hidden else _visible_words(check, error)

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
            self._warm.kill()

    def _ready(self, *, tell: bool) -> bool:
        """Whether a process that has run the cells is there; starts one where the last one broke."""
        while not self._dead and not self._channel:
            self._start(tell)
        return not self._dead

    def _start(self, tell: bool) -> None:
        self._channel = self._warm.fork()
        for place, cell in enumerate(self._cells):
            if place in self._endless:
                continue
            started = time.monotonic()
            seconds = self._limits.check if place in self._ran else min(self._limits.check, self._cells_left)
            self._channel.deadline = min(started + seconds, self._end)
            self._broken, where = None, f"cell {cell.name}" if cell.name else "an added cell"
            try:
                reply, _, _ = self._ask(where, {"op": "run", "source": _compiled(cell) if cell.kind == "bring" else cell.source})
            except _Trouble as e:
                self._endless.add(place)
                self._cells_left -= time.monotonic() - started
                self._note(cell, f"{e.args[0].rstrip('.')}; it was left out")
                if self._cells_left <= 0 or time.monotonic() > self._end:
                    self._dead = "The cells of this notebook did not finish in time."
                return
            if place not in self._ran:
                self._cells_left -= time.monotonic() - started
            self._ran.add(place)
            if tell and reply.get("error"):
                self._note(cell, f"{where} stopped with {_error(reply['error'])[2]}")

    def _note(self, cell: Cell, sentence: str) -> None:
        sentence = sentence[0].upper() + sentence[1:] + "."
        self._cell_errors.setdefault(cell.name, sentence)
        if sentence not in self.notes:
            self.notes.append(sentence)

    def _call(self, name: str, signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        tensors: list[torch.Tensor] = []
        head = {"op": "call", "name": name, "args": pack(args, tensors), "kwargs": pack(kwargs, tensors)}
        call = Call(name, *copied((args, kwargs)), error="no answer")
        self._calls.append(call)
        reply, results, flags = self._ask(name, head | {"grad": torch.is_grad_enabled(), "first": self._first}, tensors)
        self._first = False
        if reply.get("missing"):
            self._fail(self._cell_errors.get(name, f"{name} is not defined."))
        call.error = _kept(reply)
        self._raise_error(name, reply)
        try:
            value = unpack(reply.get("result"), results)
            changed = [_parameter(signature, args, place) for place in reply.get("changed", [])]
        except (Malformed, TypeError, ValueError, LookupError):
            self._break(f"What came from the process of {name} is not an answer")
        if changed:
            call.error = f"changed {', '.join(changed)}"
            which = f"its argument {', '.join(map(repr, changed))}"  # in words of the learner's side: it may say anything by them
            self._fail(*(f"{name} changed {what} in place; work on a copy." for what in ("an argument", which)))
        inputs = [t for t in tensors if t.requires_grad]
        outputs = [needs and (r.is_floating_point() or r.is_complex()) for r, (needs, _) in zip(results, flags, strict=True)]
        if any(outputs):
            ask = self._products(name, reply["id"], outputs, inputs, call)
            anchor = torch.zeros((), requires_grad=True)  # results may need gradients though no argument does
            with torch.enable_grad():
                tracked = iter(_Across.apply(ask, [r for r, o in zip(results, outputs, strict=True) if o], anchor, *inputs))
            value = unpack(reply["result"], [next(tracked) if o else r for r, o in zip(results, outputs, strict=True)])
        call.result = copied(value)
        return value

    def _products(self, name: str, ident: int, outputs: list[bool], inputs: list[torch.Tensor], call: Call) -> Callable[..., list[Any]]:
        """What asks the learner's process for the vector-Jacobian products of a call."""

        def ask(gradients: tuple[torch.Tensor | None, ...]) -> list[Any]:
            come = iter(gradients)
            went = [next(come) if o else None for o in outputs]
            tensors: list[torch.Tensor] = []
            head = {"op": "vjp", "call": ident, "grads": pack(went, tensors)}
            reply, results, _ = self._ask(name, head, tensors)
            if kept := _kept(reply):
                call.products.append((copied(went), kept))
            self._raise_error(name, reply)
            try:
                products = unpack(reply.get("result"), results)
                fits = all(p is None or p.shape == i.shape for p, i in zip(products, inputs, strict=True))
            except (Malformed, TypeError, ValueError, AttributeError):
                fits = False
            if not fits:
                self._break(f"What came from the process of {name} is not a gradient")
            call.products.append(copied((went, products)))
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
        except Closed:
            self._break(f"{name} ended its process")
        except Late:
            self._break(f"{name} did not finish in time")
        except Malformed:
            self._break(f"What came from the process of {name} is not an answer")
        if reply.get("id") != ident:
            self._break(f"{name} sent an answer that nobody had asked for")
        if self._channel.bytes > self._limits.data:
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
            error, kind, text = _error(reply["error"])
            where = str(reply["error"].get("where", "")) if isinstance(reply["error"], dict) else ""
            text += f" (in {where[:60]})" if where.isidentifier() and where != name else ""
            ours = f"{name} is not written yet." if kind == "NotImplementedError" else f"{name} raised an error."
            error._words = (ours, ours if kind == "NotImplementedError" else f"{name} raised {text}")
            raise error

    def _fail(self, ours: str, theirs: str = "") -> NoReturn:
        """Fails the check, whatever it catches; the process lives on."""
        self._broken = _Trouble(ours, theirs or ours)
        raise self._broken

    def _break(self, sentence: str) -> NoReturn:
        """Fails the check and ends the process; the next check gets a new one."""
        self.close()
        self._fail(sentence + ".")

    def _late(self) -> NoReturn:
        """Ends a check of ours that runs on and on over what the learner's function gave back."""
        self._break("the check did not finish in time with what came back")


class _Across(torch.autograd.Function):
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


def _error(said: Any) -> tuple[Exception, str, str]:
    """An error that came over the channel: as Python's own kind, the name of that kind, and its text ("KeyError: 'a'")."""
    kind, name, text = (str(said.get(key, "")) if isinstance(said, dict) else "" for key in ("kind", "name", "text"))
    made = getattr(builtins, kind, None)
    if not (isinstance(made, type) and issubclass(made, BaseException)):
        made, kind = RuntimeError, "RuntimeError"
    text = f"{name[:60]}: {text[:TEXT]}" if text else name[:60]
    try:
        return (made if issubclass(made, Exception) else RuntimeError)(text.partition(": ")[2]), kind, text
    except TypeError:  # a kind that wants other arguments
        return RuntimeError(text), kind, text


def _compiled(cell: Cell) -> str:
    """A cell of the course's own that runs on the learner's side, without its text: it answers an exercise of an earlier notebook."""
    code = marshal.dumps(compile(cell.source, f"<{cell.name}>", "exec", optimize=2))
    return f"import marshal\nexec(marshal.loads({code!r}))"


def _visible_words(check: Cell, error: Exception) -> str:
    if isinstance(error, _Trouble):
        return _plain(error.args[1])
    if hasattr(error, "_words"):
        return _plain(error._words[1])
    if isinstance(error, AssertionError):
        return _plain(str(error)) or f"{check.title}: this does not hold."
    return _plain(f"The check could not use what came back: {type(error).__name__}: {error}")


def _hidden_words(check: Cell, error: Exception) -> str:
    if isinstance(error, _Trouble):
        return f"{check.title}: in a hidden test, {error.args[0]}"
    if hasattr(error, "_words"):
        return f"{check.title}: in a hidden test, {error._words[0]}"
    if isinstance(error, AssertionError):
        return f"{check.title}: a hidden test fails."
    return f"{check.title}: a hidden test could not use what came back ({type(error).__name__})."


def _plain(text: str) -> str:
    """Text that may hold a learner's words, fit for a terminal and a web page's escape function."""
    return "".join(c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in text[: 4 * TEXT])


def _parameter(signature: inspect.Signature, args: tuple[Any, ...], place: Any) -> str:
    """The name of the parameter of an argument, by its position or keyword."""
    if isinstance(place, str):
        return place if place in signature.parameters else "?"
    return list(signature.bind_partial(*args[: int(place) + 1]).arguments)[-1]


def _named(notebook: Notebook, verdicts: list[Verdict], traces: Mapping[str, list[Call]]) -> Iterator[Verdict]:
    """The verdicts, with the known mistakes that explain what failed, or what a common error of Python's means."""
    try:
        found = diagnose(notebook, {v.check: v.passed for v in verdicts if v.points is not None}, traces)
    except Exception:  # of something that nobody thought of in an answer: no name is worth a grade
        found = {}
    for v in verdicts:
        if v.check in found:
            names = " or ".join(version.name for version in found[v.check])
            yield replace(v, mistake=names, message=f"{v.message}\n{told(found[v.check])}")
        elif not v.passed and (words := explain(v.message, v.exercise, notebook)):
            yield replace(v, message=f"{v.message}\n{words}")
        else:
            yield v


def _kept(reply: dict[str, Any]) -> str:
    """What a diagnosis keeps of an error ("" where there is none)."""
    if "refused" in reply:
        return f"NotData: {reply['refused']}"[:TEXT]
    return _error(reply["error"])[2] if "error" in reply else ""


class _Warm:
    """The warm process of the learner's side. It starts at once and is waited for when it is first needed."""

    def __init__(self) -> None:
        self._launch()

    def _launch(self) -> None:
        self._control, theirs = socket.socketpair()
        self._control.settimeout(120)
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  closed by close()
        arguments = command(["-P", "-m", "grader.worker", str(theirs.fileno()), json.dumps(asdict(layers()))], layers())
        self._process = subprocess.Popen(
            arguments,
            pass_fds=[theirs.fileno()],
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
        )
        theirs.close()
        self._is_warm = False

    def fork(self) -> Channel:
        """A channel to a new jailed process that has run nothing yet. Raises JailError."""
        try:
            return self._fork()
        except (OSError, EOFError):  # something outside ended it; once more
            self.close()
            self._launch()
        try:
            return self._fork()
        except (OSError, EOFError) as e:
            raise JailError(f"the learner's side does not start: {self._last_words() or type(e).__name__}; see grader doctor") from None

    def _fork(self) -> Channel:
        if not self._is_warm:
            self._hear(b"w")
            self._is_warm = True
            self._control.settimeout(20)
        ours, theirs = socket.socketpair()
        channel = Channel(ours)
        try:
            with theirs:
                socket.send_fds(self._control, [b"f"], [theirs.fileno()])
            self._hear(b"f")
            channel.deadline = time.monotonic() + 20
            channel.receive()  # its first word: it is in the jail
        except (OSError, EOFError, Closed, Late) as e:
            channel.close()
            raise EOFError("a hand-in's process does not start") from e
        return channel

    def kill(self) -> None:
        """Ends the last fork and everything that it started."""
        try:
            self._control.sendall(b"k")
            self._hear(b"k")
        except (OSError, EOFError):
            self.close()
            self._launch()

    def close(self) -> None:
        self._control.close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._errors.close()

    def _hear(self, word: bytes) -> None:
        if self._control.recv(1) != word:
            raise EOFError

    def _last_words(self) -> str:
        self._errors.seek(0)
        return (self._errors.read().strip().splitlines() or [""])[-1]
