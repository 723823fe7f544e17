"""Give up the files, TCP ports and signals that a process does not need, with Landlock.

The process gives them up for good, and so do all its children. Every Linux kernel since 5.13 has Landlock, unless it
was built or started without; no rights are needed. Source: Linux kernel documentation, "Landlock: unprivileged access
control".
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

_SYS_CREATE_RULESET, _SYS_ADD_RULE, _SYS_RESTRICT_SELF = 444, 445, 446  # the same number on every architecture
_CREATE_RULESET_VERSION = 1
_PATH_BENEATH = 1
_PR_SET_NO_NEW_PRIVS = 38

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_REFER, _TRUNCATE, _IOCTL = 1 << 13, 1 << 14, 1 << 15

# The rights of version 1: all access to files and folders except to link across folders, to truncate, and device
# ioctls.
_FIRST_RIGHTS = (1 << 13) - 1
_TCP = 0b11

# Abstract sockets of other processes, and signals to them.
_SCOPES = 0b11

_HELD_SINCE = {1: "files", 4: "TCP", 6: "signals"}

# The reason and the remedy, by the error number of a query for the version, or EPERM of a first use.
_ABSENT = {
    errno.EOPNOTSUPP: ("Landlock is off in this kernel", "add landlock to lsm= on the kernel's command line"),
    errno.EPERM: ("this container forbids Landlock", "allow it in the container's seccomp profile, as Docker 23 does"),
    errno.ENOSYS: ("no Landlock in this kernel", "grade the work of others in a virtual machine or a container"),
}

_READ = _EXECUTE | _READ_FILE | _READ_DIR
_FILE_RIGHTS = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL


def version() -> int:
    """Return the version of this kernel's Landlock ABI; 0 where it restricts nothing."""
    return _query_version()[0]


def describe_support() -> tuple[bool, str, str]:
    """Return whether anything is restricted, a description of what is, and what to do about the rest."""
    abi, error = _query_version()
    if abi:
        supported = {since: what for since, what in _HELD_SINCE.items() if since <= abi}
        unsupported = [what for since, what in _HELD_SINCE.items() if since > abi]
        limitation = f"; too old to hold {' and '.join(unsupported)}" if unsupported else ""
        return True, f"Landlock {abi}: {', '.join(supported.values())}{limitation}", ""
    why, remedy = _ABSENT.get(error, _ABSENT[errno.ENOSYS])
    return False, f"{why}: a submission can read and write every file that you can", remedy


def _query_version() -> tuple[int, int]:
    """Return the ABI version and 0, or 0 and an error number that `_ABSENT` explains."""
    # syscall(2) is variadic, and ctypes passes a plain int with the width of a C int. So sizes and flags have types.
    abi: int = _libc().syscall(_SYS_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_CREATE_RULESET_VERSION))
    if abi <= 0:
        return 0, ctypes.get_errno()
    return (0, errno.EPERM) if _use_is_forbidden() else (abi, 0)


def _use_is_forbidden() -> bool:
    """Return whether a container's filter answers the version query and forbids the rest.

    A thread tries it: what a thread gives up ends with the thread.
    """
    errors: list[OSError] = []

    def use() -> None:
        try:
            _restrict_self(struct.pack("Q", _FIRST_RIGHTS), [(Path("/"), _READ)])
        except OSError as error:
            errors.append(error)

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    return bool(errors)


def restrict(readable: Iterable[Path], writable: Iterable[Path], hidden: Sequence[Path] = ()) -> int:
    """Restrict this thread, and all that it starts from now on, to these paths.

    Args:
        readable: Folders and files that may be read and executed. Paths that do not exist are skipped.
        writable: Folders and files that may be read and written.
        hidden: Folders below the readable ones. Only the names of their entries may be read.

    Returns:
        `version()`: with 0 nothing is restricted.

    Raises:
        OSError: The kernel refused.
    """
    abi = version()
    if not abi:
        return 0
    # Each version of the ABI added rights, and fields at the end of landlock_ruleset_attr. A kernel refuses bits and
    # fields that it does not know, so both are cut to its version.
    file_rights = _FIRST_RIGHTS
    # A ruleset without REFER refuses every link and every rename from one folder to another: landlock(7),
    # LANDLOCK_ACCESS_FS_REFER.
    if abi >= 2:
        file_rights |= _REFER
    if abi >= 3:
        file_rights |= _TRUNCATE
    if abi >= 5:
        file_rights |= _IOCTL
    tcp_rights = _TCP if abi >= 4 else 0
    scopes = _SCOPES if abi >= 6 else 0
    attributes = struct.pack("QQQ", file_rights, tcp_rights, scopes)
    fields = 1 + (abi >= 4) + (abi >= 6)
    readable = list(readable)
    hidden = [path.resolve() for path in hidden]
    # A rule grants rights below a path and cannot exclude anything there. So hidden folders are left out by granting
    # the rights below their siblings instead.
    rules = [(path, _READ | _IOCTL) for folder in readable for path in _without(hidden, folder.resolve())]
    # Where a folder contains a hidden folder, the rules so far cover only its entries. Python's import system lists the
    # folder itself.
    rules += [(path, _READ_DIR) for path in readable]
    rules += [(path, file_rights) for path in writable]
    # landlock_add_rule(2) refuses rights that the ruleset does not handle (EINVAL).
    _restrict_self(attributes[: 8 * fields], [(path, rights & file_rights) for path, rights in rules])
    return abi


def _restrict_self(attributes: bytes, rules: Iterable[tuple[Path, int]]) -> None:
    """Enforce a ruleset on this thread.

    Args:
        attributes: The landlock_ruleset_attr, which names the rights that are given up.
        rules: Paths, and the rights that are kept below each.

    Raises:
        OSError: The kernel refused.
    """
    ruleset = _check_status(
        _libc().syscall(_SYS_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), ctypes.c_uint32(0))
    )
    try:
        for path, rights in rules:
            _add_rule(ruleset, path, rights)
        # Without no_new_privs landlock_restrict_self(2) requires CAP_SYS_ADMIN: a set-user-ID program would otherwise
        # run with privileges under restrictions that its caller chose.
        _check_status(_libc().prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        _check_status(_libc().syscall(_SYS_RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint32(0)))
    finally:
        os.close(ruleset)


def _without(hidden: Sequence[Path], path: Path) -> Iterator[Path]:
    """Yield the paths that cover `path` except for the hidden paths; `path` itself where it contains none of them.

    All paths are resolved.
    """
    if not any(folder.is_relative_to(path) or path.is_relative_to(folder) for folder in hidden):
        yield path
    elif path not in hidden:
        for entry in path.iterdir():
            target = entry.resolve()
            # A link to a parent of a hidden folder could lead back here. Its target is covered where it is.
            if entry == target or not any(folder.is_relative_to(target) for folder in hidden):
                yield from _without(hidden, target)


def _add_rule(ruleset: int, path: Path, rights: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        # landlock_add_rule(2) refuses a rule for a file with rights that only folders have (EINVAL).
        if not path.is_dir():
            rights &= _FILE_RIGHTS
        # struct landlock_path_beneath_attr is packed: linux/landlock.h.
        rule = struct.pack("=Qi", rights, descriptor)
        _check_status(
            _libc().syscall(_SYS_ADD_RULE, ctypes.c_int(ruleset), ctypes.c_int(_PATH_BENEATH), rule, ctypes.c_uint32(0))
        )
    finally:
        os.close(descriptor)


def _check_status(status: int) -> int:
    if status < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return status


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
