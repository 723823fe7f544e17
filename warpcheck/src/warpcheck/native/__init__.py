"""Compile functions of integers, written in a subset of Python, to machine code through LLVM.

A function marked ``@native`` takes and returns 64-bit integers, views of records, and named tuples of integers, which
are passed by value: each field is an integer of its own, so a tuple costs nothing. It may use ``if``, ``while``,
``for … in range``, integer operators, comparisons, ``and``, ``or``, ``not``, conditional expressions, ``min``, ``max``,
assignments to variables and to fields of views, global constants, the functions of ``language`` and other native
functions. Anything else raises SyntaxError when it is compiled.

Called from Python it is ordinary Python; ``compile_function`` returns LLVM IR of it and of all that it calls. The two
agree as long as no value exceeds 64 bits. In machine code:

- Comparisons, ``min`` and ``max`` are signed, and ``>>`` keeps the sign; but ``//`` and ``%`` are unsigned, so they are
  for non-negative numbers only.
- A conditional expression evaluates both values; ``and`` and ``or`` evaluate the second operand only if it matters, and
  give 0 or 1.
- A chained comparison evaluates all operands.
- A field of a view is loaded or stored with the size of its dtype, sign-extended unless it is unsigned.
"""

from warpcheck.native.compiler import compile_function, compile_noinline, parameter_names
from warpcheck.native.language import (
    View,
    add_f16,
    add_f32,
    add_f64,
    call_code,
    copy_bytes,
    count_bits,
    extern,
    fill_bytes,
    load8,
    load32,
    load64,
    lowest_bit,
    native,
    noinline,
    offset_bits,
    run_heads,
    store8,
    store32,
    store64,
    unlikely,
)

__all__ = [
    "View",
    "add_f16",
    "add_f32",
    "add_f64",
    "call_code",
    "compile_function",
    "compile_noinline",
    "copy_bytes",
    "count_bits",
    "extern",
    "fill_bytes",
    "load8",
    "load32",
    "load64",
    "lowest_bit",
    "native",
    "noinline",
    "offset_bits",
    "parameter_names",
    "run_heads",
    "store8",
    "store32",
    "store64",
    "unlikely",
]
