"""Read the elements of a view of a storage."""

from __future__ import annotations

import hashlib
import math

import numpy as np
import numpy.typing as npt

from kernelpath.device import messages

Bytes = npt.NDArray[np.uint8]


class InvalidRequest(Exception):
    """A request that the machine refuses. An honest client does not make one."""


ITEM_TYPES = {
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


def item_bytes(dtype: str) -> int:
    """Return the bytes of an element."""
    return np.dtype(ITEM_TYPES[dtype]).itemsize


def elements(memory: Bytes, ref: messages.TensorRef) -> Bytes:
    """Return the bytes of a view's elements in row-major order.

    Raises:
        InvalidRequest: The reference is not a view inside the storage.
    """
    if ref.dtype not in ITEM_TYPES or len(ref.shape) != len(ref.strides) or len(ref.shape) > 16:
        raise InvalidRequest("an output is not a tensor")
    if min([ref.offset, *ref.strides, *ref.shape]) < 0:
        raise InvalidRequest("an output has a negative stride, offset or extent")
    itemsize = item_bytes(ref.dtype)
    if 0 in ref.shape:
        return memory[:0]
    last = sum((size - 1) * stride for size, stride in zip(ref.shape, ref.strides, strict=True))
    # The number of elements is limited, too: with strides of 0, a view of one element could have any shape.
    if max(ref.offset + last + 1, math.prod(ref.shape)) * itemsize > memory.nbytes:
        raise InvalidRequest("an output leaves its storage")
    strides = tuple(stride * itemsize for stride in ref.strides)
    shape = (*ref.shape, itemsize)
    view = np.lib.stride_tricks.as_strided(memory[ref.offset * itemsize :], shape, (*strides, 1), writeable=False)
    return np.ascontiguousarray(view).reshape(-1)


def digest(*parts: npt.NDArray[np.generic]) -> str:
    """Return a digest of the concatenated bytes of these arrays."""
    state = hashlib.blake2b(digest_size=16)
    for part in parts:
        state.update(part.tobytes())
    return state.hexdigest()
