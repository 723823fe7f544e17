"""A worker and a PTX machine as the grader holds them: processes with typed wires, which leave nothing behind."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import signal
import socket
import tempfile
import threading
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from kernelpath import wire, words
from kernelpath.device import messages as device
from kernelpath.device.gpu import Properties
from kernelpath.device.lab_messages import LabEnded
from kernelpath.wire import ConnectionClosed, ProtocolError, ResponseTimeout, Wire
from kernelpath.work import forkserver, messages
from kernelpath.work.forkserver_main import Role
from kernelpath.work.workspace import Workspace

_Answer = TypeVar("_Answer", bound=messages.WorkerResponse)
_Told = TypeVar("_Told", bound=device.Message)

_LEAVING_SECONDS = 2.0
_TAKING_SECONDS = 30.0
"""For a process to take what it is sent."""
_PRINTED_LIMIT = 20_000
_LATEST_LINES = 5
_ERROR = re.compile(r"[\w.]*(Error|Exception|Exit|Interrupt)\b")  # a traceback's last line begins so


class WorkerExited(Exception):
    """The worker ended without an answer. `status` is its exit status, negative for a signal."""

    def __init__(self, status: int) -> None:
        super().__init__(f"the process ended with status {status}")
        self.status = status


class UnexpectedResponse(Exception):
    """What came is not an answer that the worker's own code gives: something else wrote it."""


class WorkerTimeout(Exception):
    """The worker gave no answer within the time allowed.

    compiling: whether a compiler was running. lines: of the submission, in which its thread was seen last.
    """

    def __init__(self, compiling: bool = False, lines: Sequence[int] = ()) -> None:
        super().__init__("no answer")
        self.compiling, self.lines = compiling, lines


class _Process:
    """A child of the fork server, and the grader's end of its socket."""

    def __init__(self, role: Role, needs: str = "", folder: Path | None = None, clean: bool = False) -> None:
        self._server = forkserver.get_server(clean=clean)
        self.connection, there = wire.pair()
        self._printed = tempfile.TemporaryFile()  # noqa: SIM115
        self._closing, self._closed = threading.Lock(), False
        self._child = self._server.fork(role, there.fileno(), self._printed.fileno(), "" if clean else needs, folder)
        there.close()

    @property
    def printed(self) -> str:
        """What it wrote to stdout and stderr so far, cut in the middle where it is long."""
        if self._closed:
            return ""
        descriptor = self._printed.fileno()  # whose offset is the child's
        size = os.fstat(descriptor).st_size
        if size <= 4 * _PRINTED_LIMIT:
            text = os.pread(descriptor, size, 0).decode(errors="replace")
        else:
            ends = (
                os.pread(descriptor, 2 * _PRINTED_LIMIT, 0),
                os.pread(descriptor, 2 * _PRINTED_LIMIT, size - 2 * _PRINTED_LIMIT),
            )
            text = "".join(end.decode(errors="replace") for end in ends)
        return words.shown(text, _PRINTED_LIMIT)

    @property
    def reason(self) -> str:
        """What a process that did not start said last: its error, without the lines of advice that may follow."""
        said = (self.printed or self._server.said).strip().splitlines()
        return next((line for line in reversed(said) if _ERROR.match(line)), said[-1] if said else "")

    @property
    def pid(self) -> int:
        return self._child.pid

    def ended(self) -> int:
        """The exit status of a process that has closed its end of the wire, and now has little time to leave."""
        with self._closing:
            if self._closed:
                return -signal.SIGKILL
            with contextlib.suppress(ProcessLookupError):
                self._child.wait(_LEAVING_SECONDS)
            return self._child.kill()

    def close(self) -> None:
        """End the process and all its children. Another thread may wait for it, or close it too."""
        with self._closing:
            if self._closed:
                return
            self._closed = True
            self._child.kill()
            self._child.close()
            self.connection.close()
            self._printed.close()


class MachineProcess:
    """The PTX machine in a process of its own. It tells the grader what it saw, past the submission.

    Threads may share it: a question and its answer are one step.
    """

    def __init__(self) -> None:
        self._process = _Process("machine")
        self._turn = threading.Lock()
        self._wire: Wire[device.Message] = Wire(self._process.connection, device.ToGrader | LabEnded)
        self._attaching = 0

    def attach(self, target: str) -> tuple[int, socket.socket]:
        """A new client by its number, and its end of a socket. Does not wait for the machine.

        target: what the machine stands for in its eyes.
        """
        ours, theirs = wire.pair()
        with self._turn:
            with contextlib.suppress(ConnectionClosed, ResponseTimeout, OSError):  # noticed by who asks it
                self._wire.send(device.Attach(target), _TAKING_SECONDS)
                socket.send_fds(self._process.connection, [b"\0"], [ours.fileno()])
            ours.close()
            self._attaching += 1
            return self._attaching - 1, theirs

    def ask(self, message: device.Message, expected: type[_Told], seconds: float) -> _Told | None:
        """Return the answer; None where the machine answers Done instead.

        Raises:
            WorkerTimeout: The machine did not answer in time.
            WorkerExited: The machine has died.
        """
        try:
            with self._turn:
                self._wire.send(message, seconds)
                while isinstance(answer := self._wire.receive(seconds), device.Attached):
                    pass
        except ResponseTimeout:
            raise WorkerTimeout from None
        except (ConnectionClosed, ProtocolError):
            raise WorkerExited(self._process.ended()) from None
        return answer if isinstance(answer, expected) else None

    def close(self) -> None:
        self._process.close()


