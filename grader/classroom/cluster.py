"""Processes that judge hand-ins ahead of the one that writes the gradebook: those of a Ray cluster.

The machines share no files: bytes go out, bytes come back, and what is kept lies with the writer. A task holds a whole processor,
and Ray gives the next task to the same process, where the judge and its jailed process are warm.
"""

from __future__ import annotations

import logging
import os
import socket
from collections import Counter, deque
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from grader.classroom.atomic import write_atomically
from grader.classroom.autograding import autograde_bytes, keep_tables, load_result, read_master, result_id, version
from grader.classroom.pool import AHEAD, KILLED, TRIES, Answer, T, Work, answer_of
from grader.judge.verdict import Result
from grader.sandbox.jail import JailError

PATIENCE = 10  # seconds without an answer after which the cluster is looked at again


class ClusterError(Exception):
    """The cluster cannot be worked on; the message is one sentence."""


def judged(
    work: Sequence[Work[T]], address: str, jobs: int | None, *, allow_no_jail: bool = False, say: Callable[[str], None] = print
) -> Generator[tuple[T, Answer], None, None]:
    """Yields each hand-in as soon as it is judged, with what came of it, as `pool.judged` does.

    address: as ray.init takes it, "local" for a cluster of this machine alone. jobs: hand-ins judged side by side (None: one a
    processor). Raises what makes judging impossible for all: ClusterError, OSError (a full disk).
    """
    if not work:
        return
    ray = _connected(address)
    try:
        machines = sum(node["Alive"] for node in ray.nodes())
        say(f"Ray at {address}: machines {machines}, processors {_processors(ray, address)}")
        judge = ray.remote(num_cpus=1, max_retries=0)(_judge)  # tried again below
        errors = ray.exceptions
        lost = errors.WorkerCrashedError, errors.NodeDiedError, errors.OutOfMemoryError, errors.ObjectLostError
        sources: dict[Path, Any] = {}  # sent to each machine once
        waiting = deque(work)
        tries: Counter[Path] = Counter()
        running: dict[Any, tuple[Work[T], Path, Result | None]] = {}
        while waiting or running:
            room = jobs or AHEAD * _processors(ray, address)
            while waiting and len(running) < room:
                item = waiting.popleft()
                _, path, source, results = item
                data = path.read_bytes()
                master = read_master(source)
                file = results / f"{result_id(data, master)}.json"
                kept = load_result(file)
                if source not in sources:
                    sources[source] = ray.put(master.data)
                task = judge.remote(version(), data, path.name, sources[source], source, kept, allow_no_jail)
                running[task] = item, file, kept
            for task in ray.wait(list(running), timeout=PATIENCE)[0]:
                item, file, kept = running.pop(task)
                try:
                    answer: Answer | Exception = ray.get(task)
                except lost:
                    tries[item[1]] += 1
                    if tries[item[1]] < TRIES:
                        say(f"{item[1]}: the process or the machine that was at work on it died; it is tried again")
                        waiting.appendleft(item)
                        continue
                    answer = KILLED
                if isinstance(answer, Exception):
                    raise answer
                if not isinstance(answer, str) and not kept:
                    write_atomically(file, answer[0].to_json())
                yield item[0], answer
    except ray.exceptions.RayError as e:
        raise ClusterError(f"Ray at {address}: {_last_line(e)}; see to it and run this again: what was graded is kept") from None
    finally:
        ray.shutdown()


def _connected(address: str) -> ModuleType:
    """Ray, with this process in a cluster. Raises ClusterError."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # it tells nobody of a class
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", "(?s).*")  # pages of state for each machine that dies; we have a line for that
    try:
        import ray  # here: an extra
    except ImportError:
        raise ClusterError(
            "--ray wants Ray, which is not installed; run in the course's folder: pip install --constraint constraints.txt -e '.[cluster]'"
        ) from None
    host, _, port = address.rpartition(":")
    try:
        if host and port.isdecimal() and "://" not in host:
            socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENCE).close()  # Ray would try for minutes
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except Exception as e:  # of many kinds
        raise ClusterError(f"no Ray cluster to work with at {address} ({_last_line(e)}); 'ray start --head' starts one") from None
    return ray


def _processors(ray: ModuleType, address: str) -> int:
    """Of all machines that live. Raises ClusterError where none is left."""
    if not (found := int(ray.cluster_resources().get("CPU", 0))):
        raise ClusterError(
            f"Ray at {address}: no machine with a processor is left; start one with 'ray start --address ...' "
            "and run this again: what was graded is kept"
        )
    return found


def _judge(
    wanted: bytes, data: bytes, filename: str, source: bytes, where: Path, kept: Result | None, allow_no_jail: bool
) -> Answer | Exception:
    """What a machine of the cluster does; what is wrong with the machine comes back as an exception that names it."""
    name = socket.gethostname()
    if version() != wanted:
        return ClusterError(f"machine {name}: another version of the grader or of torch; install the same on all and start its Ray anew")
    keep_tables(Path.home() / ".cache" / "grader")
    try:
        return answer_of(autograde_bytes, data, filename, source, where, kept, allow_no_jail=allow_no_jail)
    except JailError as e:
        return ClusterError(f"machine {name}: {e}")
    except OSError as e:
        return ClusterError(f"machine {name}: {e.filename or 'this machine'}: {e.strerror}")


def _last_line(e: Exception) -> str:
    return (str(e).strip().splitlines() or [type(e).__name__])[-1].strip()
