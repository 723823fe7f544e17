"""Forbid the system calls that a process does not need, with seccomp filters.

The process gives them up for good, and so do all its children. No rights are needed after PR_SET_NO_NEW_PRIVS. Sources:
Linux kernel documentation, "Seccomp BPF (SECure COMPuting with filters)"; seccomp(2); linux/audit.h; the tables of
system calls of x86-64 and of asm-generic/unistd.h.
"""

from __future__ import annotations

import ctypes
import errno
import platform
import socket
import struct
from collections.abc import Sequence
from typing import Literal

from kernelpath.host_info import HostInfo

# The place where the kernels of a submission run: the PTX machine, a GPU, or several GPUs that NCCL connects.
Profile = Literal["machine", "gpu", "ranks"]

_PR_SET_NO_NEW_PRIVS = 38
_PR_SET_SECCOMP = 22
_SECCOMP_MODE_FILTER = 2

# Opcodes of classic BPF: BPF_LD | BPF_W | BPF_ABS and so on. The data is one struct seccomp_data.
_LOAD, _AND, _JUMP_IF_EQUAL, _JUMP_IF_AT_LEAST, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x06

# Offsets in struct seccomp_data. An argument has 8 bytes, the lower half first on both architectures.
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16

# SECCOMP_RET_ALLOW and SECCOMP_RET_ERRNO. The lower 16 bits of the latter are the error number: seccomp(2).
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000

_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_NUMBERS = {
    "x86_64": {
        "fallocate": 285,
        "memfd_create": 319,
        "socket": 41,
        "socketpair": 53,
        "connect": 42,
        "bind": 49,
        "shmget": 29,
        "semget": 64,
        "msgget": 68,
        "mq_open": 240,
        "add_key": 248,
        "request_key": 249,
        "keyctl": 250,
        "ptrace": 101,
        "process_vm_readv": 310,
        "process_vm_writev": 311,
    },
    "aarch64": {
        "fallocate": 47,
        "memfd_create": 279,
        "socket": 198,
        "socketpair": 199,
        "connect": 203,
        "bind": 200,
        "shmget": 194,
        "semget": 190,
        "msgget": 186,
        "mq_open": 180,
        "add_key": 217,
        "request_key": 218,
        "keyctl": 219,
        "ptrace": 117,
        "process_vm_readv": 270,
        "process_vm_writev": 271,
    },
}

# Calls with the same number on every architecture, as all calls from 424 on have.
_COMMON_NUMBERS = {"io_uring_setup": 425, "pidfd_getfd": 438, "memfd_secret": 447}

# The bit that is set in the numbers of x86-64's second table (x32), which has the same calls again.
_X32 = 1 << 30

# Calls that make System V and POSIX objects, or kernel keys, which stay until somebody removes them.
_OUTLIVE_A_PROCESS = ("shmget", "semget", "msgget", "mq_open", "add_key", "request_key", "keyctl")

# Calls that reach into another process of the same user: its memory, or its descriptors.
_ENTER_A_PROCESS = ("ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd")

# The bits of a socket's type that are not flags. Source: linux/net.h, SOCK_TYPE_MASK.
_SOCKET_TYPE = 0xF

# The opcode, the instructions to skip where a comparison holds and where it does not, and the operand.
_Instruction = tuple[int, int, int, int]


def is_supported() -> bool:
    """Return whether this kernel filters the calls of this machine.

    The kernel is tried with a filter at address 0, as seccomp(2) recommends: EFAULT means that it has filters. Under an
    emulator, the kernel sees the calls of another machine, all of which the filter would forbid.
    """
    if platform.machine() not in _ARCHITECTURES or HostInfo().emulated_on:
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    return libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, None, 0, 0) < 0 and ctypes.get_errno() == errno.EFAULT


def describe_support() -> tuple[bool, str, str]:
    """Return whether `restrict` works here, what that prevents, and what to do otherwise."""
    if is_supported():
        return True, "seccomp: a submission has no sockets and no memory or disk blocks past its quota", ""
    return (
        False,
        "no seccomp filter here: a submission can use sockets and shared memory, and fill the disk at once",
        "grade the work of others in a virtual machine or a container; export KERNELPATH_CACHE=/a/spare/disk",
    )


