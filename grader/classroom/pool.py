"""Processes that judge hand-ins ahead of the one that writes the gradebook."""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from grader.classroom.atomic import write_whole
from grader.classroom.nbgrader_steps import load_result, read_master
from grader.intake.match import Unreadable, read_submission

if TYPE_CHECKING:
    from grader.judge.judge import Judge

T = TypeVar("T")
Work = tuple[T, Path, Path, Path]  # whose it is, the hand-in, the class's source notebook, where the result goes
AHEAD = 2  # hand-ins at a judge: one at work, one waiting, so that it never waits for the gradebook
TRIES = 2  # a judge that was killed is replaced, and its hand-in tried once more


def judged(work: Sequence[Work[T]], jobs: int, *, allow_no_jail: bool = False) -> Iterator[tuple[T, str]]:
    """Yields each hand-in as soon as its result lies in its place, with the reason when it has none ("" when it has).

    Raises what makes judging impossible for all: OSError (a full disk), JailError.
    """
    waiting: deque[Work[T]] = deque()
    for item in work:
        if load_result(item[3]):
            yield item[0], ""
        else:
            waiting.append(item)
    tries: Counter[Path] = Counter()
    crew: dict[Connection, deque[Work[T]]] = {}
    try:
        while waiting or any(crew.values()):
            while waiting and len(crew) < jobs:
                crew[_judge(allow_no_jail)] = deque()
            for pipe, tasks in crew.items():
                while waiting and len(tasks) < AHEAD:
                    tasks.append(waiting.popleft())
                    with contextlib.suppress(BrokenPipeError):  # it is dead: to be seen when it is listened to
                        pipe.send(tasks[-1][1:])
            for pipe in wait([pipe for pipe, tasks in crew.items() if tasks]):
                try:
                    answer = pipe.recv()
                except (EOFError, ConnectionError):  # it was killed, or died of the hand-in it was at
                    first, *others = crew.pop(pipe)
                    waiting.extendleft(reversed(others))
                    tries[first[1]] += 1
                    if tries[first[1]] < TRIES:
                        waiting.appendleft(first)
                    else:
                        yield first[0], f"the judge was killed {TRIES} times while it was at work on it; look at the file by hand"
                else:
                    if isinstance(answer, Exception):
                        raise answer
                    yield crew[pipe].popleft()[0], answer
    finally:
        for pipe in crew:
            pipe.close()


def _judge(allow_no_jail: bool) -> Connection:
    """Starts a judge. It ends by itself when the other end of its pipe is gone, however that came about."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    resource_tracker.ensure_running()  # its start would unblock the signal
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])  # the child inherits it: Ctrl-C is for us alone, below
    try:
        context.Process(target=_serve, args=(theirs, allow_no_jail), daemon=True).start()
    finally:
        theirs.close()
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGINT, before)
    for number in came[:1]:
        signal.raise_signal(number)
    return ours


def _serve(pipe: Connection, allow_no_jail: bool) -> None:
    from grader.judge.judge import JailError, Judge  # here, so that the process that writes the gradebook does without torch

    try:
        with Judge(allow_no_jail=allow_no_jail) as judge, contextlib.suppress(EOFError):
            while True:
                pipe.send(_judge_one(judge, *pipe.recv()))
    except (OSError, JailError) as e:
        with contextlib.suppress(OSError):
            pipe.send(e)


def _judge_one(judge: Judge, path: Path, source: Path, place: Path) -> str:
    """Puts a hand-in's result in its place. Returns why there is none ("" when there is). Raises OSError and JailError."""
    from grader.judge.judge import JailError

    try:
        submission = read_submission(path.read_bytes(), path.name, [read_master(source)[1]])
        result = judge.judge(submission).to_json()
    except Unreadable as e:
        return str(e)
    except (OSError, JailError):  # this machine's, not the hand-in's
        raise
    except Exception as e:  # ours, of something that nobody thought of in a hand-in: the class goes on
        return f"the grader itself failed on it ({type(e).__name__}: {e}); look at the file by hand"
    write_whole(place, result)
    return ""
