"""Start and control the grader's child processes: workers and the PTX machine.

Each has a typed wire to the grader, and `close` leaves no process behind.
"""

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
from kernelpath.device import messages as machine_messages
from kernelpath.device.lab_messages import LabReport
from kernelpath.wire import ConnectionClosed, ProtocolError, ResponseTimeout, Wire
from kernelpath.work import forkserver, messages
from kernelpath.work.forkserver_main import Role
from kernelpath.work.process_clock import POLL_SECONDS, ProcessClock
from kernelpath.work.workspace import Workspace
from warpcheck.simulated_gpu import Properties

_Response = TypeVar("_Response", bound=machine_messages.Message)

# The time that a process has to exit by itself after it has closed its wire.
_EXIT_SECONDS = 2.0

# The time by the wall clock in which a process reads a message, or sends the rest of one that it has begun.
_TRANSFER_SECONDS = 30.0

_PRINTED_LIMIT = 20_000
_LATEST_LINES = 5
_ERROR = re.compile(r"[\w.]*(Error|Exception|Exit|Interrupt)\b")  # how a traceback's last line begins


class WorkerExited(Exception):
    """The worker ended without a response. `status` is its exit status, negative for a signal."""

    def __init__(self, status: int) -> None:
        super().__init__(f"the process ended with status {status}")
        self.status = status


class UnexpectedResponse(Exception):
    """A message is not a response that the worker's own code gives, so something else wrote it."""


class WorkerTimeout(Exception):
    """The worker gave no response within the time allowed.

    Attributes:
        compiling: Whether a compiler was running.
        lines: The lines of the submission in which its thread was seen last.
    """

    def __init__(self, compiling: bool = False, lines: Sequence[int] = ()) -> None:
        super().__init__("no answer")
        self.compiling = compiling
        self.lines = lines


class _ChildProcess:
    """A child of the fork server, and the grader's end of its socket.

    Args:
        role: What the process does.
        needs: A module that the fork server imports first.
        folder: The folder that the process may write to.
        clean: Whether the process comes from a server that has imported nothing for other children.
    """

    def __init__(self, role: Role, needs: str = "", folder: Path | None = None, clean: bool = False) -> None:
        self._server = forkserver.get_server(clean=clean)
        self.connection, child_connection = wire.pair()
        self._output = tempfile.TemporaryFile()  # noqa: SIM115
        self._closing = threading.Lock()
        self._is_closed = False
        self._child = self._server.fork(
            role, child_connection.fileno(), self._output.fileno(), "" if clean else needs, folder
        )
        # The child has its own copy. With this one open, the grader would never see the end of the stream when the
        # child dies.
        child_connection.close()

    @property
    def printed(self) -> str:
        """The process's stdout and stderr, cut in the middle where they are long."""
        if self._is_closed:
            return ""
        descriptor = self._output.fileno()  # pread, since parent and child share the offset of the open file
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
    def last_error(self) -> str:
        """The error that a process which did not start printed last, without the advice that may follow it."""
        lines = (self.printed or self._server.output).strip().splitlines()
        return next((line for line in reversed(lines) if _ERROR.match(line)), lines[-1] if lines else "")

    @property
    def pid(self) -> int:
        return self._child.pid

    def pids(self) -> list[int]:
        """Return the pid, or nothing where the server has ended."""
        with contextlib.suppress(ProcessLookupError):
            return [self._child.pid]
        return []

    def exit_status(self) -> int:
        """Return the exit status of a process that has closed its wire, and that has little time left to exit."""
        with self._closing:
            if self._is_closed:
                return -signal.SIGKILL
            with contextlib.suppress(ProcessLookupError):
                self._child.wait(_EXIT_SECONDS)
            return self._child.kill()

    def close(self) -> None:
        """End the process and all its children. Another thread may wait for it, or close it as well."""
        with self._closing:
            if self._is_closed:
                return
            self._is_closed = True
            self._child.kill()
            self._child.close()
            self.connection.close()
            self._output.close()


