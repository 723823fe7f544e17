"""Allocate memory in a submission's process with the alignment that a GPU's allocator gives.

torch aligns a CPU tensor to 64 bytes and CUDA's caching allocator aligns to 512. Host code may compute with an address,
such as `-out.data_ptr() % 128 // 4` for the elements before a line: the number must be the one that holds on the PTX
machine, and the same in two processes of one submission.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch
    from torch.multiprocessing.reductions import StorageWeakRef

ALIGNMENT = 512

# The size up to which a Pool keeps memory: what a program keeps from call to call shows in small cases, too.
POOLED_BYTES = 1 << 20

_empty = np.empty  # taken before work.tensors replaces np.empty by a version that poisons its result


def storage(nbytes: int) -> torch.Tensor:
    """Return an uninitialized uint8 tensor that covers a new storage, which starts at a multiple of 512 bytes."""
    import torch

    if not nbytes:
        return torch.empty(0, dtype=torch.uint8)
    room = _empty(nbytes + ALIGNMENT, np.uint8)
    start = -room.ctypes.data % ALIGNMENT
    return torch.from_numpy(room[start : start + nbytes])


class Pool:
    """Memory for inputs that is used again as soon as a submission has freed it.

    CUDA's caching allocator does so, too. A program that remembers results by the address of an input is wrong there,
    and must be wrong here.
    """

    def __init__(self) -> None:
        self._blocks: dict[int, list[tuple[torch.Tensor, StorageWeakRef]]] = {}

    def storage(self, nbytes: int) -> torch.Tensor:
        """Return a tensor as the function `storage` does, at the address of a freed one if possible."""
        import torch
        from torch.multiprocessing.reductions import StorageWeakRef

        if nbytes == 0:
            return storage(0)  # NumPy's empty arrays have a stride of 0, and torch can't view them as another dtype
        blocks = self._blocks.setdefault(nbytes, [])
        memory = next((memory for memory, user in blocks if user.expired()), None)
        if memory is None:
            memory = storage(nbytes)
        # The block outlives this tensor's storage, whose end says that the submission has freed it.
        tensor = torch.from_numpy(memory.numpy())
        if nbytes <= POOLED_BYTES:
            blocks[:] = [(block, user) for block, user in blocks if block is not memory]
            blocks.append((memory, StorageWeakRef(tensor.untyped_storage())))
        return tensor


def empty(like: torch.Tensor) -> torch.Tensor:
    """Return an uninitialized tensor with the dtype, shape and strides of `like`, in a storage of its own."""
    import torch

    nbytes = like.untyped_storage().nbytes()
    if not nbytes:
        return like
    tensor = torch.empty(0, dtype=like.dtype, device=like.device)
    memory = storage(nbytes).untyped_storage()
    return tensor.set_(memory, like.storage_offset(), like.size(), like.stride())


def copy(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor like `tensor` with the same bytes, at a multiple of 512 bytes."""
    import torch

    aligned_copy = empty(tensor)
    if aligned_copy is not tensor:  # an empty storage needs no copy
        storage_bytes = torch.empty(0, dtype=torch.uint8)
        storage_bytes.set_(aligned_copy.untyped_storage())
        storage_bytes.copy_(torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage()))
    return aligned_copy
