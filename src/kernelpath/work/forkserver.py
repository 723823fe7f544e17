"""Fork workers and PTX machines from a server process that has already imported what they need.

A fork takes a tenth of a second, and the imports would take two. A child inherits modules and nothing else: the server
never touches a GPU, runs no operator and no submission, and one worker cannot reach another. Python's own
multiprocessing.forkserver works similarly, but cannot pass the descriptors of a child's output, and unpickles objects.
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

# The time for the server to report the end of a process that was killed.
_REAP_SECONDS = 10.0


class Child:
    """A forked process, as the process that requested it sees it.

    Args:
        events: The socket to which the server writes the child's pid, and then its exit status.
        server: The server.
    """

    def __init__(self, events: socket.socket, server: ForkServer) -> None:
        self._events = events
        self._server = server
        self._pid: int | None = None
        self._pidfd: int | None = None
        self._status: int | None = None

    @property
    def pid(self) -> int:
        """The pid. Reading it waits until the server is up. Raises ProcessLookupError if the server never is."""
        if self._pid is None:
            self._pid, descriptors = self._receive_number()
            self._pidfd = next(iter(descriptors), None)
        if self._pid is None:
            raise ProcessLookupError("the fork server has ended")
        return self._pid

    def wait(self, seconds: float | None = None) -> int | None:
        """Return the exit status, negative for a signal, or a quota.Excess; None if the child still runs.

        Raises ProcessLookupError.
        """
        assert self.pid
        if self._status is None and self._has_event(seconds):
            status, _ = self._receive_number()
            # A server that has died reports nothing. Its workers have died with it, by PR_SET_PDEATHSIG.
            self._status = -signal.SIGKILL if status is None else status
        return self._status

    def kill(self) -> int:
        """End the child and its children, wait until it is gone, and return its exit status.

        A child that has not been forked yet will end by itself, when it finds the other end of its channel closed.
        """
        if self._pid is None and not self._has_event(0.0):
            return -signal.SIGKILL
        try:
            self._send_sigkill(self.pid)
        except ProcessLookupError:
            if self._pid is None:
                return -signal.SIGKILL
        # A server that the submission has stopped would never report the end of its child.
        self._server.resume()
        status = self.wait(_REAP_SECONDS)
        if status is None:
            # The server does not reap, so nobody knows whether the child is gone. It ends with the server.
            self._server.kill()
        return -signal.SIGKILL if status is None else status

    def close(self) -> None:
        self._events.close()
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None

    def _send_sigkill(self, pid: int) -> None:
        """Kill the child by its pidfd where there is one: its pid may belong to another process by now."""
        if self._pidfd is not None:
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        elif self._status is None:
            os.kill(pid, signal.SIGKILL)

    def _has_event(self, seconds: float | None) -> bool:
        return bool(select.select([self._events], [], [], seconds)[0])

    def _receive_number(self) -> tuple[int | None, list[int]]:
        try:
            raw, descriptors, _, _ = socket.recv_fds(self._events, NUMBER.size, 1)
        except OSError:
            return None, []
        return (int(NUMBER.unpack(raw)[0]) if raw else None), descriptors


# Defaults of variables that the children's libraries read. Spinning threads of OpenMP would slow other processes. The
# PTX machine has one thread, so that a limit on processor time means the same on every machine.
_ENVIRONMENT = {"OMP_WAIT_POLICY": "passive", "WARPCHECK_THREADS": "1"}


class ForkServer:
    """The server, as the process that starts it sees it. It ends with that process, and its children end with it."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._requests, server_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._output = tempfile.TemporaryFile()  # noqa: SIM115
        # The current folder may be a learner's, and the server, which would import modules from there, is not confined.
        path = [entry for entry in sys.path if entry and Path(entry).resolve() != Path.cwd()]
        self._process = subprocess.Popen(
            [sys.executable, "-IBu", "-c", _BOOT.format(path=path, descriptor=server_end.fileno())],
            pass_fds=[server_end.fileno()],
            env={**_ENVIRONMENT, **os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._output,
            # In a session of its own, the server gets no SIGINT when the user presses Ctrl-C: the grader ends it.
            start_new_session=True,
        )
        server_end.close()
        # This process holds the expected values. It hides before it starts the first process of a submission.
        privileges.hide()
        weakref.finalize(self, _end, self._requests, self._process, self._output)

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    @property
    def output(self) -> str:
        """The server's stdout and stderr: the reason for its end, where it has ended."""
        self._output.seek(0)
        return self._output.read().decode(errors="replace")

    def fork(self, role: Role, channel: int, output: int, needs: str = "", folder: Path | None = None) -> Child:
        """Request a new process, without waiting for it.

        Args:
            role: What the process does.
            channel: The descriptor of the socket through which it communicates.
            output: The descriptor that it prints to.
            needs: A module that the server imports first, unless it cannot, for this child and all later ones.
            folder: The folder that the process may write to, within quota.FOLDER_BYTES.
        """
        # SOCK_SEQPACKET keeps the boundaries of messages: first the pid with its pidfd, then the status. See unix(7).
        events, server_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # No path contains a NUL byte.
        request = b"\0".join((role.encode(), needs.encode(), bytes(folder) if folder else b""))
        # A server that has ended is noticed by whoever waits for the child.
        with server_end, contextlib.suppress(OSError):
            socket.send_fds(self._requests, [request], [channel, output, server_end.fileno()])
        return Child(events, self)

    def resume(self) -> None:
        """Continue the server where a submission has stopped it with SIGSTOP."""
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self._process.kill()

    def stop(self) -> None:
        """Let the server end with all its children, without waiting for that."""
        with contextlib.suppress(OSError):
            self._requests.shutdown(socket.SHUT_RDWR)
        self.resume()


def _end(requests: socket.socket, process: subprocess.Popen[bytes], output: IO[bytes]) -> None:
    requests.close()
    process.wait()
    output.close()


class ServersEnded(Exception):
    """The servers of this thread's group have been ended, so no process can be forked."""


class ServerGroup:
    """The servers of several threads, which another thread can end together."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._servers: weakref.WeakSet[ForkServer] = weakref.WeakSet()
        self._has_ended = False

    def start(self, environment: Mapping[str, str]) -> ForkServer:
        """Return a new server that belongs to the group. Raise ServersEnded where the group has been ended."""
        with self._lock:
            if self._has_ended:
                raise ServersEnded
            server = ForkServer(environment)
            self._servers.add(server)
            return server

    def end(self) -> None:
        """End the servers with all their children, and start no others. Threads that wait for a child find it dead."""
        # Starting takes the same lock, so no server can be started between the two steps.
        with self._lock:
            self._has_ended = True
            for server in self._servers:
                server.stop()


class _ThreadState(threading.local):
    """The servers of one thread: a submission can kill the server that it came from, with all its other children."""

    server: ForkServer | None = None
    clean_server: ForkServer | None = None
    environment: Mapping[str, str] = {}
    group: ServerGroup | None = None


_thread_state = _ThreadState()


def get_server(*, clean: bool = False) -> ForkServer:
    """Return this thread's server, and start it where there is none.

    Call this early: the server's imports run in parallel with other work.

    Args:
        clean: Whether to return a second server, which imports nothing for any child. A child of the first one has all
            modules that were imported for earlier children, and their classes can be found among the subclasses of
            `object` even after the modules were unloaded.

    Raises:
        ServersEnded: The thread's group has been ended.
    """
    server = _thread_state.clean_server if clean else _thread_state.server
    if server is None or not server.alive:
        group = _thread_state.group
        server = group.start(_thread_state.environment) if group else ForkServer(_thread_state.environment)
        if clean:
            _thread_state.clean_server = server
        else:
            _thread_state.server = server
    return server


def set_environment(group: ServerGroup | None = None, /, **variables: str) -> None:
    """Set the environment variables that this thread's next server and its children have in addition.

    Args:
        group: The group of that server and of all later servers of the thread.
        variables: The variables by name.
    """
    # A `Child` keeps its server alive, so the earlier server ends when the last of its children is forgotten.
    _thread_state.server = None
    _thread_state.clean_server = None
    _thread_state.environment = variables
    _thread_state.group = group
