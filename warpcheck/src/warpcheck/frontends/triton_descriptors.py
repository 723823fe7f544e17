"""Tensor descriptors of Triton: what a launch passes for one, and the memory for those that kernels make."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from warpcheck import backend
from warpcheck.hooks import triton as hooks
from warpcheck.tensor_map import encode_tiled

__all__ = ["passed", "scratch", "tensors"]

_ON_THE_HOST = {8: 10, 9: 8, 10: 9}
"""Types of elements that the driver numbers otherwise than the hardware: f32.ftz, f64 and bf16."""

_TF32, _PROMOTION_128B = 11, 2


def passed(descriptor: Any, layout: Mapping[str, Any] | None) -> list[Any]:
    """The values of the parameters that a descriptor of the host stands for.

    layout: of its tensor map, as the compiler says in `metadata.tensordesc_meta`; None where the kernel computes
    addresses itself, as before sm_90. Raises ValueError where the driver would make no such map.
    """
    shape, strides = list(descriptor.shape), list(descriptor.strides)
    nan = descriptor.padding == "nan"
    rounds = getattr(descriptor, "round_f32_to_tf32", None)  # Triton 3.9 has it, 3.6 does not
    if layout is None:
        flags = [nan] if rounds is None else [nan, rounds]
        return [descriptor.base, *shape, *strides, *flags, *shape, *strides]
    extents = [*shape[:-1], shape[-1] * (2 if layout["fp4_padded"] else 1)]
    kind = _TF32 if rounds else _ON_THE_HOST.get(layout["elem_type"], layout["elem_type"])
    content = encode_tiled(
        kind,
        descriptor.base.data_ptr(),
        extents[::-1],
        [stride * layout["elem_size"] for stride in strides[-2::-1]],
        list(layout["block_size"])[::-1],
        [1] * len(shape),
        swizzle=layout["swizzle"],
        promotion=_PROMOTION_128B,
        oob_fill=int(nan),
    )
    return [content, *shape, *strides]


def scratch(nbytes: int, alignment: int) -> Any:
    """Memory for a launch's tensor maps, once triton.set_allocator's function has been asked, which has to be set.

    torch aligns memory of the CPU less than that of a GPU, and sometimes by chance as much: what two processes with one
    seed launch has to be alike, so the function's memory is not used.
    """
    import torch

    hooks.ALLOCATOR.get()()(nbytes, alignment, 0)
    room = np.zeros(nbytes + alignment, np.uint8)
    start = -room.ctypes.data % alignment
    memory = torch.from_numpy(room[start : start + nbytes])
    backend.allocated(memory)
    return memory


def tensors(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Every tensor in an argument, by name."""
    if isinstance(value, tuple):
        for index, item in enumerate(value):
            yield from tensors(f"{name}[{index}]", item)
    elif hasattr(value, "base"):
        yield from tensors(name, value.base)
    elif hasattr(value, "data_ptr") and value.numel():
        yield name, value
