"""The warm process of the learner's side: started once, forked for each hand-in, replaced where it broke."""

from __future__ import annotations

import json
import math
import socket
import struct
import subprocess
import tempfile
import time
from dataclasses import asdict

from grader.sandbox.jail import JailError, command, environment, layers
from grader.sandbox.protocol import Channel, Closed, Late


class WarmProcess:
    """The warm process of the learner's side. It starts at once and is waited for when it is first needed."""

    def __init__(self) -> None:
        self._launch()

    def _launch(self) -> None:
        self._control, theirs = socket.socketpair()
        self._control.settimeout(120)
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  closed by close()
        arguments = command(["-P", "-m", "grader.sandbox.learner_process", str(theirs.fileno()), json.dumps(asdict(layers()))], layers())
        nothing = subprocess.DEVNULL
        self._process = subprocess.Popen(
            arguments, pass_fds=[theirs.fileno()], env=environment(), stdin=nothing, stdout=nothing, stderr=self._errors
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
            self._errors.seek(0)
            words = self._errors.read().strip().splitlines() or [type(e).__name__]
            raise JailError(f"the learner's side does not start: {words[-1]}; see grader doctor") from None

    def _fork(self) -> Channel:
        if not self._is_warm:
            self._expect(b"w")
            self._is_warm = True
            self._control.settimeout(20)
        ours, theirs = socket.socketpair()
        channel = Channel(ours)
        try:
            with theirs:
                socket.send_fds(self._control, [b"f"], [theirs.fileno()])
            self._expect(b"f")
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
            self._expect(b"k")
        except (OSError, EOFError):
            self.close()
            self._launch()

    def cpu_seconds(self) -> float:
        """Of processor time that the last fork has used; infinite where that is not known."""
        try:
            self._control.sendall(b"c")
            return struct.unpack("=d", self._control.recv(8))[0]
        except (OSError, struct.error):
            return math.inf

    def close(self) -> None:
        self._control.close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._errors.close()

    def _expect(self, word: bytes) -> None:
        if self._control.recv(1) != word:
            raise EOFError
