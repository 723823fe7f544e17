"""Memory of a submission's process that begins where a GPU's allocator would let it begin.

torch aligns a CPU tensor to 64 bytes and CUDA's caching allocator aligns to 512. Host code may compute with an address,
such as `-out.data_ptr() % 128 // 4` for the elements before a line: the number must be the one that holds on the PTX
machine, and the same in two processes of one submission.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch

ALIGNMENT = 512

_empty = np.empty  # before work.tensors poisons what it returns


def storage(nbytes: int) -> torch.Tensor:
    """Return a uint8 tensor that is the whole of a storage, which begins at a multiple of 512 bytes. It has garbage."""
    import torch

    if not nbytes:
        return torch.empty(0, dtype=torch.uint8)
    room = _empty(nbytes + ALIGNMENT, np.uint8)
    start = -room.ctypes.data % ALIGNMENT
    return torch.from_numpy(room[start : start + nbytes])


def empty(wanted: torch.Tensor) -> torch.Tensor:
    """Return a tensor like `wanted` with a storage of its own, which holds garbage. It is no view of another tensor."""
    import torch

    nbytes = wanted.untyped_storage().nbytes()
    if not nbytes:
        return wanted
    placed = torch.empty(0, dtype=wanted.dtype, device=wanted.device)
    memory = storage(nbytes).untyped_storage()
    return placed.set_(memory, wanted.storage_offset(), wanted.size(), wanted.stride())


def copy(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor like `tensor` with the same bytes, at a multiple of 512 bytes."""
    import torch

    placed = empty(tensor)
    if placed is not tensor:
        whole = torch.empty(0, dtype=torch.uint8)
        whole.set_(placed.untyped_storage())
        whole.copy_(torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage()))
    return placed
