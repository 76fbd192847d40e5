"""Runs a notebook's cells in this very process: for the course's own code and known mistakes, never for a hand-in."""

from __future__ import annotations

import contextlib
import importlib
import linecache
import resource
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

from grader.course.source import Cell, Notebook

REPLAYED = ("given", "solution", "bring", "scenario")  # what a check may rely on


def namespace(notebook: Notebook, answers: Mapping[str, str] = {}) -> dict[str, Any]:
    """The names that a check may use, with the source in `answers` (by exercise) in the place of the key's."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for cell in notebook.of_kind(*REPLAYED):
        execute(answers.get(cell.name, cell.source), names, f"<{notebook.name}:{cell.name}>")
    return names


def import_torch() -> None:
    """Ctrl-C waits for it: in the midst, C++ would end the process in words of its own."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        importlib.import_module("torch")
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def execute(source: str, names: dict[str, Any], filename: str) -> None:
    """Executes source text so that tracebacks and inspect can show its lines; what it prints is for learners, not for us."""
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    with contextlib.redirect_stdout(None):
        exec(compile(source, filename, "exec"), names)


def failure(check: Cell, names: Mapping[str, Any], *, hidden: bool = True) -> tuple[Exception | None, dict[str, Any]]:
    """What a check raises when it is run alone in a copy of `names` (None when it passes), and the copy."""
    own = dict(names)
    try:
        execute(check.source if hidden else check.visible, own, f"<check:{check.name}>")
    except Exception as e:  # whatever a wrong answer makes of a check
        return e, own
    return None, own


@contextlib.contextmanager
def memory(size: int) -> Iterator[None]:
    """Lets what runs inside take so many bytes more than there are now: two small tensors can broadcast to one that nobody can hold."""
    before, hard = resource.getrlimit(resource.RLIMIT_AS)
    with contextlib.suppress(FileNotFoundError), open("/proc/self/statm") as pages:
        most = int(pages.read().split()[0]) * resource.getpagesize() + size
        resource.setrlimit(resource.RLIMIT_AS, (min(x for x in (most, before, hard) if x >= 0), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (before, hard))


@contextlib.contextmanager
def alarm(seconds: float, ring: Callable[[], NoReturn]) -> Iterator[None]:
    """Calls `ring`, which raises, in the midst of what uses more processor time; only the main thread can be interrupted so."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return
    before = signal.signal(signal.SIGPROF, lambda *_: ring())
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
