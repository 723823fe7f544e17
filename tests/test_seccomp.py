"""Test the seccomp filters that the Linux kernel enforces for a process and its children."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kernelpath.work import seccomp

PROGRAM = """
import array, ctypes, errno, json, os, platform, socket, subprocess, sys
from kernelpath.work import seccomp

listening = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
listening.bind("listening")
before = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
libc = ctypes.CDLL(None, use_errno=True)
assert seccomp.restrict(sys.argv[1])


def call(function, *arguments):
    if function(*arguments) < 0:
        raise OSError(ctypes.get_errno(), "")


def system_call(name, *arguments):
    number = seccomp._COMMON_NUMBERS.get(name) or seccomp._NUMBERS[platform.machine()][name]
    call(libc.syscall, number, *arguments)


def datagram_to_anybody():
    one, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    one.sendto(b"x", "listening")


def talk(kind):
    one, other = socket.socketpair(socket.AF_UNIX, kind | socket.SOCK_CLOEXEC)
    one.send(b"text")
    if other.recv(4) != b"text":
        raise OSError(0, "")


def elsewhere(kind):
    one, other = socket.socketpair(socket.AF_UNIX, kind)
    one.sendmsg([b"text"], [], 0, "listening")
    other.setblocking(False)
    if other.recv(4) == b"text":
        raise OSError(errno.EISCONN, "it went to the other end")


def write_past_the_quota():
    os.posix_fallocate(file, 0, 1 << 20)
    if os.fstat(file).st_size != 1 << 20:
        raise OSError(0, "")


def by_a_child():
    code = "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    if "PermissionError" in ran.stderr:
        raise OSError(errno.EACCES, "")


def be_traced():
    if (child := os.fork()) == 0:
        trace_me = 0
        os._exit(0 if libc.ptrace(trace_me, 0, None, None) == 0 else ctypes.get_errno())
    if status := os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
        raise OSError(status, "")


def transfer(name):
    local, remote = (ctypes.create_string_buffer(8) for _ in range(2))
    parts = [(ctypes.c_size_t * 2)(ctypes.addressof(part), 8) for part in (local, remote)]
    system_call(name, os.getpid(), parts[0], ctypes.c_ulong(1), parts[1], ctypes.c_ulong(1), ctypes.c_ulong(0))


file = os.open("x", os.O_RDWR | os.O_CREAT)
ATTEMPTS = {
    "disk blocks": lambda: call(libc.fallocate, file, 0, ctypes.c_long(0), ctypes.c_long(1 << 20)),
    "io_uring": lambda: system_call("io_uring_setup", 1, ctypes.create_string_buffer(120)),
    "UDP": lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM),
    "TCP": lambda: socket.socket(socket.AF_INET6, socket.SOCK_STREAM),
    "netlink": lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW),
    "Unix socket": lambda: socket.socket(socket.AF_UNIX, socket.SOCK_STREAM),
    "UDP of a child": by_a_child,
    "connect": lambda: before.connect("listening"),
    "bind": lambda: before.bind("bound"),
    "pair of datagrams": datagram_to_anybody,
    "pair of streams": lambda: talk(socket.SOCK_STREAM),
    "pair of packets": lambda: talk(socket.SOCK_SEQPACKET),
    "stream to another": lambda: elsewhere(socket.SOCK_STREAM),
    "packet to another": lambda: elsewhere(socket.SOCK_SEQPACKET),
    "memfd": lambda: os.memfd_create("memory"),
    "shmget": lambda: call(libc.shmget, 0, 4096, 0o1600),
    "semget": lambda: call(libc.semget, 0, 1, 0o1600),
    "msgget": lambda: call(libc.msgget, 0, 0o1600),
    "mq_open": lambda: system_call("mq_open", b"queue", os.O_CREAT | os.O_RDWR, 0o600, None),
    "add_key": lambda: system_call("add_key", b"user", b"key", b"text", 4, -3),
    "keyctl": lambda: system_call("keyctl", 0, -3, 0),
    "ptrace": be_traced,
    "memory of a process": lambda: transfer("process_vm_readv"),
    "memory into a process": lambda: transfer("process_vm_writev"),
    "descriptor of a process": lambda: system_call("pidfd_getfd", os.pidfd_open(os.getpid()), file, 0),
    "posix_fallocate": write_past_the_quota,
    "pipe": lambda: os.write(os.pipe()[1], b"x"),
    "program": lambda: subprocess.run(["true"], check=True),
}


def attempt(function):
    try:
        function()
    except OSError as error:
        return errno.errorcode.get(error.errno, repr(error))
    return ""


print(json.dumps({name: attempt(function) for name, function in ATTEMPTS.items()}))
"""

ALWAYS = {
    "io_uring": "ENOSYS",
    "shmget": "EPERM",
    "semget": "EPERM",
    "msgget": "EPERM",
    "mq_open": "EPERM",
    "add_key": "EPERM",
    "keyctl": "EPERM",
}
SOCKETS = ("UDP", "TCP", "UDP of a child")
PROCESSES = ("ptrace", "memory of a process", "memory into a process", "descriptor of a process")
# The attempts that fail and their errors, by profile.
REFUSED: dict[seccomp.Profile, dict[str, str]] = {
    "machine": {
        **ALWAYS,
        **dict.fromkeys(SOCKETS, "EACCES"),
        **dict.fromkeys(("netlink", "Unix socket", "connect", "bind", "pair of datagrams"), "EACCES"),
        **dict.fromkeys(PROCESSES, "EPERM"),
        "disk blocks": "ENOTSUP",
        "memfd": "ENOSYS",
    },
    "gpu": {**ALWAYS, **dict.fromkeys(SOCKETS, "EACCES"), "disk blocks": "ENOTSUP"},
    "ranks": ALWAYS,
}

# On a connected pair, the kernel ignores the address of another receiver or fails.
IN_ANY_CASE = {"stream to another": "EISCONN", "packet to another": "EISCONN"}

pytestmark = pytest.mark.skipif(
    not seccomp.is_supported(), reason="this kernel, or what emulates it, has no seccomp filters"
)


@pytest.mark.parametrize("profile", REFUSED)
def test_each_profile_refuses_exactly_its_system_calls(profile: seccomp.Profile, tmp_path: Path) -> None:
    completed = subprocess.run([sys.executable, "-c", PROGRAM, profile], cwd=tmp_path, capture_output=True, text=True)
    assert completed.stderr == ""
    outcomes = {name: outcome for name, outcome in json.loads(completed.stdout).items() if outcome}
    assert outcomes == {**IN_ANY_CASE, **REFUSED[profile]}
