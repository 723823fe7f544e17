"""Seccomp: a process gives up system calls that it does not need, for good and for all its children.

No rights are needed once a process has given up gaining any. Sources: Linux kernel documentation, "Seccomp BPF (SECure
COMPuting with filters)"; seccomp(2); linux/audit.h; the tables of system calls of x86-64 and of asm-generic/unistd.h.
"""

from __future__ import annotations

import ctypes
import errno
import platform
import struct

from kernelpath.surroundings import Surroundings

_SET_NO_NEW_PRIVS, _SET_SECCOMP, _MODE_FILTER = 38, 22, 2
_LOAD, _IS, _IS_AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_NUMBER_AT, _ARCHITECTURE_AT = 0, 4
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000

_ARCHITECTURE_AND_FALLOCATE = {"x86_64": (0xC000003E, 285), "aarch64": (0xC00000B7, 47)}
_IO_URING_SETUP = 425
_X32 = 1 << 30
"""Set in the numbers of x86-64's other table, which names the same calls again."""


def known() -> bool:
    """Whether this kernel has filters for this machine's calls; asked for one that lies nowhere, as seccomp(2) says.

    An emulator makes the calls of another machine, all of which the filter would forbid.
    """
    if platform.machine() not in _ARCHITECTURE_AND_FALLOCATE or Surroundings().emulated_on:
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    return libc.prctl(_SET_SECCOMP, _MODE_FILTER, None, 0, 0) < 0 and ctypes.get_errno() == errno.EFAULT


def judged() -> tuple[bool, str, str]:
    """Whether `forbid_allocation` holds here, what that is good for, and what to do otherwise."""
    if known():
        return True, "seccomp: a submission takes no blocks that it does not write", ""
    return False, "no seccomp filter here: a submission can fill it at once", "export KERNELPATH_CACHE=/a/spare/disk"


def forbid_allocation() -> bool:
    """Let no file of this thread, and of all that it starts from now on, take disk blocks that nothing was written to.

    `fallocate` takes 100 GB in a second, faster than any quota that looks now and then; glibc's posix_fallocate writes
    instead. io_uring, which would pass by, goes with it. Returns whether the kernel holds it.
    """
    if not known():
        return False
    architecture, fallocate = _ARCHITECTURE_AND_FALLOCATE[platform.machine()]
    program = (
        (_LOAD, 0, 0, _ARCHITECTURE_AT),
        (_IS, 0, 5, architecture),
        (_LOAD, 0, 0, _NUMBER_AT),
        (_IS_AT_LEAST, 3, 0, _X32),
        (_IS, 2, 0, _IO_URING_SETUP),
        (_IS, 2, 0, fallocate),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _ERRNO | errno.ENOSYS),
        (_RETURN, 0, 0, _ERRNO | errno.EOPNOTSUPP),
    )
    steps = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in program))
    filter = ctypes.create_string_buffer(struct.pack("HP", len(program), ctypes.addressof(steps)))
    libc = ctypes.CDLL(None)
    return not (libc.prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(_SET_SECCOMP, _MODE_FILTER, filter))