def restrict(profile: Profile = "machine") -> bool:
    """Forbid this thread, and all that it starts from now on, the calls that exceed a quota or reach another process.

    - `fallocate` reserves 100 GB of disk in a second, faster than a quota that is checked now and then; glibc's
      posix_fallocate writes instead. NCCL cannot do without.
    - io_uring makes calls that no filter sees.
    - `socket`, `connect` and `bind` reach other processes and other machines. Landlock restricts TCP alone: UDP and the
      named sockets of ssh-agent, Docker or Ray stay open. Pairs of connected Unix sockets, which Python's libraries use
      between threads and children, are allowed except for datagrams, whose every message can name another receiver.
      CUDA's driver binds and connects Unix sockets (MPS, memory shared between processes), NCCL uses all kinds.
    - The calls of `_OUTLIVE_A_PROCESS` make objects in memory that stay after the grader has ended.
    - The calls of `_ENTER_A_PROCESS` would give one rank of a group the end of the exchange that belongs to another
      rank. Landlock forbids them as well, where the kernel has it. Several GPUs share memory by `pidfd_getfd`.
    - `memfd_create` makes files that no quota of a folder counts. Libraries that try it (libffi) go on without; CUDA's
      driver may not.

    Returns:
        Whether the kernel has installed the filter.
    """
    if not is_supported():
        return False
    architecture = _ARCHITECTURES[platform.machine()]
    # ENOSYS and EOPNOTSUPP are the errors of a kernel or a file system without the call. Libraries have a fallback for
    # them: glibc writes to the file instead of fallocate, and libffi works without memfd_create.
    rules = [*_refuse(errno.ENOSYS, "io_uring_setup"), *_refuse(errno.EPERM, *_OUTLIVE_A_PROCESS)]
    if profile != "ranks":
        rules += _refuse(errno.EOPNOTSUPP, "fallocate")
    if profile == "gpu":
        rules += _allow_families(socket.AF_UNIX, socket.AF_NETLINK)
    if profile == "machine":
        rules += _refuse(errno.ENOSYS, "memfd_create", "memfd_secret")
        rules += _refuse(errno.EPERM, *_ENTER_A_PROCESS)
        rules += _refuse(errno.EACCES, "socket", "connect", "bind")
        rules += _allow_pairs_of_streams()
    # Numbers mean different calls on different architectures, so the architecture is checked first.
    program = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_JUMP_IF_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _ERRNO | errno.ENOSYS),
        (_LOAD, 0, 0, _NUMBER),
        # An x32 call has the architecture of x86-64, and its number would match no comparison below: seccomp(2). No
        # call of aarch64 has a number as large.
        (_JUMP_IF_AT_LEAST, 0, 1, _X32),
        (_RETURN, 0, 0, _ERRNO | errno.ENOSYS),
        *rules,
        (_RETURN, 0, 0, _ALLOW),
    ]
    return _install(program)


def _refuse(error: int, *names: str) -> list[_Instruction]:
    """Return instructions that make these calls fail with an error. They expect the call's number, and keep it
    loaded.
    """
    instructions: list[_Instruction] = []
    for name in names:
        instructions += [(_JUMP_IF_EQUAL, 0, 1, _number(name)), (_RETURN, 0, 0, _ERRNO | error)]
    return instructions


def _allow_families(*families: int) -> list[_Instruction]:
    """Return instructions that limit socket() to these address families, none of which reaches another machine."""
    # The parameters of socket() and socketpair() are ints, so the kernel ignores the upper halves of the arguments.
    # Each path through the decision returns. The rules after it can rely on the call's number, which the load here
    # replaces.
    decision: list[_Instruction] = [(_LOAD, 0, 0, _ARGUMENTS)]
    for family in families:
        decision += [(_JUMP_IF_EQUAL, 0, 1, family), (_RETURN, 0, 0, _ALLOW)]
    decision.append((_RETURN, 0, 0, _ERRNO | errno.EACCES))
    return [(_JUMP_IF_EQUAL, 0, len(decision), _number("socket")), *decision]


def _allow_pairs_of_streams() -> list[_Instruction]:
    """Return instructions that limit socketpair() to Unix sockets whose two ends stay connected."""
    decision: list[_Instruction] = [
        (_LOAD, 0, 0, _ARGUMENTS),
        # Of the jumps in this list, 4 leads to the refusal, and 2 and 1 lead to the permission. Each path returns, as
        # in `_allow_families`.
        (_JUMP_IF_EQUAL, 0, 4, socket.AF_UNIX),
        (_LOAD, 0, 0, _ARGUMENTS + 8),
        (_AND, 0, 0, _SOCKET_TYPE),
        (_JUMP_IF_EQUAL, 2, 0, socket.SOCK_STREAM),
        (_JUMP_IF_EQUAL, 1, 0, socket.SOCK_SEQPACKET),
        (_RETURN, 0, 0, _ERRNO | errno.EACCES),
        (_RETURN, 0, 0, _ALLOW),
    ]
    return [(_JUMP_IF_EQUAL, 0, len(decision), _number("socketpair")), *decision]


def _number(name: str) -> int:
    return _COMMON_NUMBERS.get(name) or _NUMBERS[platform.machine()][name]


def _install(program: Sequence[_Instruction]) -> bool:
    """Pass a program to the kernel, for this thread and all that it starts."""
    # struct sock_filter and struct sock_fprog: linux/filter.h.
    instructions = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *instruction) for instruction in program))
    filter = ctypes.create_string_buffer(struct.pack("HP", len(program), ctypes.addressof(instructions)))
    libc = ctypes.CDLL(None)
    # The kernel requires that the unused arguments of PR_SET_NO_NEW_PRIVS are 0, and prctl is variadic: an argument
    # that is left out has an undefined value.
    return not (
        libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, filter)
    )
