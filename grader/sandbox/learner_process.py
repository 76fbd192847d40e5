"""The learner's side: a warm process that forks for each hand-in, runs the learner's cells, and answers calls.

It has never held a test, an answer to this notebook's exercises but the learner's, or another's hand-in: it gets the cells of
one hand-in, names of functions and their arguments, and gives back results. Started by the judge as
``python -m grader.sandbox.learner_process SOCKET LAYERS``.
"""

from __future__ import annotations

import functools
import gc
import importlib
import json
import math
import os
import socket
import struct
import sys
import time
import traceback
from typing import Any

import torch
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from grader.sandbox.jail import Layers, kill, settle, spawn
from grader.sandbox.lazy_import import import_lazily
from grader.sandbox.protocol import Channel, Closed, NotData, pack, unpack, vjp

TEXT = 2000  # characters of an error that cross


class Shell(InteractiveShell):
    """IPython without a terminal: magics and ! lines run, but nothing is shown and no program is started."""

    def showtraceback(self, *args: Any, **kwargs: Any) -> None:
        pass

    showsyntaxerror = show_usage_error = showtraceback
    system = showtraceback

    def getoutput(self, *args: Any, **kwargs: Any) -> list[str]:
        return []

    def enable_matplotlib(self, gui: str | None = None) -> tuple[None, str]:
        return None, "agg"


def main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    on = Layers(**json.loads(sys.argv[2]))
    settle(on)
    shell = _warm()
    control.sendall(b"w")
    child = before = 0
    while True:
        word, descriptors, _, _ = socket.recv_fds(control, 1, 1)
        if word == b"f":
            if before == 1:  # a class: from now on no hand-in shall wait for it
                importlib.import_module("matplotlib.pyplot").figure  # noqa: B018
                gc.freeze()
            before += 1
            try:
                child = spawn(functools.partial(_serve, descriptors[0], shell), on)
            except OSError:
                word = b"x"
            for descriptor in descriptors:
                os.close(descriptor)
        if child and word in (b"k", b""):
            kill(child)
            child = 0
        if not word:
            return
        control.sendall(struct.pack("=d", _cpu_seconds(child)) if word == b"c" else word)


def _cpu_seconds(pid: int) -> float:
    """Of processor time that a process and its threads have used; infinite where the system does not tell."""
    try:
        return time.clock_gettime((~pid << 3) | 2)  # the clock that clock_getcpuclockid(3) names
    except (OSError, AttributeError, OverflowError):
        return math.inf


def _warm() -> Shell:
    """Everything that a hand-in would wait for is done once, here."""
    torch.set_num_threads(1)
    import_lazily("matplotlib.pyplot")
    # torch's compiler takes 1.3 s to come, and the first optimizer of each hand-in would fetch it to ask it these two things
    import_lazily("torch._dynamo", disable=lambda function, *_, **__: function, graph_break=lambda: None)
    config = Config()
    config.HistoryManager.enabled = False  # it would start a thread
    shell = Shell.instance(config=config)
    shell.run_cell("import asyncio\n%matplotlib inline", silent=True)  # no await: a loop would not survive the fork
    x = torch.zeros(2, requires_grad=True)
    (x * 2).sum().backward()
    if os.path.exists("/proc/self/task"):  # a fork with a second thread hangs
        assert len(os.listdir("/proc/self/task")) == 1, "a library started a thread in the warm process"
    gc.collect()
    gc.freeze()
    return shell


