"""``printf`` of a kernel: the format and the packed arguments, read from memory. CUDA programming guide, 10.35."""

from __future__ import annotations

import ctypes
import re

__all__ = ["c_string", "formatted"]

_SPECIFIER = re.compile(r"%(?:%|([-+ #0]*\d*(?:\.\d+)?)(hh|h|ll|l|z|t|j)?([diouxXcspeEfFgGaA]))")


def c_string(address: int) -> str:
    """Return the zero-terminated text at an address."""
    return ctypes.string_at(address).decode(errors="replace")


def formatted(text: int, arguments: int) -> str:
    """Return the output of ``vprintf(text, arguments)``; the arguments are packed at their natural alignment."""
    position = arguments

    def read_argument(kind: type[ctypes._SimpleCData[int]] | type[ctypes.c_double]) -> int | float:
        nonlocal position
        # Arguments are packed like the members of a struct.
        size = ctypes.sizeof(kind)
        position = -(-position // size) * size
        value: int | float = kind.from_address(position).value
        position += size
        return value

    def format_specifier(match: re.Match[str]) -> str:
        if match[0] == "%%":
            return "%"
        flags = match[1]
        length = match[2] or ""
        code = match[3]
        if code in "eEfFgGaA":
            value = float(read_argument(ctypes.c_double))
            return _hexadecimal(value, match[0]) if code in "aA" else f"%{flags}{code}" % value
        if code == "s":
            return f"%{flags}s" % c_string(int(read_argument(ctypes.c_uint64)))
        is_64_bit = code == "p" or length in ("l", "ll", "z", "t", "j")
        if code in "di":
            return f"%{flags}d" % read_argument(ctypes.c_int64 if is_64_bit else ctypes.c_int32)
        value = int(read_argument(ctypes.c_uint64 if is_64_bit else ctypes.c_uint32))
        if code == "c":
            return f"%{flags}c" % chr(value & 0xFF)
        return f"0x{value:x}" if code == "p" else f"%{flags}{'d' if code == 'u' else code}" % value

    return _SPECIFIER.sub(format_specifier, c_string(text))


def _hexadecimal(value: float, specifier: str) -> str:
    """Format ``%a`` by the C library, which formats for a GPU as well."""
    text = ctypes.create_string_buffer(1100)
    ctypes.CDLL(None).snprintf(text, len(text), specifier.encode(), ctypes.c_double(value))
    return text.value.decode()