class SharedMachine:
    """The machine that a session's workers share, replaced after it had to be given up."""

    def __init__(self) -> None:
        self._machine: MachineProcess | None = None

    def take(self) -> MachineProcess:
        if self._machine is None:
            self._machine = MachineProcess()
        return self._machine

    def drop(self) -> None:
        if self._machine is not None:
            self._machine.close()
            self._machine = None


class Worker:
    """A child process that runs one submission, until `close`, which leaves no process behind.

    needs: a module that takes long to import, and may be imported before the process is forked. clean: fork the process
    from one that has never imported such a module, as there are libraries that this one must not have.
    """

    def __init__(self, workspace: Workspace, needs: str = "", *, clean: bool = False) -> None:
        self._workspace = workspace
        self._process = _Process("worker", needs, workspace.own, clean)
        self._wire: Wire[messages.WorkerResponse] = Wire(self._process.connection, messages.AnyResponse)
        self._secrets: deque[str] = deque()
        self.client = -1  # its number on a machine
        self.compile_seconds = 0.0  # of its last answer

    def start(
        self,
        root: str,
        stem: str,
        on: str,
        machine: MachineProcess | None,
        properties: Properties | None = None,
        entry: str = "",
        target: str = "sm_80",
        rank: int = 0,
        size: int = 0,
        store: str = "",
        withheld: Sequence[Path] = (),
    ) -> None:
        """Let it import what the exercise `stem` needs on the device `on`, and give up what is not the submission's.

        machine: where its kernels run, if they run there. properties: what host code sees there of a GPU. entry: where
        the declaration is not loaded. target: what the machine stands for. rank, size, store: of a group of GPUs.
        withheld: files and folders of modules that it must not read.
        """
        for folder in (self._workspace.own, self._workspace.source):
            folder.mkdir(parents=True, exist_ok=True)
        asked = messages.Start(
            root=root,
            stem=stem,
            device=on,
            machine=machine is not None,
            source=str(self._workspace.source),
            own=str(self._workspace.own),
            entry=entry,
            target=target,
            properties=properties or {},
            rank=rank,
            size=size,
            store=store,
            withheld=[str(path) for path in withheld],
        )
        self.post(asked)
        if machine is not None:
            self.client, end = machine.attach(target)
            self.hand(end.fileno())
            end.close()

    def hand(self, descriptor: int) -> None:
        """Give it a descriptor, which follows the request that was sent last."""
        with contextlib.suppress(OSError):
            socket.send_fds(self._process.connection, [b"\0"], [descriptor])

    def post(self, message: messages.WorkerRequest) -> None:
        """Send a request. Its answer is fetched later, in turn; a worker that is gone is noticed then."""
        self._secrets.append(secrets.token_hex(16))
        with contextlib.suppress(ConnectionClosed, ResponseTimeout):
            self._wire.send(msgspec.structs.replace(message, secret=self._secrets[-1]), _TAKING_SECONDS)

    def answer(self, seconds: float, compile_seconds: float = 0.0) -> messages.WorkerResponse:
        """The answer to the oldest request without one. Raises WorkerTimeout, WorkerExited or UnexpectedResponse.

        seconds: what it may take, besides compiling. compile_seconds: what compiling may take.
        """
        try:
            answer = self._wait(seconds, compile_seconds)
        except ConnectionClosed:
            raise WorkerExited(self._process.ended()) from None
        except ProtocolError as error:
            raise UnexpectedResponse(str(error)) from None
        if answer.secret != self._secrets.popleft():
            raise UnexpectedResponse("an answer to nothing that was asked")
        return answer

    def _wait(self, running: float, compiling: float) -> messages.WorkerResponse:
        """The next message that is an answer; what is left of two budgets runs down by what the worker says it does."""
        left = {False: running, True: compiling}
        doing = False
        lines: deque[int] = deque(maxlen=_LATEST_LINES)
        self.compile_seconds = 0.0
        while True:
            begun = time.monotonic()
            try:
                answer = self._wire.receive(max(left[doing], 0.0))
            except ResponseTimeout:
                raise WorkerTimeout(doing, lines) from None
            spent = time.monotonic() - begun
            left[doing] -= spent
            self.compile_seconds += spent * doing
            if isinstance(answer, messages.Running):
                lines.append(answer.line)
            elif isinstance(answer, messages.Compiling):
                doing = answer.begins
            else:
                return answer

    @property
    def printed(self) -> str:
        return self._process.printed

    @property
    def reason(self) -> str:
        return self._process.reason

    @property
    def pid(self) -> int:
        return self._process.pid

    def close(self) -> None:
        self._process.close()
