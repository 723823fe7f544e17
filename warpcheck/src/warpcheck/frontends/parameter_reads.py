"""Find the bytes of a struct parameter that a kernel reads. What it does not read may be padding, with any value."""

from __future__ import annotations

import re

from warpcheck.tensor_map import BYTES as TENSOR_MAP_BYTES

__all__ = ["clear_unread_bytes"]

_MOVE = re.compile(r"(?:mov\.[bu]64|cvta\.param\.u64)\s+(%\w+), (%?\w+)$")
_ADD = re.compile(r"add\.s64\s+(%\w+), (%\w+), (-?\d+)$")
_LOAD = re.compile(r"ld\.param(?:\.v(\d))?\.\w(\d+)\s.*\[(%?\w+)(?:\+(-?\d+))?\]$")
_NEXT_FUNCTION = re.compile(r"^[ \t]*(?:\.\w+ )*\.(?:entry|func) ", re.MULTILINE)
_REGISTER = re.compile(r"%\w+")


def clear_unread_bytes(content: bytes, ptx: str, kernel: str, parameter: int) -> bytes:
    """Return the content of a parameter with zeros for the bytes that its kernel does not read.

    A program that passes a struct by value passes the padding between its members as well, which holds whatever was on
    the stack. Reads are loads from parameter space, and instructions of TMA that get the address of a tensor map in it.
    If the kernel uses the address in any other way, all of the content counts as read.

    Args:
        content: The bytes of the parameter.
        ptx: The PTX text that has the kernel. Compilers assign each register of an address once.
        kernel: The kernel's mangled name.
        parameter: The number of the parameter.
    """
    read = bytearray(len(content))
    offsets = {f"{kernel}_param_{parameter}": 0}  # of the names and registers that hold an address in the parameter
    body = _NEXT_FUNCTION.split(ptx.partition(f".entry {kernel}(")[2], maxsplit=1)[0]
    for statement in (line.strip().rstrip(";") for line in body.splitlines()):
        if (move := _MOVE.match(statement)) and move[2] in offsets:
            offsets[move[1]] = offsets[move[2]]
        elif (add := _ADD.match(statement)) and add[2] in offsets:
            offsets[add[1]] = offsets[add[2]] + int(add[3])
        elif (load := _LOAD.match(statement)) and load[3] in offsets:
            start = offsets[load[3]] + int(load[4] or 0)
            nbytes = int(load[1] or 1) * int(load[2]) // 8
            read[start : start + nbytes] = b"\1" * nbytes
        elif held := [offsets[register] for register in _REGISTER.findall(statement) if register in offsets]:
            if "tensor" not in statement:
                return content
            for start in held:
                read[start : start + TENSOR_MAP_BYTES] = b"\1" * TENSOR_MAP_BYTES
    return bytes(byte if is_read else 0 for byte, is_read in zip(content, read, strict=False))