class MachineProcess:
    """The PTX machine in a process of its own. It reports to the grader directly, so the submission cannot interfere.

    Threads may share it: a request and its response are one critical section.
    """

    def __init__(self) -> None:
        self._process = _ChildProcess("machine")
        self._lock = threading.Lock()
        self._wire: Wire[machine_messages.Message] = Wire(
            self._process.connection, machine_messages.ToGrader | LabReport
        )
        self._attached_clients = 0

    def attach(self, target: str, multiprocessors: int = 0) -> tuple[int, socket.socket]:
        """Add a client that sees the architecture `target`. Return its number and its end of a socket.

        The number of multiprocessors is the target's if it is 0.

        This does not wait for the machine.
        """
        machine_end, client_end = wire.pair()
        with self._lock:
            # A machine that has died is noticed at the next request.
            with contextlib.suppress(ConnectionClosed, ResponseTimeout, OSError):
                self._wire.send(machine_messages.Attach(target, multiprocessors), _TRANSFER_SECONDS)
                # A stream socket passes descriptors only with at least one byte of data: unix(7).
                socket.send_fds(self._process.connection, [b"\0"], [machine_end.fileno()])
            machine_end.close()
            self._attached_clients += 1
            return self._attached_clients - 1, client_end

    def request(self, message: machine_messages.Message, expected: type[_Response], seconds: float) -> _Response | None:
        """Return the response; None where the machine only acknowledges. `seconds` are those of ProcessClock.

        Raises:
            WorkerTimeout: The machine did not respond in time.
            WorkerExited: The machine has died.
        """
        try:
            with self._lock:
                self._wire.send(message, _TRANSFER_SECONDS)
                clock = ProcessClock(self.pids)
                # `attach` does not read its responses: they come first.
                while isinstance(response := self._receive(clock, seconds), machine_messages.Attached):
                    pass
        except ResponseTimeout:
            raise WorkerTimeout from None
        except (ConnectionClosed, ProtocolError):
            raise WorkerExited(self._process.exit_status()) from None
        return response if isinstance(response, expected) else None

    def pids(self) -> list[int]:
        """Return the machine's pid, or nothing where it was never started."""
        return self._process.pids()

    def close(self) -> None:
        self._process.close()

    def _receive(self, clock: ProcessClock, seconds: float) -> machine_messages.Message:
        while not self._wire.waiting(POLL_SECONDS):
            if clock.elapsed() >= seconds:
                raise ResponseTimeout
        return self._wire.receive(_TRANSFER_SECONDS)


class SharedMachine:
    """The PTX machine that a session's workers share. It is started again after it was discarded."""

    def __init__(self) -> None:
        self._machine: MachineProcess | None = None

    def get(self) -> MachineProcess:
        if self._machine is None:
            self._machine = MachineProcess()
        return self._machine

    def discard(self) -> None:
        if self._machine is not None:
            self._machine.close()
            self._machine = None


