"""What a view of a storage holds."""

from __future__ import annotations

import hashlib
import math

import numpy as np
import numpy.typing as npt

from kernelpath.device import messages

Bytes = npt.NDArray[np.uint8]


class Refused(Exception):
    """A request that no honest client makes."""


_ITEMS = {
    "bool": "u1",
    "uint8": "u1",
    "int8": "u1",
    "float8_e4m3fn": "u1",
    "float8_e5m2": "u1",
    "int16": "u2",
    "uint16": "u2",
    "float16": "u2",
    "bfloat16": "u2",
    "int32": "u4",
    "uint32": "u4",
    "float32": "u4",
    "int64": "u8",
    "uint64": "u8",
    "float64": "u8",
    "complex64": "u8",
    "complex128": "c16",
}


def elements(memory: Bytes, told: messages.Strided) -> Bytes:
    """The bytes of a view's elements, in their order. Raises Refused where that is not a view of the storage."""
    if told.dtype not in _ITEMS or len(told.shape) != len(told.strides) or len(told.shape) > 16:
        raise Refused("an output is not a tensor")
    if min([told.offset, *told.strides, *told.shape]) < 0:
        raise Refused("an output has a negative stride, offset or extent")
    itemsize = np.dtype(_ITEMS[told.dtype]).itemsize
    if 0 in told.shape:
        return memory[:0]
    last = sum((size - 1) * stride for size, stride in zip(told.shape, told.strides, strict=True))
    if max(told.offset + last + 1, math.prod(told.shape)) * itemsize > memory.nbytes:
        raise Refused("an output leaves its storage")
    strides = tuple(stride * itemsize for stride in told.strides)
    shape = (*told.shape, itemsize)
    view = np.lib.stride_tricks.as_strided(memory[told.offset * itemsize :], shape, (*strides, 1), writeable=False)
    return np.ascontiguousarray(view).reshape(-1)


def digest(*parts: npt.NDArray[np.generic]) -> str:
    """Of the bytes of these arrays, one behind the other."""
    state = hashlib.blake2b(digest_size=16)
    for part in parts:
        state.update(part.tobytes())
    return state.hexdigest()
