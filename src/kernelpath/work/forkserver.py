"""A process that has imported what every worker and every PTX machine needs, and forks them from itself: a tenth of a
second, not two.

What a worker inherits is modules and nothing else. The server never touches a GPU, runs no operator and no submission,
and one worker cannot reach another. Python's own multiprocessing.forkserver works alike; it has no place for the
descriptors of a worker's output and runs pickled objects.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import os
import resource
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import traceback
import weakref
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Literal, NoReturn

MEMORY = 8 << 30
"""Bytes of host memory that a worker may have at most, and never more than half of what there is."""

FILE_SIZE = 64 << 20
"""Bytes that a file which a worker writes may have, what it prints included."""

Role = Literal["worker", "machine"]
ROLES = {"worker": ("kernelpath.work.worker", "main"), "machine": ("kernelpath.device.server", "serve")}
"""What a forked process does: the function that it calls with its socket."""

_BOOT = "import sys; sys.path[:] = {path!r}; from kernelpath.work.forkserver import serve; serve({descriptor})"
_NUMBER = struct.Struct("q")
_PR_SET_CHILD_SUBREAPER = 36


class Child:
    """A forked process, as the one that asked for it sees it. `told`: where the server writes its pid, then its end."""

    def __init__(self, told: int) -> None:
        self._told = told
        self._pid: int | None = None
        self._status: int | None = None

    @property
    def pid(self) -> int:
        """Waits until the server is up. Raises ProcessLookupError if it never is."""
        if self._pid is None:
            self._pid = self._number()
        if self._pid is None:
            raise ProcessLookupError("the fork server has ended")
        return self._pid

    def wait(self, seconds: float | None = None) -> int | None:
        """The exit status, negative for a signal; None after so many seconds. Raises ProcessLookupError."""
        assert self.pid
        if self._status is None and self._news(seconds):
            status = self._number()
            self._status = -signal.SIGKILL if status is None else status
        return self._status

    def kill(self) -> int:
        """End it and its children, wait until it is gone, and return its exit status.

        One that has not begun will end by itself, when it finds the other end of its channel closed.
        """
        if self._pid is None and not self._news(0.0):
            return -signal.SIGKILL
        try:
            with contextlib.suppress(PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            if self._pid is None:
                return -signal.SIGKILL
        return self.wait() or 0

    def close(self) -> None:
        os.close(self._told)

    def _news(self, seconds: float | None) -> bool:
        return bool(select.select([self._told], [], [], seconds)[0])

    def _number(self) -> int | None:
        raw = os.read(self._told, _NUMBER.size)
        return int(_NUMBER.unpack(raw)[0]) if raw else None


class ForkServer:
    """The server as the process sees that starts it. It ends with that process, and its workers with it."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._said = tempfile.TemporaryFile()  # noqa: SIM115
        path = [entry for entry in sys.path if entry and Path(entry).resolve() != Path.cwd()]
        self._process = subprocess.Popen(
            [sys.executable, "-IBu", "-c", _BOOT.format(path=path, descriptor=theirs.fileno())],
            pass_fds=[theirs.fileno()],
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=self._said,
            stderr=self._said,
            start_new_session=True,
        )
        theirs.close()
        weakref.finalize(self, _end, self._requests, self._process, self._said)

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    @property
    def said(self) -> str:
        """What it wrote to stdout and stderr: the reason why it ended, where it did."""
        self._said.seek(0)
        return self._said.read().decode(errors="replace")

    def fork(self, role: Role, channel: int, printed: int, needs: str = "") -> Child:
        """A new process that talks through the descriptor `channel` and prints to `printed`. Does not wait for it.

        needs: a module that the server imports before, unless it cannot, for this child and all later ones.
        """
        told, tells = os.pipe()
        try:
            with contextlib.suppress(OSError):  # a server that has ended is noticed by who waits for the child
                socket.send_fds(self._requests, [f"{role} {needs}".encode()], [channel, printed, tells])
        finally:
            os.close(tells)
        return Child(told)


def _end(requests: socket.socket, process: subprocess.Popen[bytes], said: IO[bytes]) -> None:
    requests.close()
    process.wait()
    said.close()


class _Thread(threading.local):
    """What a thread has for itself: a submission can kill the server that it came from, and all that runs beside it."""

    server: ForkServer | None = None
    environment: Mapping[str, str] = {}


_thread = _Thread()


def running() -> ForkServer:
    """This thread's server, started where there is none: call it early, and its imports run beside other work."""
    if _thread.server is None or not _thread.server.alive:
        _thread.server = ForkServer(_thread.environment)
    return _thread.server


def set_environment(**variables: str) -> None:
    """What this thread's next server has in its environment besides this process's, and so have its workers."""
    _thread.server, _thread.environment = None, variables


def serve(descriptor: int) -> NoReturn:
    """The server itself: forks a worker for each request, tells how workers ended, ends with the asking process."""
    requests = socket.socket(fileno=descriptor)
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)  # what a worker leaves behind becomes a child of the server
    for module, _ in ROLES.values():
        importlib.import_module(module)
    gc.freeze()
    woken, wake = os.pipe2(os.O_NONBLOCK)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    children: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([descriptor, woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
            _bury(children)
            _kill(_children() - children.keys())
        if descriptor in ready:
            asked, descriptors, _, _ = socket.recv_fds(requests, 256, 3)
            if not asked:
                _kill(_children())
                os._exit(0)
            channel, printed, tells = descriptors
            role, _, needs = asked.decode().partition(" ")
            if needs and needs not in sys.modules:
                with contextlib.suppress(ImportError):  # the worker says what is missing
                    importlib.import_module(needs)
                    gc.freeze()
            pid = os.fork()
            if pid == 0:
                _become(role, channel, printed, (descriptor, woken, wake, tells, *children.values()))
            with contextlib.suppress(OSError):
                os.setpgid(pid, pid)  # here too: whoever is told the pid may kill the group at once
            os.close(channel)
            os.close(printed)
            children[pid] = tells
            _tell(tells, pid)


def _bury(children: dict[int, int]) -> None:
    while children:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        tells = children.pop(pid, None)
        if tells is not None:
            _tell(tells, os.waitstatus_to_exitcode(status))
            os.close(tells)


def _children() -> set[int]:
    """The server's children, whether it forked them or inherited them."""
    return {int(pid) for path in Path("/proc/self/task").glob("*/children") for pid in path.read_text().split()}


def _kill(pids: Iterable[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def _tell(descriptor: int, number: int) -> None:
    with contextlib.suppress(BrokenPipeError):
        os.write(descriptor, _NUMBER.pack(number))


def _become(role: str, channel: int, printed: int, not_mine: Sequence[int]) -> NoReturn:
    status = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setpgid(0, 0)
        for descriptor in not_mine:
            os.close(descriptor)
        for stream in (1, 2):
            os.dup2(printed, stream)
        os.close(printed)
        _limit()
        module, function = ROLES[role]
        getattr(importlib.import_module(module), function)(socket.socket(fileno=channel))
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def _limit() -> None:
    """Let a submission that takes too much fail, and not the machine. A GPU's memory and address space do not count."""
    memory = min(MEMORY, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2)
    for what, most in (
        (resource.RLIMIT_DATA, memory),
        (resource.RLIMIT_FSIZE, FILE_SIZE),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(what, (most, most))
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")  # the first to go if memory runs out