class Worker:
    """A child process that runs one submission until `close`, which leaves no process behind.

    Args:
        workspace: The folders of the submission.
        needs: A module that takes long to import, and that the fork server may import before it forks.
        clean: Whether to fork from a server that has never imported such a module, because the submission must not have
            some libraries.
    """

    def __init__(self, workspace: Workspace, needs: str = "", *, clean: bool = False) -> None:
        self._workspace = workspace
        self._process = _ChildProcess("worker", needs, workspace.own, clean)
        self._machine: MachineProcess | None = None
        self._wire: Wire[messages.WorkerResponse] = Wire(self._process.connection, messages.AnyResponse)
        # The secrets of the requests without a response, oldest first.
        self._secrets: deque[str] = deque()

        # The worker's number on a PTX machine.
        self.client = -1

        # The time that compilers took before the last response.
        self.compile_seconds = 0.0

    def start(
        self,
        root: str,
        path_id: str,
        device: str,
        machine: MachineProcess | None,
        properties: Properties | None = None,
        entry: str = "",
        target: str = "sm_80",
        rank: int = 0,
        size: int = 0,
        store: str = "",
        withheld: Sequence[Path] = (),
    ) -> None:
        """Make the worker import what an exercise needs, and give up what the submission must not reach.

        Args:
            machine: The process that runs the kernels, if they run on the PTX machine.
            root, path_id, device, properties, entry, target, rank, size, store, withheld: See messages.Start.
        """
        for folder in (self._workspace.own, self._workspace.source):
            folder.mkdir(parents=True, exist_ok=True)
        request = messages.Start(
            root=root,
            path_id=path_id,
            device=device,
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
        self.send(request)
        self._machine = machine
        if machine is not None:
            self.client, client_end = machine.attach(target, int((properties or {}).get("multi_processor_count", 0)))
            self.send_descriptor(client_end.fileno())
            client_end.close()

    def send_descriptor(self, descriptor: int) -> None:
        """Send a file descriptor, which belongs to the request that was sent last."""
        with contextlib.suppress(OSError):
            socket.send_fds(self._process.connection, [b"\0"], [descriptor])

    def send(self, message: messages.WorkerRequest) -> None:
        """Send a request, whose response is received later, in order. A dead worker is noticed then."""
        # The submission can write to the socket of its process. The secret shows that the worker's own code responded:
        # only the worker's main thread has it, and the submission runs on another thread.
        self._secrets.append(secrets.token_hex(16))
        # The death of the worker is reported by `receive`, which knows its exit status.
        with contextlib.suppress(ConnectionClosed, ResponseTimeout):
            self._wire.send(msgspec.structs.replace(message, secret=self._secrets[-1]), _TRANSFER_SECONDS)

    def receive(self, seconds: float, compile_seconds: float = 0.0) -> messages.WorkerResponse:
        """Return the response to the oldest request without one.

        Args:
            seconds: The time limit, besides compiling, by the ProcessClock of the worker and its machine.
            compile_seconds: The time limit for compiling, by the same clock.

        Raises:
            WorkerTimeout: The worker did not respond in time.
            WorkerExited: The worker has died.
            UnexpectedResponse: Something other than the worker's own code wrote the response.
        """
        try:
            response = self._wait(seconds, compile_seconds)
        except ConnectionClosed:
            raise WorkerExited(self._process.exit_status()) from None
        except ProtocolError as error:
            raise UnexpectedResponse(str(error)) from None
        # Responses come in the order of the requests, so each secret is valid for one response only and cannot be
        # replayed.
        if response.secret != self._secrets.popleft():
            raise UnexpectedResponse("a response without a request")
        return response

    def _wait(self, run_seconds: float, compile_seconds: float) -> messages.WorkerResponse:
        """Return the next message that is a response.

        There are two time budgets, for running and for compiling. The worker's progress messages say which one the
        waiting time counts against, so a worker that lies about it still runs out of both.
        """
        budgets = {False: run_seconds, True: compile_seconds}
        is_compiling = False
        lines: deque[int] = deque(maxlen=_LATEST_LINES)
        self.compile_seconds = 0.0
        # A ProcessClock leaves out the time in which processes wait for a processor, so that a submission does not fail
        # because of its neighbors on a busy computer.
        clock = ProcessClock(self._pids)
        charged = 0.0  # the time of the clock that has been subtracted from a budget
        while True:
            start = time.monotonic()
            while not self._wire.waiting(min(POLL_SECONDS, max(budgets[is_compiling], 0.0))):
                if clock.elapsed() - charged >= budgets[is_compiling]:
                    raise WorkerTimeout(is_compiling, lines)
            try:
                response = self._wire.receive(_TRANSFER_SECONDS)
            except ResponseTimeout:
                raise WorkerTimeout(is_compiling, lines) from None
            self.compile_seconds += (time.monotonic() - start) * is_compiling
            if not isinstance(response, messages.Running | messages.Compiling):
                return response
            now = clock.elapsed()
            budgets[is_compiling] -= now - charged
            charged = now
            # A worker whose messages come one after another still runs out of both budgets.
            if budgets[is_compiling] < 0.0:
                raise WorkerTimeout(is_compiling, lines)
            if isinstance(response, messages.Running):
                lines.append(response.line)
            else:
                is_compiling = response.begins

    def _pids(self) -> list[int]:
        """Return the processes that a response may depend on."""
        return [*self._process.pids(), *(self._machine.pids() if self._machine is not None else ())]

    @property
    def printed(self) -> str:
        """The process's stdout and stderr."""
        return self._process.printed

    @property
    def last_error(self) -> str:
        """The error that a process which did not start printed last."""
        return self._process.last_error

    @property
    def pid(self) -> int:
        return self._process.pid

    def close(self) -> None:
        self._process.close()
