"""Track memory of torch.empty in this process that nothing has written yet.

A scope replaces the functions that allocate without writing: their memory is filled with a pattern, and a byte that
still has the pattern has not been written by the host. The bytes that kernels have written are remembered from launch
to launch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property, wraps
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from warpcheck import patching, simt, simulated_gpu
from warpcheck.layout import UNWRITTEN
from warpcheck.pointers import bytes_at

if TYPE_CHECKING:
    import torch

__all__ = ["POISON", "mark", "memory_of", "note_write", "watch"]

# The 16-bit pattern that fills memory which nothing has written: a NaN in float16, bfloat16 and float32.
POISON = 0x7FA5

_FUNCTIONS = ("empty", "empty_like", "empty_strided")
_METHODS = ("new_empty", "new_empty_strided")


@dataclass
class _Allocation:
    """The memory of a storage that may have bytes which nothing has written.

    Attributes:
        storage_ref: A weak reference to the storage.
        nbytes: The size of the storage when it was allocated.
    """

    storage_ref: Any
    nbytes: int

    @cached_property
    def state(self) -> npt.NDArray[np.uint8]:
        """The state of each byte, as the PTX machine keeps it. Most memory is written before a kernel gets it."""
        return np.full(self.nbytes, UNWRITTEN, np.uint8)


# The watched memory by its address. Other threads may allocate at any time: iterate over a copy only.
_allocations: dict[int, _Allocation] = {}

_is_watching = False

_MIN_PURGE = 64
# The number of allocations at which those of dead storages are removed.
_next_purge = _MIN_PURGE


def watch() -> None:
    """Mark what torch.empty and its relatives return from now on. Calling it again changes nothing."""
    global _is_watching
    import torch
    from torch.utils._device import _device_constructors

    if _is_watching:
        return
    _is_watching = True
    patching.on_exit(_stop_watching)
    # PyTorch lists the functions to which `with torch.device("cuda")` adds a device, once in a process. Let it list the
    # functions themselves, and not their replacements.
    _device_constructors()
    for owner, names in ((torch, _FUNCTIONS), (torch.Tensor, _METHODS)):
        for name in names:
            patching.replace(owner, name, _marking(getattr(owner, name)))


def _stop_watching() -> None:
    global _is_watching
    _is_watching = False
    _allocations.clear()


def _marking(allocate: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(allocate)
    def allocate_and_mark(*args: Any, **kwargs: Any) -> Any:
        tensor = allocate(*args, **kwargs)
        # Memory for a simulated CUDA tensor has been marked where it was allocated: see frontends.torch_cuda.operators.
        if kwargs.get("out") is None and not tensor.is_cuda:
            mark(tensor)
        return tensor

    return allocate_and_mark


def mark(tensor: torch.Tensor) -> None:
    """Fill a tensor's storage, if it is ordinary memory of this process, and remember it as unwritten.

    Does nothing unless `watch` has been called.
    """
    import torch
    from torch.multiprocessing.reductions import StorageWeakRef

    if not _is_watching or type(tensor) is not torch.Tensor or tensor.layout is not torch.strided:
        return
    if not simulated_gpu.is_host_memory(tensor.device):
        return
    storage = tensor.untyped_storage()
    if not 0 < storage.nbytes() < simt.FAR:
        return
    if len(_allocations) >= _next_purge:
        _remove_freed()
    _fill_with_pattern(bytes_at(storage.data_ptr(), storage.nbytes()))
    _allocations[storage.data_ptr()] = _Allocation(StorageWeakRef(storage), storage.nbytes())


def note_write(tensor: torch.Tensor) -> None:
    """Record that the host has written all elements of a tensor: the operators of CUDA tensors call this function.

    A write to a CPU tensor is recognized by its values. The only float that looks unwritten is the NaN of the pattern.
    Of random 16-bit integers, one in 65,536 has the pattern, and a kernel that reads it is reported by mistake.
    """
    storage = tensor.untyped_storage()
    allocation = _allocation_of(storage)
    if allocation is None or not tensor.numel():
        return
    itemsize = tensor.element_size()
    if tensor.numel() * itemsize == allocation.nbytes and tensor.is_contiguous():
        _allocations.pop(storage.data_ptr(), None)
        return
    state = allocation.state[int(tensor.storage_offset()) * itemsize :]
    strides = [stride * itemsize for stride in tensor.stride()]
    # as_strided checks no bounds. The tensor is inside its storage, and `state` has a byte for each byte of it.
    elements = np.lib.stride_tricks.as_strided(state, (*tensor.shape, itemsize), (*strides, 1))
    elements[elements == UNWRITTEN] = 0


def _allocation_of(storage: torch.UntypedStorage) -> _Allocation | None:
    """Return the watched memory of a storage, or None if all of it counts as written."""
    address = storage.data_ptr()
    allocation = _allocations.get(address)
    if allocation is None:
        return None
    # The address may belong to another storage by now: the watched one may have been freed, or have moved when an
    # operator resized it. Its states would then describe other memory, and have too few bytes for it.
    watched = type(storage)._new_with_weak_ptr(allocation.storage_ref.cdata)
    if (
        watched is not None
        and watched.data_ptr() == address
        and watched.nbytes() == allocation.nbytes
        and storage.nbytes() <= allocation.nbytes
    ):
        return allocation
    _allocations.pop(address, None)
    return None


def _remove_freed() -> None:
    """Remove the allocations whose storages have been freed."""
    global _next_purge
    for address, allocation in list(_allocations.items()):
        if allocation.storage_ref.expired():
            _allocations.pop(address, None)
    # A program with many live allocations would otherwise check all of them at each new one.
    _next_purge = max(_MIN_PURGE, 2 * len(_allocations))


def _fill_with_pattern(memory: npt.NDArray[np.uint8]) -> None:
    """Fill memory with the pattern. An odd last byte stays as it is: it counts as written."""
    memory[: memory.size // 2 * 2].view(np.uint16)[:] = POISON


def _watched_memory(tensor: Any) -> tuple[int, _Allocation] | None:
    """Return the address of a tensor's storage and its watched memory; None if all of it counts as written.

    Objects that stand for tensors may have no storage. Their memory is that of the storage that has their address.
    """
    if hasattr(tensor, "untyped_storage"):
        storage = tensor.untyped_storage()
        allocation = _allocation_of(storage)
        return None if allocation is None else (storage.data_ptr(), allocation)
    address = tensor.data_ptr()
    for start, allocation in _allocations.items():
        if start <= address < start + allocation.nbytes:
            return start, allocation
    return None


def memory_of(tensors: Iterable[torch.Tensor], *, for_trial: bool = False) -> simt.Memory:
    """Return the memory state of these tensors for a launch: the bytes that neither host nor kernels have written.

    for_trial: the launch will be undone, so what it writes is not remembered.
    """
    memory = simt.Memory()
    _remove_freed()
    for address, allocation in dict(filter(None, map(_watched_memory, tensors))).items():
        _note_writes_of_the_host(address, allocation.state)
        if (allocation.state == UNWRITTEN).any():
            state = allocation.state.copy() if for_trial else allocation.state
            memory.allocated(address, state.size, state)
        else:
            _allocations.pop(address, None)
    return memory


def _note_writes_of_the_host(address: int, state: npt.NDArray[np.uint8]) -> None:
    content = bytes_at(address, state.size)
    even = state.size // 2 * 2
    changed = np.ones(state.size, np.bool_)
    changed[:even] = np.repeat(content[:even].view(np.uint16) != POISON, 2)
    state[changed & (state == UNWRITTEN)] = 0
