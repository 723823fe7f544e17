"""The wire between grader and worker, and the worker's process as the grader holds it.

A message is one JSON object and any number of raw byte strings. Nothing is ever unpickled: a hostile worker can lie,
but it cannot run code in the grader.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any

_BOOT = "import sys; sys.path[:] = {path!r}; from kernelpath.worker import main; main({fd})"
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
        path = [entry for entry in sys.path if entry and Path(entry).resolve() != Path.cwd()]
        self._process = subprocess.Popen(
            [sys.executable, "-IBu", "-c", _BOOT.format(path=path, fd=there.fileno())],
            pass_fds=[there.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=self._printed,
            stderr=self._printed,
            start_new_session=True,
        )
        there.close()
        self._channel = Channel(here)
        self._secret = ""
        self._connection = here

    def ask(
        self, message: Mapping[str, Any], timeout: float, compile_budget: float = 0.0
    ) -> tuple[dict[str, Any], list[bytes]]:
        """Send a request and wait for its answer. Raises WorkerSilent, WorkerGone or Forged."""
        self.post(message)
        return self.answer(timeout, compile_budget)

    def post(self, message: Mapping[str, Any]) -> None:
        """Send a request whose answer is fetched later. A worker that is gone is noticed then."""
        self._secret = secrets.token_hex(16)
        with contextlib.suppress(OSError):
            self._channel.send({**message, "secret": self._secret})

    def answer(self, timeout: float, compile_budget: float = 0.0) -> tuple[dict[str, Any], list[bytes]]:
        """The next answer. Raises WorkerSilent, WorkerGone or Forged.

        timeout: seconds that it may take, besides compiling. compile_budget: seconds that compiling may take.
        """
        try:
            message, payloads = self._wait(timeout, compile_budget)
        except (EOFError, OSError, ValueError) as error:
            self._stop(grace=2.0)
            raise WorkerGone(self._process.returncode or 0) from error
        if message.pop("secret", None) != self._secret:
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
        self._printed.seek(0)
        text = self._printed.read().decode(errors="replace")
        if len(text) > _PRINTED_LIMIT:
            text = text[: _PRINTED_LIMIT // 2] + "\n[…]\n" + text[-_PRINTED_LIMIT // 2 :]
        return text

    def _stop(self, grace: float = 0.0) -> None:
        deadline = time.monotonic() + grace
        while self._process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    @property
    def pid(self) -> int:
        return self._process.pid

    def close(self) -> None:
        """End the worker and all its children."""
        self._stop()
        self._connection.close()
        self._printed.close()
