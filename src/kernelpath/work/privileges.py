"""Give up privileges of a process: that others of the same user may inspect it, and root's capabilities.

Sources: prctl(2), PR_SET_DUMPABLE; proc(5) on the files of /proc/PID that then belong to root; capabilities(7).
"""

from __future__ import annotations

import ctypes
import struct

_PR_SET_DUMPABLE = 4
_CAPABILITY_VERSION_3 = 0x20080522

# CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH: in a container, packages and a checkout may belong to users other than
# root.
_KEPT_CAPABILITIES = 0b110


def hide() -> None:
    """Make this process undumpable: only root can read its memory, environment and descriptors.

    A debugger cannot attach then, and there are no core dumps.
    """
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0)


def drop() -> None:
    """Give up every capability except those to read and write files, which Landlock limits. Only root has any."""
    libc = ctypes.CDLL(None)
    header = struct.pack("Ii", _CAPABILITY_VERSION_3, 0)
    # Version 3 has two structs of three words: effective, permitted and inheritable. The second struct has the
    # capabilities from 32 on, of which none is kept.
    data = ctypes.create_string_buffer(24)
    if libc.capget(header, data) == 0:
        effective, permitted, *_ = struct.unpack("6I", data.raw)
        libc.capset(
            header, struct.pack("6I", effective & _KEPT_CAPABILITIES, permitted & _KEPT_CAPABILITIES, 0, 0, 0, 0)
        )
