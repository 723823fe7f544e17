"""The fork server itself: it imports once what its children need, forks them, enforces their quota and reaps them."""

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

from kernelpath.hooks import Changed
from kernelpath.work import privileges, quota

Role = Literal["worker", "machine"]
ROLES = {"worker": ("kernelpath.work.worker", "main"), "machine": ("kernelpath.device.server", "serve")}
"""What a forked process does: the function that it calls with its socket."""

NUMBER = struct.Struct("q")
"""A pid, with a descriptor of the process where the kernel has that, and then an exit status."""

_MOST_ASKED = 1 << 14
_PR_SET_CHILD_SUBREAPER = 36


@dataclass
class _Forked:
    """A child. tells: where its pid and its end are told. folder: where it may write."""

    tells: socket.socket
    folder: Path | None
    excess: quota.Excess | None = None


def serve(descriptor: int) -> NoReturn:
    """The server itself: forks a process for each request, tells how it ended, ends with the asking process."""
    requests = socket.socket(fileno=descriptor)
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)  # what a worker leaves behind becomes a child of the server
    gc.disable()  # nothing that an import makes is garbage: with torch that saves a fifth of its time
    for module, _ in ROLES.values():
        importlib.import_module(module)
    gc.freeze()
    woken, wake = os.pipe2(os.O_NONBLOCK)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    children: dict[int, _Forked] = {}
    looked = 0.0
    while True:
        held = any(one.folder for one in children.values())
        ready, _, _ = select.select([descriptor, woken], [], [], quota.LOOK_SECONDS if held else None)
        if woken in ready:
            os.read(woken, 4096)
            _bury(children)
        if woken in ready or time.monotonic() > looked + quota.LOOK_SECONDS:
            quota.kill_trees(quota.children() - children.keys())
            _look_after(children)
            looked = time.monotonic()
        if descriptor in ready:
            asked, descriptors, _, _ = socket.recv_fds(requests, _MOST_ASKED, 3)
            if not asked:
                quota.kill_trees(quota.children())
                os._exit(0)
            channel, printed, tells = descriptors
            role, needs, folder = asked.split(b"\0")
            _prepare(needs.decode())
            pid = os.fork()
            if pid == 0:
                others = (one.tells.fileno() for one in children.values())
                _become(role.decode(), channel, printed, (descriptor, woken, wake, tells, *others))
            with contextlib.suppress(OSError):
                os.setpgid(pid, pid)  # here too, so that it has a group of its own whenever it is looked at
            os.close(channel)
            os.close(printed)
            children[pid] = _Forked(socket.socket(fileno=tells), Path(os.fsdecode(folder)) if folder else None)
            _tell_pid(children[pid].tells, pid)


def _prepare(needs: str) -> None:
    if needs and needs not in sys.modules:
        with contextlib.suppress(ImportError, Changed):  # the worker says what is missing
            importlib.import_module(needs)
            gc.freeze()


def _look_after(children: dict[int, _Forked]) -> None:
    for pid, one in children.items():
        if one.folder is not None and one.excess is None:
            one.excess = quota.find_excess(pid, one.folder)
            if one.excess is not None:
                quota.kill_trees([pid])


def _bury(children: dict[int, _Forked]) -> None:
    """Tell who ended. As long as a process is not waited for, its number and its group's are nobody else's."""
    while ended := _ended():
        with contextlib.suppress(OSError):
            os.killpg(ended.si_pid, signal.SIGKILL)
        _, status = os.waitpid(ended.si_pid, 0)
        one = children.pop(ended.si_pid, None)
        if one is not None:
            _tell(one.tells, one.excess or os.waitstatus_to_exitcode(status))
            one.tells.close()


def _ended() -> os.waitid_result | None:
    with contextlib.suppress(ChildProcessError):
        return os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    return None


def _tell_pid(tells: socket.socket, pid: int) -> None:
    handles = []
    with contextlib.suppress(OSError, AttributeError):  # older kernels, and some builds of Python, have none
        handles.append(os.pidfd_open(pid))
    with contextlib.suppress(OSError):
        socket.send_fds(tells, [NUMBER.pack(pid)], handles)
    for handle in handles:
        os.close(handle)


def _tell(tells: socket.socket, number: int) -> None:
    with contextlib.suppress(OSError):
        tells.send(NUMBER.pack(number))


def _become(role: str, channel: int, printed: int, not_mine: Sequence[int]) -> NoReturn:
    status = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        gc.enable()
        os.setpgid(0, 0)
        for descriptor in not_mine:
            os.close(descriptor)
        for stream in (1, 2):
            os.dup2(printed, stream)
        os.close(printed)
        quota.limit()
        privileges.drop()
        if role == "machine":
            privileges.hide()
        module, function = ROLES[role]
        getattr(importlib.import_module(module), function)(socket.socket(fileno=channel))
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)
