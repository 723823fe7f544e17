"""Pass Triton's tensor descriptors to kernels, and allocate memory for those that kernels create."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from warpcheck import backend
from warpcheck.hooks import triton as hooks
from warpcheck.tensor_map import encode_im2col, encode_tiled

__all__ = ["passed", "scratch", "tensors"]

# The driver's number of each element type that the hardware numbers differently: f32.ftz, f64 and bf16.
_ON_THE_HOST = {8: 10, 9: 8, 10: 9}

_TF32 = 11
_PROMOTION_128B = 2


def passed(descriptor: Any, layout: Mapping[str, Any] | None) -> list[Any]:
    """Return the values of the kernel parameters that represent a host descriptor.

    Args:
        descriptor: The descriptor that the launch passes.
        layout: The layout of its tensor map in `metadata.tensordesc_meta`; None if the kernel computes addresses
            itself, as it does before sm_90.

    Raises:
        ValueError: The driver would reject the tensor map.
    """
    shape = list(descriptor.shape)
    strides = list(descriptor.strides)
    nan = descriptor.padding == "nan"
    rounds = getattr(descriptor, "round_f32_to_tf32", None)  # Triton 3.9 has it, 3.6 does not
    if layout is None:
        flags = [nan] if rounds is None else [nan, rounds]
        return [descriptor.base, *shape, *strides, *flags, *shape, *strides]
    extents = [*shape[:-1], shape[-1] * (2 if layout["fp4_padded"] else 1)]
    kind = _TF32 if rounds else _ON_THE_HOST.get(layout["elem_type"], layout["elem_type"])
    # The driver orders axes from the innermost, and takes no stride for that one.
    box = list(layout["block_size"])[::-1]
    steps = [1] * len(shape)
    tensor = kind, descriptor.base.data_ptr(), extents[::-1], [n * layout["elem_size"] for n in strides[-2::-1]]
    modes = {"swizzle": layout["swizzle"], "promotion": _PROMOTION_128B, "oob_fill": int(nan)}
    if layout.get("is_im2col"):
        lower = list(descriptor.pixel_box_lower_corner)[::-1]
        upper = list(descriptor.pixel_box_upper_corner)[::-1]
        steps = list(descriptor.element_strides or steps)[::-1]
        channels, pixels = box
        content = encode_im2col(*tensor, lower, upper, channels, pixels, steps, **modes)
    else:
        content = encode_tiled(*tensor, box, steps, **modes)
    return [content, *shape, *strides]


def scratch(nbytes: int, alignment: int) -> Any:
    """Return memory for a launch's tensor maps, after a call of the function of triton.set_allocator, as on a GPU.

    The memory of that function is not used: torch aligns CPU memory to fewer bytes than GPU memory except by chance,
    and the launches of two processes with the same seed must be equal.
    """
    import torch

    hooks.ALLOCATOR.get()()(nbytes, alignment, 0)
    storage = np.zeros(nbytes + alignment, np.uint8)
    start = -storage.ctypes.data % alignment
    memory = torch.from_numpy(storage[start : start + nbytes])
    backend.report_allocation(memory)
    return memory


def tensors(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield every tensor in an argument with its name."""
    if isinstance(value, tuple):
        for index, item in enumerate(value):
            yield from tensors(f"{name}[{index}]", item)
    elif hasattr(value, "data_ptr") and hasattr(value, "numel"):
        # Also an object that stands for a tensor and keeps that tensor as its `base`: its own shape and strides count.
        if value.numel():
            yield name, value
    elif hasattr(value, "base"):  # a descriptor, or what triton.reinterpret returns
        yield from tensors(name, value.base)
