"""Landlock: a process gives up files, TCP and signals that it does not need, for good and for all its children.

Every Linux kernel since 5.13 has it, unless it was built or started without; no rights are needed. Source: Linux kernel
documentation, "Landlock: unprivileged access control".
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

_CREATE, _ADD, _RESTRICT = 444, 445, 446  # the same number on every architecture
_VERSION = 1
_PATH_BENEATH = 1
_NO_NEW_PRIVS = 38

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_REFER, _TRUNCATE, _IOCTL = 1 << 13, 1 << 14, 1 << 15
_FIRST_RIGHTS = (1 << 13) - 1
"""Of the first version: all that changes files and folders, but to link across them, to truncate, and device ioctls."""
_TCP = 0b11
_SCOPES = 0b11
"""Abstract sockets of other processes, and signals to them."""

_HELD_SINCE = {1: "files", 4: "TCP", 6: "signals"}
_ABSENT = {
    errno.EOPNOTSUPP: ("Landlock is off in this kernel", "add landlock to lsm= on the kernel's command line"),
    errno.EPERM: ("this container forbids Landlock", "allow it in the container's seccomp profile, as Docker 23 does"),
    errno.ENOSYS: ("no Landlock in this kernel", "grade the work of others in a virtual machine or a container"),
}
"""By an error number, of a query for the version or EPERM of a first use: the reason, and what to do."""

_READ = _EXECUTE | _READ_FILE | _READ_DIR
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL


def version() -> int:
    """What this kernel's Landlock can do, as a number that grows; 0 where it holds nothing."""
    return _asked()[0]


def describe_support() -> tuple[bool, str, str]:
    """Whether anything is held, what, and what to do about the rest."""
    known, error = _asked()
    if known:
        held = {since: what for since, what in _HELD_SINCE.items() if since <= known}
        open_ = [what for since, what in _HELD_SINCE.items() if since > known]
        lacking = f"; too old to hold {' and '.join(open_)}" if open_ else ""
        return True, f"Landlock {known}: {', '.join(held.values())}{lacking}", ""
    why, remedy = _ABSENT.get(error, _ABSENT[errno.ENOSYS])
    return False, f"{why}: a submission can read and write what you can", remedy


def _asked() -> tuple[int, int]:
    """The version; or 0, and an error number by which `_ABSENT` says why."""
    found: int = _libc().syscall(_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(_VERSION))
    if found <= 0:
        return 0, ctypes.get_errno()
    return (0, errno.EPERM) if _use_is_forbidden() else (found, 0)


def _use_is_forbidden() -> bool:
    """Whether a container's filter answers for the version and forbids the rest: a thread that ends gives files up."""
    forbidden: list[OSError] = []

    def use() -> None:
        try:
            _hold(struct.pack("Q", _FIRST_RIGHTS), [(Path("/"), _READ)])
        except OSError as error:
            forbidden.append(error)

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    return bool(forbidden)


def restrict(readable: Iterable[Path], writable: Iterable[Path], withheld: Sequence[Path] = ()) -> int:
    """Let this thread, and all that it starts from now on, reach nothing but what lies below these paths.

    withheld: folders below the readable ones, of which only names may be read. Paths that do not exist are passed over.
    Returns `version()`: with 0 nothing is held. Raises OSError.
    """
    known = version()
    if not known:
        return 0
    files = _FIRST_RIGHTS | (_REFER if known >= 2 else 0) | (_TRUNCATE if known >= 3 else 0)
    files |= _IOCTL if known >= 5 else 0
    handled = struct.pack("QQQ", files, _TCP if known >= 4 else 0, _SCOPES if known >= 6 else 0)
    readable, closed = list(readable), [path.resolve() for path in withheld]
    allowed = [(path, _READ | _IOCTL) for one in readable for path in _without(closed, one.resolve())]
    allowed += [(path, _READ_DIR) for path in readable]
    allowed += [(path, files) for path in writable]
    size = 24 if known >= 6 else 16 if known >= 4 else 8
    _hold(handled[:size], [(path, rights & files) for path, rights in allowed])
    return known


def _hold(handled: bytes, allowed: Iterable[tuple[Path, int]]) -> None:
    """Give up what is handled for this thread, but for these rights below these paths. Raises OSError."""
    ruleset = _checked(_libc().syscall(_CREATE, handled, ctypes.c_size_t(len(handled)), ctypes.c_uint32(0)))
    try:
        for path, rights in allowed:
            _allow(ruleset, path, rights)
        _checked(_libc().prctl(_NO_NEW_PRIVS, 1, 0, 0, 0))
        _checked(_libc().syscall(_RESTRICT, ctypes.c_int(ruleset), ctypes.c_uint32(0)))
    finally:
        os.close(ruleset)


def _without(withheld: Sequence[Path], path: Path) -> Iterator[Path]:
    """What is there besides: the path itself where none of them lies in it. All paths are resolved."""
    if not any(one.is_relative_to(path) or path.is_relative_to(one) for one in withheld):
        yield path
    elif path not in withheld:
        for inside in path.iterdir():
            target = inside.resolve()
            if inside == target or not any(one.is_relative_to(target) for one in withheld):
                yield from _without(withheld, target)


def _allow(ruleset: int, path: Path, rights: int) -> None:
    try:
        beneath = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        rights &= rights if path.is_dir() else _OF_FILES
        rule = struct.pack("=Qi", rights, beneath)
        _checked(_libc().syscall(_ADD, ctypes.c_int(ruleset), ctypes.c_int(_PATH_BENEATH), rule, ctypes.c_uint32(0)))
    finally:
        os.close(beneath)


def _checked(status: int) -> int:
    if status < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return status


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
