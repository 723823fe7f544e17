"""Arguments of Triton kernels as the values of the parameters that their PTX has."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Iterator
from typing import Any

from warpcheck.frontends import triton_descriptors as descriptors

__all__ = ["numbers"]


def numbers(kind: Any, value: Any, layouts: Iterator[Any]) -> Iterator[Any]:
    """An argument as the values of its parameters: a tuple is several, a tensor stands for its address.

    layouts: of the tensor maps of the descriptors to come.
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
    """As Triton's launcher rounds it: towards zero. PTX has one type for all that is 16 bits wide."""
    return bytes(ctypes.c_float(value))[2:]


_FLOATS: dict[str, Callable[[float], float | bytes]] = {
    "bf16": _bfloat16,
    "fp16": lambda value: struct.pack("<e", value),
    "fp32": lambda value: ctypes.c_float(value).value,
    "fp64": float,
}
"""A scalar argument by the type of Triton's signature."""
