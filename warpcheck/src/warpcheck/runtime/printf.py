"""``printf`` of a kernel: the format and the packed arguments, read from memory. CUDA programming guide, 10.35."""

from __future__ import annotations

import ctypes
import re

__all__ = ["c_string", "formatted"]

_SPECIFIER = re.compile(r"%(?:%|([-+ #0]*\d*(?:\.\d+)?)(hh|h|ll|l|z|t|j)?([diouxXcspeEfFgGaA]))")


def c_string(address: int) -> str:
    """The zero-terminated text at an address."""
    return ctypes.string_at(address).decode(errors="replace")


def formatted(text: int, arguments: int) -> str:
    """The output of ``vprintf(text, arguments)``; the arguments lie packed at their own alignment."""
    at = arguments

    def take(kind: type[ctypes._SimpleCData[int]] | type[ctypes.c_double]) -> int | float:
        nonlocal at
        size = ctypes.sizeof(kind)
        at = -(-at // size) * size
        value: int | float = kind.from_address(at).value
        at += size
        return value

    def one(match: re.Match[str]) -> str:
        if match[0] == "%%":
            return "%"
        flags, length, code = match[1], match[2] or "", match[3]
        if code in "eEfFgGaA":
            value = float(take(ctypes.c_double))
            return _hexadecimal(value, match[0]) if code in "aA" else f"%{flags}{code}" % value
        if code == "s":
            return f"%{flags}s" % c_string(int(take(ctypes.c_uint64)))
        wide = code == "p" or length in ("l", "ll", "z", "t", "j")
        if code in "di":
            return f"%{flags}d" % take(ctypes.c_int64 if wide else ctypes.c_int32)
        value = int(take(ctypes.c_uint64 if wide else ctypes.c_uint32))
        if code == "c":
            return f"%{flags}c" % chr(value & 0xFF)
        return f"0x{value:x}" if code == "p" else f"%{flags}{'d' if code == 'u' else code}" % value

    return _SPECIFIER.sub(one, c_string(text))


def _hexadecimal(value: float, specifier: str) -> str:
    """``%a`` by the C library, which formats for a GPU too."""
    text = ctypes.create_string_buffer(1100)
    ctypes.CDLL(None).snprintf(text, len(text), specifier.encode(), ctypes.c_double(value))
    return text.value.decode()
