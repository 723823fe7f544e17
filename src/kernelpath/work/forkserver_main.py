"""Run the fork server: import once what its children need, fork them, enforce their quota, and reap them."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import os
import select
import signal
import socket
import struct
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NoReturn

from kernelpath.work import privileges, quota
from warpcheck.hooks import Changed

Role = Literal["worker", "machine"]

# The module and the function that a forked process calls with its socket, by role.
ROLES = {"worker": ("kernelpath.work.worker", "main"), "machine": ("kernelpath.device.server", "serve")}

# The format of a pid, which comes with a pidfd where the kernel has pidfds, and then of an exit status.
NUMBER = struct.Struct("q")

_MAX_REQUEST_BYTES = 1 << 14
_PR_SET_CHILD_SUBREAPER = 36


@dataclass
class _ForkedChild:
    """A child of the server.

    Attributes:
        events: The socket for its pid and its exit status.
        folder: The folder that it may write to; None without a quota.
        excess: What it used too much of.
    """

    events: socket.socket
    folder: Path | None
    excess: quota.Excess | None = None


def serve(descriptor: int) -> NoReturn:
    """Fork a process for each request, report how it ended, and exit when the requesting process closes the socket."""
    requests = socket.socket(fileno=descriptor)
    # What a worker leaves behind becomes a child of the server, and so can be found and killed.
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    gc.disable()  # imports create no garbage: without collections torch imports in a fifth less time
    for module, _ in ROLES.values():
        importlib.import_module(module)
    # A collection in a child then leaves these objects alone, so their pages stay shared with the server: documentation
    # of gc.freeze.
    gc.freeze()
    # SIGCHLD wakes the select below through a pipe (the self-pipe trick).
    wakeup_read, wakeup_write = os.pipe2(os.O_NONBLOCK)
    # Python writes to the wakeup descriptor only for signals that have a handler, even one that does nothing.
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wakeup_write, warn_on_full_buffer=False)
    children: dict[int, _ForkedChild] = {}
    last_check = 0.0
    while True:
        has_quotas = any(child.folder for child in children.values())
        timeout = quota.LOOK_SECONDS if has_quotas else None
        ready, _, _ = select.select([descriptor, wakeup_read], [], [], timeout)
        if wakeup_read in ready:
            os.read(wakeup_read, 4096)
            _reap(children)
        if wakeup_read in ready or time.monotonic() > last_check + quota.LOOK_SECONDS:
            quota.kill_trees(quota.children() - children.keys())  # orphans of workers that have ended
            _enforce_quotas(children)
            last_check = time.monotonic()
        if descriptor in ready:
            request, descriptors, _, _ = socket.recv_fds(requests, _MAX_REQUEST_BYTES, 3)
            if not request:
                quota.kill_trees(quota.children())
                os._exit(0)
            channel, output, events = descriptors
            role, needs, folder = request.split(b"\0")
            _import_if_possible(needs.decode())
            # Forking is safe, because this process has a single thread: no lock can be held by a thread that the child
            # lacks.
            pid = os.fork()
            if pid == 0:
                other_events = (child.events.fileno() for child in children.values())
                # With these a child could take requests in the server's place, or report a status for another child.
                inherited = (descriptor, wakeup_read, wakeup_write, events, *other_events)
                _run_child(role.decode(), channel, output, inherited)
            # The child calls setpgid as well: whoever comes first, it has a group of its own before anybody looks.
            with contextlib.suppress(OSError):
                os.setpgid(pid, pid)
            os.close(channel)
            os.close(output)
            child_folder = Path(os.fsdecode(folder)) if folder else None
            children[pid] = _ForkedChild(socket.socket(fileno=events), child_folder)
            _send_pid(children[pid].events, pid)


def _import_if_possible(module: str) -> None:
    if module and module not in sys.modules:
        with contextlib.suppress(ImportError, Changed):  # the worker will report what is missing
            importlib.import_module(module)
            gc.freeze()


def _enforce_quotas(children: dict[int, _ForkedChild]) -> None:
    for pid, child in children.items():
        if child.folder is not None and child.excess is None:
            child.excess = quota.find_excess(pid, child.folder)
            if child.excess is not None:
                quota.kill_trees([pid])


def _reap(children: dict[int, _ForkedChild]) -> None:
    """Kill the process group of each child that has ended, reap the child, and report its exit status.

    The kernel does not reuse the pid and the group of a zombie. So the group is killed before the zombie is reaped.
    """
    while zombie := _find_zombie():
        with contextlib.suppress(OSError):
            # Descendants that are still in the child's group; others are found as orphans (`quota.kill_trees`).
            os.killpg(zombie.si_pid, signal.SIGKILL)
        _, status = os.waitpid(zombie.si_pid, 0)
        child = children.pop(zombie.si_pid, None)
        if child is not None:
            _send_number(child.events, child.excess or os.waitstatus_to_exitcode(status))
            child.events.close()


def _find_zombie() -> os.waitid_result | None:
    with contextlib.suppress(ChildProcessError):
        return os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    return None


def _send_pid(events: socket.socket, pid: int) -> None:
    pidfds = []
    with contextlib.suppress(OSError, AttributeError):  # older kernels, and some builds of Python, have no pidfd_open
        pidfds.append(os.pidfd_open(pid))
    with contextlib.suppress(OSError):
        socket.send_fds(events, [NUMBER.pack(pid)], pidfds)
    for pidfd in pidfds:
        os.close(pidfd)


def _send_number(events: socket.socket, number: int) -> None:
    with contextlib.suppress(OSError):
        events.send(NUMBER.pack(number))


def _run_child(role: str, channel: int, output: int, inherited: Sequence[int]) -> NoReturn:
    """Turn a fresh fork into a child of this role, and never return.

    Args:
        channel: The descriptor of the child's socket.
        output: The descriptor that becomes stdout and stderr.
        inherited: The descriptors of the server, which are closed.
    """
    status = 1
    try:
        # The child shares the wakeup pipe: without this, the exit of a grandchild would wake the server.
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        gc.enable()
        os.setpgid(0, 0)
        for descriptor in inherited:
            os.close(descriptor)
        for stream in (1, 2):
            os.dup2(output, stream)
        os.close(output)
        # `quota.limit` writes to /proc/self/oom_score_adj, which belongs to root once the process is hidden.
        quota.limit()
        privileges.drop()
        # The machine holds the inputs and the counters, and submissions run as the same user: they must not reach its
        # memory through /proc or ptrace.
        if role == "machine":
            privileges.hide()
        module, function = ROLES[role]
        getattr(importlib.import_module(module), function)(socket.socket(fileno=channel))
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        # A return would continue the loop of the server, whose stack the child has inherited.
        os._exit(status)
