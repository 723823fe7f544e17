"""Convert arguments of Triton kernels to the values of their PTX parameters."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Iterator
from typing import Any

from warpcheck.frontends import triton_descriptors as descriptors

__all__ = ["numbers"]


def numbers(kind: Any, value: Any, layouts: Iterator[Any]) -> Iterator[Any]:
    """Yield the parameter values of an argument: several for a tuple or a descriptor, a tensor for its address.

    layouts: The layouts of the tensor maps of all descriptors that follow.
    """
    if isinstance(kind, tuple):
        for inner, item in zip(kind, value, strict=True):
            yield from numbers(inner, item, layouts)
    elif kind == "constexpr":
        return
    elif isinstance(kind, str) and kind.startswith("tensordesc"):
        for item in descriptors.passed(value, next(layouts, None)):
            yield from numbers("", item, layouts)
    elif hasattr(value, "data_ptr") or isinstance(value, bytes):
        yield value
    elif kind in _FLOATS:
        yield _FLOATS[kind](float(value))
    else:
        yield value if isinstance(value, float) else int(value or 0)


def _bfloat16(value: float) -> bytes:
    """Return a bfloat16 as bytes, rounded toward zero as Triton's launcher does."""
    # A bfloat16 is the upper half of a float32, and memory is little-endian.
    return bytes(ctypes.c_float(value))[2:]


_FLOATS: dict[str, Callable[[float], float | bytes]] = {
    "bf16": _bfloat16,
    "fp16": lambda value: struct.pack("<e", value),
    "fp32": lambda value: ctypes.c_float(value).value,
    "fp64": float,
}
"""The conversion of a scalar argument for each floating-point type of Triton's signatures."""
