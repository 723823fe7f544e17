"""Define the language of native functions: decorators, memory by address, and views of records."""

from __future__ import annotations

import ctypes
import linecache
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

import numpy as np

__all__ = [
    "EXTERN",
    "FUNCTIONS",
    "NOINLINE",
    "View",
    "add_f16",
    "add_f32",
    "add_f64",
    "call_code",
    "copy_bytes",
    "count_bits",
    "extern",
    "field_of",
    "fill_bytes",
    "load8",
    "load32",
    "load64",
    "lowest_bit",
    "native",
    "noinline",
    "offset_bits",
    "run_heads",
    "source_lines",
    "store8",
    "store32",
    "store64",
    "unlikely",
]

F = TypeVar("F", bound=Callable[..., Any])
FUNCTIONS: set[Callable[..., Any]] = set()
EXTERN: set[Callable[..., Any]] = set()
NOINLINE: set[Callable[..., Any]] = set()
# The lines of the files that define native functions.
_LINES: dict[str, list[str]] = {}

_WORD_MASK = (1 << 64) - 1


def native(function: F) -> F:
    """Mark a function for compilation. Functions that call each other need different names."""
    FUNCTIONS.add(function)
    # The text is read now and not when the function is compiled: by then the file may have changed, and the text at
    # these lines would be that of another function than the one that was imported.
    file = function.__code__.co_filename
    if file not in _LINES:
        linecache.checkcache(file)
        _LINES[file] = linecache.getlines(file)
    return function


def source_lines(function: Callable[..., Any]) -> list[str]:
    """Return the lines of a native function's file from its first one on, as they were when it was defined."""
    code = function.__code__
    return _LINES[code.co_filename][code.co_firstlineno - 1 :]


def noinline(function: F) -> F:
    """Mark a native function that is compiled once and linked, while all others are inlined in their callers.

    This is for functions that run seldom or are long: every check, of which a kernel may need ten, would be compiled
    with a copy of them, which takes longer than compiling the kernel.
    """
    NOINLINE.add(function)
    return native(function)


def extern(function: F) -> F:
    """Declare a function that is machine code of another module, under the same name."""
    EXTERN.add(function)
    return function


def load8(address: int) -> int:
    """Return the unsigned byte at an address."""
    return ctypes.c_uint8.from_address(address).value


def load32(address: int) -> int:
    """Return the unsigned 32-bit integer at an address."""
    return ctypes.c_uint32.from_address(address).value


def load64(address: int) -> int:
    """Return the signed 64-bit integer at an address."""
    return ctypes.c_int64.from_address(address).value


def store8(address: int, value: int) -> None:
    """Write the low byte of ``value``."""
    ctypes.c_uint8.from_address(address).value = value


def store32(address: int, value: int) -> None:
    """Write the low four bytes of ``value``."""
    ctypes.c_int32.from_address(address).value = value


def store64(address: int, value: int) -> None:
    """Write a 64-bit integer."""
    ctypes.c_int64.from_address(address).value = value


def copy_bytes(target: int, source: int, count: int) -> None:
    """Copy memory from one address to another; the two do not overlap."""
    ctypes.memmove(target, source, count)


def fill_bytes(target: int, value: int, count: int) -> None:
    """Set bytes of memory to the low byte of ``value``."""
    ctypes.memset(target, value & 255, count)


def call_code(code: int, argument: int) -> int:
    """Call the machine code at an address, a function of one integer, and return its result."""
    return int(ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(code)(argument))


def add_f16(left: int, right: int) -> int:
    """Return the bits of the sum of two float16 numbers, given by their bits and rounded to nearest even."""
    return _add_floats("e", left, right)


def add_f32(left: int, right: int) -> int:
    """Return the bits of the sum of two float32 numbers."""
    return _add_floats("f", left, right)


def add_f64(left: int, right: int) -> int:
    """Return the bits of the sum of two float64 numbers."""
    return _add_floats("d", left, right)


def _add_floats(code: str, left: int, right: int) -> int:
    kind = np.dtype(code)
    operands = np.array([left & _WORD_MASK, right & _WORD_MASK], np.uint64).astype(f"u{kind.itemsize}").view(kind)
    with np.errstate(all="ignore"):
        return int((operands[:1] + operands[1:]).view(f"i{kind.itemsize}")[0]) & (1 << 8 * kind.itemsize) - 1


def lowest_bit(number: int) -> int:
    """Return the position of the lowest bit that is set, in a number other than 0."""
    return (number & -number).bit_length() - 1


def count_bits(number: int) -> int:
    """Return how many bits are set, in a number that is not negative."""
    return number.bit_count()


def unlikely(condition: int) -> int:
    """Return a condition, and tell LLVM that it is seldom true: what depends on it is kept off the common path."""
    return condition


def run_heads(address: int, shift: int) -> int:
    """Return, as bits, which of 32 words differ from the word before in more than ``shift`` low bits.

    The first word always counts. In machine code, the 8 bytes in front of the words have to be readable.
    """
    words = [load64(address + 8 * index) >> shift for index in range(32)]
    return 1 | sum((words[index] != words[index - 1]) << index for index in range(1, 32))


def offset_bits(address: int) -> int:
    """Return the bitwise or of the distances of 32 words from the first one: no distance exceeds it.

    It is negative if any word is less than the first one.
    """
    first = load64(address)
    bits = 0
    for index in range(1, 32):
        bits |= load64(address + 8 * index) - first
    return bits


class View:
    """A record in memory, by its address. Subclasses name the numpy dtype of their ``record``."""

    record: ClassVar[np.dtype[np.void]]
    size: ClassVar[int]  # of the record, in bytes
    address: int

    # In Python, attributes read and write memory through ctypes; in machine code they become loads and stores.
    def __init_subclass__(cls) -> None:
        cls.size = cls.record.itemsize

    def __init__(self, address: int) -> None:
        # Past __setattr__, which would write to the record.
        object.__setattr__(self, "address", address)

    def __getattr__(self, name: str) -> int:
        return int(self._field(name).value)

    def __setattr__(self, name: str, value: int) -> None:
        self._field(name).value = value

    def _field(self, name: str) -> Any:
        kind, offset = field_of(self, name)
        return np.ctypeslib.as_ctypes_type(kind).from_address(self.address + offset)


def field_of(view: View | type[View], name: str) -> tuple[np.dtype[Any], int]:
    """Return type and offset of a field of a view's record."""
    fields = view.record.fields
    assert fields is not None
    return fields[name][0], int(fields[name][1])
