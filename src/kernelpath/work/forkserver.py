"""A process that has imported what every worker and every PTX machine needs, and forks them from itself: a tenth of a
second, not two.

What a worker inherits is modules and nothing else. The server never touches a GPU, runs no operator and no submission,
and one worker cannot reach another. Python's own multiprocessing.forkserver works similarly, but has no place for the
descriptors of a worker's output and runs pickled objects.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from kernelpath.work import privileges
from kernelpath.work.forkserver_main import NUMBER, Role

_BOOT = "import sys; sys.path[:] = {path!r}; from kernelpath.work.forkserver_main import serve; serve({descriptor})"
_BURIAL_SECONDS = 10.0
"""For the server to tell the end of a process that was killed."""


class Child:
    """A forked process, as the one that asked for it sees it. told: where the server writes its pid, then its end."""

    def __init__(self, told: socket.socket, server: ForkServer) -> None:
        self._told, self._server = told, server
        self._pid: int | None = None
        self._handle: int | None = None
        self._status: int | None = None

    @property
    def pid(self) -> int:
        """Waits until the server is up. Raises ProcessLookupError if it never is."""
        if self._pid is None:
            self._pid, handles = self._number()
            self._handle = next(iter(handles), None)
        if self._pid is None:
            raise ProcessLookupError("the fork server has ended")
        return self._pid

    def wait(self, seconds: float | None = None) -> int | None:
        """The exit status, negative for a signal, or a quota.Excess; None after so many seconds.

        Raises ProcessLookupError.
        """
        assert self.pid
        if self._status is None and self._news(seconds):
            status, _ = self._number()
            self._status = -signal.SIGKILL if status is None else status
        return self._status

    def kill(self) -> int:
        """End it and its children, wait until it is gone, and return its exit status.

        One that has not begun will end by itself, when it finds the other end of its channel closed.
        """
        if self._pid is None and not self._news(0.0):
            return -signal.SIGKILL
        try:
            self._kill(self.pid)
        except ProcessLookupError:
            if self._pid is None:
                return -signal.SIGKILL
        self._server.go_on()
        status = self.wait(_BURIAL_SECONDS)
        if status is None:
            self._server.kill()
        return -signal.SIGKILL if status is None else status

    def close(self) -> None:
        self._told.close()
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def _kill(self, pid: int) -> None:
        """By its handle, where there is one: its number may be another process's by now."""
        if self._handle is not None:
            signal.pidfd_send_signal(self._handle, signal.SIGKILL)
        elif self._status is None:
            os.kill(pid, signal.SIGKILL)

    def _news(self, seconds: float | None) -> bool:
        return bool(select.select([self._told], [], [], seconds)[0])

    def _number(self) -> tuple[int | None, list[int]]:
        try:
            raw, descriptors, _, _ = socket.recv_fds(self._told, NUMBER.size, 1)
        except OSError:
            return None, []
        return (int(NUMBER.unpack(raw)[0]) if raw else None), descriptors


class ForkServer:
    """The server as the process sees that starts it. It ends with that process, and its workers with it."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._said = tempfile.TemporaryFile()  # noqa: SIM115
        path = [entry for entry in sys.path if entry and Path(entry).resolve() != Path.cwd()]
        self._process = subprocess.Popen(
            [sys.executable, "-IBu", "-c", _BOOT.format(path=path, descriptor=theirs.fileno())],
            pass_fds=[theirs.fileno()],
            env={"OMP_WAIT_POLICY": "passive", **os.environ, **environment},  # threads that spin take others' time
            stdin=subprocess.DEVNULL,
            stdout=self._said,
            stderr=self._said,
            start_new_session=True,
        )
        theirs.close()
        privileges.hide()
        weakref.finalize(self, _end, self._requests, self._process, self._said)

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    @property
    def said(self) -> str:
        """What it wrote to stdout and stderr: the reason why it ended, where it did."""
        self._said.seek(0)
        return self._said.read().decode(errors="replace")

    def fork(self, role: Role, channel: int, printed: int, needs: str = "", folder: Path | None = None) -> Child:
        """A new process that talks through the descriptor `channel` and prints to `printed`. Does not wait for it.

        needs: a module that the server imports before, unless it cannot, for this child and all later ones.
        folder: where it may write, within quota.FOLDER_BYTES.
        """
        told, tells = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        asked = b"\0".join((role.encode(), needs.encode(), bytes(folder) if folder else b""))
        with tells, contextlib.suppress(OSError):  # a server that has ended is noticed by who waits for the child
            socket.send_fds(self._requests, [asked], [channel, printed, tells.fileno()])
        return Child(told, self)

    def go_on(self) -> None:
        """Continue, where a submission has stopped it."""
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self._process.kill()

    def stop(self) -> None:
        """Let it end with all its children, without waiting for that."""
        with contextlib.suppress(OSError):
            self._requests.shutdown(socket.SHUT_RDWR)
        self.go_on()


def _end(requests: socket.socket, process: subprocess.Popen[bytes], said: IO[bytes]) -> None:
    requests.close()
    process.wait()
    said.close()


class ServersEnded(Exception):
    """No more processes are to be forked: the group of the thread's servers has been ended."""


class ServerGroup:
    """The servers of several threads, which can be ended together from another thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._servers: weakref.WeakSet[ForkServer] = weakref.WeakSet()
        self._ended = False

    def start(self, environment: Mapping[str, str]) -> ForkServer:
        """A server that belongs to the group. Raises Ended."""
        with self._lock:
            if self._ended:
                raise ServersEnded
            server = ForkServer(environment)
            self._servers.add(server)
            return server

    def end(self) -> None:
        """End the servers with all their children, and let no other start: who waits for a child finds it gone."""
        with self._lock:
            self._ended = True
            for server in self._servers:
                server.stop()


class _Thread(threading.local):
    """What a thread has for itself: a submission can kill the server that it came from, and all that runs beside it."""

    server: ForkServer | None = None
    clean: ForkServer | None = None
    environment: Mapping[str, str] = {}
    group: ServerGroup | None = None


_thread = _Thread()


def get_server(*, clean: bool = False) -> ForkServer:
    """This thread's server, started where there is none: call it early, and its imports run beside other work.

    clean: a second server, which imports nothing for any child. A child of the first one has all that was imported for
    earlier children: classes of a module can be found among the subclasses of object after the module was taken away.

    Raises Ended.
    """
    server = _thread.clean if clean else _thread.server
    if server is None or not server.alive:
        group = _thread.group
        server = group.start(_thread.environment) if group else ForkServer(_thread.environment)
        if clean:
            _thread.clean = server
        else:
            _thread.server = server
    return server


def set_environment(group: ServerGroup | None = None, /, **variables: str) -> None:
    """What this thread's next server has in its environment besides this process's, and so have its workers.

    group: to which that server, and all later ones of the thread, belong.
    """
    _thread.server = _thread.clean = None
    _thread.environment, _thread.group = variables, group