def _serve(descriptor: int, shell: Shell) -> None:
    """Answers the judge until it hangs up. Runs in the jail."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nothing, standard)
    os.closerange(3, descriptor)
    os.closerange(descriptor + 1, 1024)
    channel = Channel(socket.socket(fileno=descriptor))
    channel.send({"id": 0})
    side = Side(shell)
    with shell.builtin_trap:  # display and get_ipython, as in a notebook
        while True:
            try:
                head, tensors, flags = channel.receive()
            except Closed:
                return
            reply, results = side.answer(head, tensors, flags)
            try:
                channel.send(reply | {"id": head["id"]}, results)
            except NotData as e:
                channel.send({"id": head["id"], "refused": str(e)})


class Side:
    """One hand-in: its names, and the graphs of the calls of one check.

    The hand-in runs beside it and can replace any of it. So nothing is decided here: results and arguments go back as they
    are after the call, and the judge looks at both.
    """

    def __init__(self, shell: Shell):
        self._shell = shell
        self._graphs: dict[int, tuple[list[torch.Tensor], list[torch.Tensor]]] = {}

    def answer(
        self, head: dict[str, Any], tensors: list[torch.Tensor], flags: list[tuple[bool, bool]]
    ) -> tuple[dict[str, Any], list[torch.Tensor]]:
        try:
            match head["op"]:
                case "run":
                    return self._run(head["source"]), []
                case "call":
                    return self._call(head, tensors, flags)
                case _:
                    return self._vjp(head, tensors)
        except NotData as e:
            return {"refused": str(e)}, []
        except BaseException as e:  # SystemExit and KeyboardInterrupt too
            functions = [function for function, _ in self._places(e)]
            return {"error": _described(e) | {"where": functions[-1] if functions else ""}}, []  # the innermost of the notebook

    def _places(self, error: BaseException) -> list[tuple[str, int]]:
        """Function and line of the notebook's own code that an error went through, the cell's own statement first."""
        frames = traceback.walk_tb(error.__traceback__)
        return [(frame.f_code.co_name, line) for frame, line in frames if frame.f_globals is self._shell.user_ns]

    def _run(self, source: str) -> dict[str, Any]:
        result = self._shell.run_cell(source, silent=True)
        error = result.error_before_exec or result.error_in_exec
        lines = [line for _, line in self._places(error)] if error else []
        return {"error": _described(error), "line": lines[0] if lines else 0} if error else {}

    def _call(
        self, head: dict[str, Any], tensors: list[torch.Tensor], flags: list[tuple[bool, bool]]
    ) -> tuple[dict[str, Any], list[torch.Tensor]]:
        if head["first"]:
            self._graphs.clear()
        if head["name"] not in self._shell.user_ns:
            return {"missing": True}, []
        leaves, given = [], list(tensors)
        for i, (needs_gradient, leaf) in enumerate(flags):
            if needs_gradient:
                leaves.append(tensors[i].requires_grad_())
                given[i] = tensors[i] if leaf else tensors[i].clone()  # so that writing into it is allowed just where it was
        args, kwargs = unpack(head["args"], given), unpack(head["kwargs"], given)
        with torch.set_grad_enabled(head["grad"]):
            result = self._shell.user_ns[head["name"]](*args, **kwargs)
        results: list[torch.Tensor] = []
        tree = pack(result, results)
        if any(t.requires_grad for t in results):
            self._graphs[head["id"]] = (leaves, results)
        both = list(results)
        arguments = [_packed(value, both) for value in (*args, *kwargs.values())]
        return {"result": tree, "results": len(results), "arguments": arguments}, both

    def _vjp(self, head: dict[str, Any], tensors: list[torch.Tensor]) -> tuple[dict[str, Any], list[torch.Tensor]]:
        leaves, results = self._graphs[head["call"]]
        gradients = vjp(results, unpack(head["grads"], tensors), leaves)
        found: list[torch.Tensor] = []
        return {"result": pack([None if g is None else g.detach() for g in gradients], found)}, found


def _packed(argument: Any, tensors: list[torch.Tensor]) -> Any:
    """The tree of an argument; [], which is the tree of nothing, when a function has put into it what is not data."""
    try:
        return pack(argument, tensors)
    except NotData:
        return []


def _described(error: BaseException) -> dict[str, str]:
    """The kind of an error among Python's own, its name, its text."""
    kind = next(c.__name__ for c in type(error).__mro__ if c.__module__ == "builtins")
    try:
        text = str(error)[:TEXT]
    except Exception as e:
        text = f"(its text cannot be read: {type(e).__name__})"
    return {"kind": kind, "name": type(error).__name__, "text": text}


if __name__ == "__main__":
    main()
