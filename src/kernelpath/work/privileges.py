"""What a process of ours gives up: to be looked into by others of the same user, and a root's capabilities.

Sources: prctl(2), PR_SET_DUMPABLE; proc(5), which files of /proc/PID then belong to root; capabilities(7).
"""

from __future__ import annotations

import ctypes
import struct

_PR_SET_DUMPABLE = 4
_VERSION = 0x20080522
_KEPT = 0b110
"""CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH: in a container, packages and a checkout may belong to others than root."""


def hide() -> None:
    """Keep this process's memory, environment and descriptors from all others but root's.

    A debugger cannot attach then, and there are no core dumps.
    """
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0)


def drop() -> None:
    """Give up every capability but those to read and write files, which Landlock holds. Does nothing but to root."""
    libc = ctypes.CDLL(None)
    header, had = struct.pack("Ii", _VERSION, 0), ctypes.create_string_buffer(24)
    if libc.capget(header, had) == 0:
        effective, permitted, *_ = struct.unpack("6I", had.raw)
        libc.capset(header, struct.pack("6I", effective & _KEPT, permitted & _KEPT, 0, 0, 0, 0))
