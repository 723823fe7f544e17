"""Seccomp, as the kernel enforces it upon a process and its children."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import ctypes, errno, os, sys
from kernelpath.work import seccomp
held = seccomp.forbid_allocation()
libc = ctypes.CDLL(None, use_errno=True)
file = os.open("x", os.O_RDWR | os.O_CREAT)
status = libc.fallocate(file, 0, ctypes.c_long(0), ctypes.c_long(1 << 20))
told = errno.errorcode[ctypes.get_errno()] if status else "allocated"
ring = libc.syscall(425, 1, ctypes.create_string_buffer(120))
told_of_ring = errno.errorcode[ctypes.get_errno()] if ring < 0 else "made"
os.posix_fallocate(file, 0, 1 << 20)
os.write(file, b"abc")
print(held, told, told_of_ring, os.stat(file).st_size)
"""


def test_disk_blocks_are_written_and_not_merely_taken(tmp_path: Path) -> None:
    ran = subprocess.run([sys.executable, "-c", PROGRAM], cwd=tmp_path, capture_output=True, text=True, check=True)
    held, *told = ran.stdout.split()
    if held == "False":
        pytest.skip("this kernel, or what emulates it, has no seccomp filters")
    assert told == [errno.errorcode[errno.EOPNOTSUPP], "ENOSYS", str(1 << 20)]
