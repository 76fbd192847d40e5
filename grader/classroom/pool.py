"""Processes that judge hand-ins ahead of the one that writes the gradebook: those of this machine. Those of a cluster: cluster.py."""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
from collections import Counter, deque
from collections.abc import Callable, Generator, Sequence
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, TypeVar, cast

import nbformat.v4
from nbformat import NotebookNode

from grader.classroom.autograding import autograde
from grader.intake.match import Unreadable
from grader.judge.verdict import Result
from grader.sandbox.jail import JailError

T = TypeVar("T")
Work = tuple[T, Path, Path, Path]  # whose it is, the hand-in, the class's source notebook, the folder of results
Answer = tuple[Result, str] | str  # what was judged and the text of the autograded notebook, or why there is none
AHEAD = 2  # hand-ins at a judge: one at work, one waiting, so that it never waits for the gradebook
TRIES = 2  # a judge that was killed is replaced, and its hand-in tried once more
KILLED = f"the judge was killed {TRIES} times while it was at work on it; look at the file by hand"


def judged(work: Sequence[Work[T]], jobs: int, *, allow_no_jail: bool = False) -> Generator[tuple[T, Answer], None, None]:
    """Yields each hand-in as soon as it is judged, with what came of it.

    Raises what makes judging impossible for all: OSError (a full disk), JailError.
    """
    waiting = deque(work)
    tries: Counter[Path] = Counter()
    pool: dict[Connection, deque[Work[T]]] = {}
    try:
        while waiting or any(pool.values()):
            while waiting and len(pool) < jobs:
                pool[_start(allow_no_jail)] = deque()
            for pipe, tasks in pool.items():
                while waiting and len(tasks) < AHEAD:
                    tasks.append(waiting.popleft())
                    with contextlib.suppress(BrokenPipeError):  # it is dead: to be seen when it is listened to
                        pipe.send(tasks[-1][1:])
            for pipe in cast("list[Connection]", wait([pipe for pipe, tasks in pool.items() if tasks])):
                try:
                    answer = pipe.recv()
                except (EOFError, ConnectionError):  # it was killed, or died of the hand-in it was at
                    first, *others = pool.pop(pipe)
                    waiting.extendleft(reversed(others))
                    tries[first[1]] += 1
                    if tries[first[1]] < TRIES:
                        waiting.appendleft(first)
                    else:
                        yield first[0], KILLED
                else:
                    if isinstance(answer, Exception):
                        raise answer
                    yield pool[pipe].popleft()[0], answer
    finally:
        for pipe in pool:
            pipe.close()


def _start(allow_no_jail: bool) -> Connection:
    """Starts a judge. It ends by itself when the other end of its pipe is gone, however that came about."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    resource_tracker.ensure_running()  # its start would unblock the signal
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])  # the child inherits it: Ctrl-C is for us alone, below
    try:
        context.Process(target=_answer, args=(theirs, allow_no_jail), daemon=True).start()
    finally:
        theirs.close()
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGINT, before)
    for number in came[:1]:
        signal.raise_signal(number)
    return ours


def _answer(pipe: Connection, allow_no_jail: bool) -> None:
    """The life of a judge: hand-ins come in through the pipe, answers go out."""
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            try:
                answer: Answer | Exception = answer_of(autograde, *pipe.recv(), allow_no_jail=allow_no_jail)
            except (OSError, JailError) as e:  # this machine's, not the hand-in's
                answer = e
            pipe.send(answer)


def answer_of(judge: Callable[..., tuple[Result, NotebookNode]], *arguments: Any, allow_no_jail: bool = False) -> Answer:
    """What came of a hand-in that `judge` judges. Raises OSError and JailError."""
    try:
        result, nb = judge(*arguments, allow_no_jail=allow_no_jail)
        return result, nbformat.v4.writes(nb) + "\n"
    except Unreadable as e:
        return str(e)
    except (OSError, JailError):
        raise
    except Exception as e:  # ours, of something that nobody thought of in a hand-in: the class goes on
        return f"the grader itself failed on it ({type(e).__name__}: {e}); look at the file by hand"
