"""Functions of integers, written in plain Python and compiled to machine code through LLVM.

A function marked ``@native`` takes and returns 64-bit integers and views of records, and uses only ``if``, ``while``,
``for … in range``, integer operators, other such functions, and memory by address. Called from Python it is ordinary
Python; ``compile_function`` makes LLVM IR of it and of all that it calls. ``//`` and ``%`` are of non-negative numbers,
``>>`` keeps the sign.
"""

from warpcheck.native.compiler import compile_apart, compile_function
from warpcheck.native.language import (
    View,
    add_f16,
    add_f32,
    add_f64,
    apart,
    changes,
    copy_bytes,
    count_bits,
    external,
    fill_bytes,
    load8,
    load32,
    load64,
    lowest_bit,
    native,
    store8,
    store32,
    store64,
)

__all__ = [
    "View",
    "add_f16",
    "add_f32",
    "add_f64",
    "apart",
    "changes",
    "compile_apart",
    "compile_function",
    "copy_bytes",
    "count_bits",
    "external",
    "fill_bytes",
    "load8",
    "load32",
    "load64",
    "lowest_bit",
    "native",
    "store8",
    "store32",
    "store64",
]
