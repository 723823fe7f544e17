"""Encode a tensor map for a CUDA C++ kernel, which takes it as `const __grid_constant__ CUtensorMap map`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from warpcheck.tensor_map import ELEMENT_TYPES, SWIZZLES, ElementType, encode_im2col, encode_tiled

if TYPE_CHECKING:
    import torch

__all__ = ["TensorMap", "im2col_map", "tensor_map"]

_TYPES = {"uint8": "u8", "int8": "u8", "float8_e4m3fn": "u8", "float8_e5m2": "u8", "uint16": "u16", "int16": "u16"}
_TYPES |= {"uint32": "u32", "int32": "s32", "uint64": "u64", "int64": "s64"}
_TYPES |= {"float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64"}
_PROMOTION_128B = 2


@dataclass(frozen=True, eq=False)
class TensorMap:
    """The argument for a parameter of type CUtensorMap. It keeps its tensor alive."""

    tensor: torch.Tensor
    content: bytes = field(repr=False)


def tensor_map(
    tensor: torch.Tensor, box: Sequence[int], *, swizzle: int = 0, steps: Sequence[int] = (), nan_fill: bool = False
) -> TensorMap:
    """Encode the tensor map of a tensor, as cuTensorMapEncodeTiled does. Needs no GPU.

    Args:
        tensor: A tensor whose last axis is contiguous.
        box: The elements that one copy transfers along each axis, in the order of the tensor's axes. Kernels order
            coordinates the other way, with the contiguous axis first.
        swizzle: The swizzle of shared memory: 0, 32, 64 or 128 bytes.
        steps: The element stride of a copy along each axis; 1 by default.
        nan_fill: Fill elements outside the tensor with NaN instead of 0.

    Raises:
        TypeError: Tensor maps do not support the dtype.
        ValueError: The driver would reject the arguments; the message states the rule.
    """
    if not len(box) == len(steps or box) == tensor.dim():
        raise ValueError(f"box and steps have a number for each of the {tensor.dim()} axes")
    element_type, strides = _describe(tensor, swizzle)
    content = encode_tiled(
        element_type.host,
        tensor.data_ptr(),
        tuple(tensor.shape)[::-1],
        strides[-2::-1],
        tuple(box)[::-1],
        tuple(steps)[::-1] or (1,) * tensor.dim(),
        swizzle=SWIZZLES.index(swizzle),
        promotion=_PROMOTION_128B,
        oob_fill=int(nan_fill),
    )
    return TensorMap(tensor, content)


def im2col_map(
    tensor: torch.Tensor,
    *,
    pixels: int,
    channels: int,
    lower: Sequence[int],
    upper: Sequence[int],
    swizzle: int = 0,
    steps: Sequence[int] = (),
    nan_fill: bool = False,
) -> TensorMap:
    """Encode a tensor map of the im2col mode for a batch of images, as cuTensorMapEncodeIm2col does. Needs no GPU.

    Args:
        tensor: A tensor in the order N, D, H, W, C, or without D, or without D and H. C is contiguous.
        pixels: The pixels that one copy transfers.
        channels: The channels that one copy transfers of each pixel.
        lower: The first pixel of the bounding box, along D, H and W; negative in front of the image.
        upper: The last pixel, counted from the last one of the image; negative inside of the image.
        swizzle: The swizzle of shared memory: 0, 32, 64 or 128 bytes.
        steps: The element stride along each axis of the tensor; 1 by default.
        nan_fill: Fill elements outside the tensor with NaN instead of 0.

    Raises:
        TypeError: Tensor maps do not support the dtype.
        ValueError: The driver would reject the arguments; the message states the rule.
    """
    if len(steps or tensor.shape) != tensor.dim():
        raise ValueError(f"steps has a number for each of the {tensor.dim()} axes")
    element_type, strides = _describe(tensor, swizzle)
    content = encode_im2col(
        element_type.host,
        tensor.data_ptr(),
        tuple(tensor.shape)[::-1],
        strides[-2::-1],
        tuple(lower)[::-1],
        tuple(upper)[::-1],
        channels,
        pixels,
        tuple(steps)[::-1] or (1,) * tensor.dim(),
        swizzle=SWIZZLES.index(swizzle),
        promotion=_PROMOTION_128B,
        oob_fill=int(nan_fill),
    )
    return TensorMap(tensor, content)


def _describe(tensor: torch.Tensor, swizzle: int) -> tuple[ElementType, list[int]]:
    """Return the type of a tensor's elements, and its strides in bytes."""
    dtype = str(tensor.dtype).removeprefix("torch.")
    if dtype not in _TYPES:
        raise TypeError(f"no tensor map has elements of {dtype}")
    if swizzle not in SWIZZLES:
        raise ValueError(f"swizzle={swizzle} is none of {', '.join(map(str, SWIZZLES))}")
    if tensor.dim() and tensor.stride(-1) != 1:
        raise ValueError(f"the last axis has stride {tensor.stride(-1)}: it must be contiguous")
    element_type = next(element_type for element_type in ELEMENT_TYPES if element_type.name == _TYPES[dtype])
    return element_type, [stride * tensor.element_size() for stride in tensor.stride()]
