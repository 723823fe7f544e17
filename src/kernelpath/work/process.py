"""The wire between grader and worker, and the worker's process as the grader holds it.

A message is one JSON object and any number of raw byte strings. Nothing is ever unpickled: a hostile worker can lie,
but it cannot run code in the grader.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import tempfile
import time
from collections import deque
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection, Pipe
from typing import Any

from kernelpath.work import forkserver

_LEAVING_SECONDS = 2.0
_PRINTED_LIMIT = 20_000


class WorkerGone(Exception):
    """The worker ended without an answer. `status` is its exit status, negative for a signal."""

    def __init__(self, status: int) -> None:
        super().__init__(f"the process ended with status {status}")
        self.status = status


class Forged(Exception):
    """An answer came without the secret of its request: something else than the worker's own code wrote it."""


class WorkerSilent(Exception):
    """The worker gave no answer within the time allowed. `compiling` tells what it was doing."""

    def __init__(self, compiling: bool = False) -> None:
        super().__init__("no answer")
        self.compiling = compiling


class Channel:
    """One end of the wire."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def send(self, message: Mapping[str, Any], payloads: Sequence[bytes] = ()) -> None:
        self._connection.send_bytes(json.dumps({**message, "payloads": len(payloads)}).encode())
        for payload in payloads:
            self._connection.send_bytes(payload)

    def receive(self, timeout: float | None = None) -> tuple[dict[str, Any], list[bytes]]:
        """The next message. Raises WorkerSilent after `timeout` seconds, EOFError if the other end closed."""
        if not self._connection.poll(timeout):
            raise WorkerSilent
        message = json.loads(self._connection.recv_bytes())
        return message, [self._connection.recv_bytes() for _ in range(message.pop("payloads"))]


class Worker:
    """A child process that runs one submission, until `close`, which leaves no process behind."""

    def __init__(self) -> None:
        here, there = Pipe()
        self._printed = tempfile.TemporaryFile()  # noqa: SIM115
        self._server = forkserver.running()
        self._process = self._server.fork(there.fileno(), self._printed.fileno())
        there.close()
        self._channel = Channel(here)
        self._secrets: deque[str] = deque()
        self._connection = here

    def post(self, message: Mapping[str, Any]) -> None:
        """Send a request. Its answer is fetched later, in turn; a worker that is gone is noticed then."""
        self._secrets.append(secrets.token_hex(16))
        with contextlib.suppress(OSError):
            self._channel.send({**message, "secret": self._secrets[-1]})

    def answer(self, timeout: float, compile_budget: float = 0.0) -> tuple[dict[str, Any], list[bytes]]:
        """The answer to the oldest request without one. Raises WorkerSilent, WorkerGone or Forged.

        timeout: seconds that it may take, besides compiling. compile_budget: seconds that compiling may take.
        """
        try:
            message, payloads = self._wait(timeout, compile_budget)
        except (EOFError, OSError, ValueError) as error:
            raise WorkerGone(self._ended()) from error
        if message.pop("secret", None) != self._secrets.popleft():
            raise Forged
        return message, payloads

    def _wait(self, running: float, compiling: float) -> tuple[dict[str, Any], list[bytes]]:
        """The next message that is an answer; what is left of two budgets runs down by what the worker says it does."""
        left = {False: running, True: compiling}
        doing = False
        while True:
            begun = time.monotonic()
            try:
                message, payloads = self._channel.receive(max(left[doing], 0.0))
            except WorkerSilent:
                raise WorkerSilent(compiling=doing) from None
            left[doing] -= time.monotonic() - begun
            if "compiling" not in message:
                return message, payloads
            doing = bool(message["compiling"])

    @property
    def printed(self) -> str:
        """What the submission wrote to stdout and stderr so far, cut in the middle where it is long."""
        descriptor = self._printed.fileno()  # whose offset is the submission's
        text = os.pread(descriptor, os.fstat(descriptor).st_size, 0).decode(errors="replace")
        if len(text) > _PRINTED_LIMIT:
            text = text[: _PRINTED_LIMIT // 2] + "\n[…]\n" + text[-_PRINTED_LIMIT // 2 :]
        return text

    def _ended(self) -> int:
        """The exit status of a process that has closed its end of the wire, and now has little time to leave."""
        with contextlib.suppress(ProcessLookupError):
            self._process.wait(_LEAVING_SECONDS)
        return self._process.kill()

    @property
    def reason(self) -> str:
        """What was said last by a process that did not start."""
        return (self.printed or self._server.said).strip().rpartition("\n")[2]

    @property
    def pid(self) -> int:
        return self._process.pid

    def close(self) -> None:
        """End the worker and all its children."""
        self._process.kill()
        self._process.close()
        self._connection.close()
        self._printed.close()
