"""Track memory of torch.empty in this process that nothing has written yet.

The grader tracks it in its own process (work.watch). In a notebook or a test, the functions that allocate without
writing are replaced: their memory is filled with a pattern, and the host has not written a byte that still has the
pattern. The bytes that kernels have written are remembered from launch to launch.
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

POISON = 0x7FA5
"""The 16-bit pattern that fills memory which nothing has written: a NaN in float16, bfloat16 and float32."""

_FUNCTIONS = ("empty", "empty_like", "empty_strided")
_METHODS = ("new_empty", "new_empty_strided")


@dataclass
class _Allocation:
    """A storage by its address.

    Attributes:
        alive: A weak reference to the storage.
        nbytes: The size of the storage.
    """

    alive: Any
    nbytes: int

    @cached_property
    def state(self) -> npt.NDArray[np.uint8]:
        """The state of each byte, as the PTX machine keeps it. Most memory is written before a kernel gets it."""
        return np.full(self.nbytes, UNWRITTEN, np.uint8)


_allocations: dict[int, _Allocation] = {}
_is_watching = False

_MIN_PURGE = 64
_next_purge = _MIN_PURGE
"""The number of allocations at which those of dead storages are removed."""


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
        _forget_the_dead()
    _pattern_in(bytes_at(storage.data_ptr(), storage.nbytes()))
    _allocations[storage.data_ptr()] = _Allocation(StorageWeakRef(storage), storage.nbytes())


def note_write(tensor: torch.Tensor) -> None:
    """Record that the host has written all elements of a tensor.

    Where nothing calls this, a write is recognized by its values. Of random numbers, one of 65,536 is the pattern.
    """
    storage = tensor.untyped_storage()
    allocation = _allocations.get(storage.data_ptr())
    if allocation is None or not tensor.numel():
        return
    itemsize = tensor.element_size()
    if tensor.numel() * itemsize == allocation.nbytes and tensor.is_contiguous():
        del _allocations[storage.data_ptr()]
        return
    state = allocation.state[int(tensor.storage_offset()) * itemsize :]
    strides = [stride * itemsize for stride in tensor.stride()]
    elements = np.lib.stride_tricks.as_strided(state, (*tensor.shape, itemsize), (*strides, 1))
    elements[elements == UNWRITTEN] = 0


def _forget_the_dead() -> None:
    global _next_purge
    for address in [address for address, allocation in _allocations.items() if allocation.alive.expired()]:
        del _allocations[address]
    # A program with many live allocations would otherwise check all of them at each new one.
    _next_purge = max(_MIN_PURGE, 2 * len(_allocations))


def _pattern_in(memory: npt.NDArray[np.uint8]) -> None:
    """Fill memory with the pattern. An odd last byte stays as it is: it counts as written."""
    memory[: memory.size // 2 * 2].view(np.uint16)[:] = POISON


def memory_of(tensors: Iterable[torch.Tensor], *, for_trial: bool = False) -> simt.Memory:
    """Return the memory state of these tensors for a launch: the bytes that neither host nor kernels have written.

    for_trial: the launch will be undone, so what it writes is not remembered.
    """
    memory = simt.Memory()
    _forget_the_dead()
    for address in {tensor.untyped_storage().data_ptr() for tensor in tensors}:
        allocation = _allocations.get(address)
        if allocation is None:
            continue
        _note_writes_of_the_host(address, allocation.state)
        if (allocation.state == UNWRITTEN).any():
            state = allocation.state.copy() if for_trial else allocation.state
            memory.allocated(address, state.size, state)
        else:
            del _allocations[address]
    return memory


def _note_writes_of_the_host(address: int, state: npt.NDArray[np.uint8]) -> None:
    content = bytes_at(address, state.size)
    even = state.size // 2 * 2
    changed = np.ones(state.size, np.bool_)
    changed[:even] = np.repeat(content[:even].view(np.uint16) != POISON, 2)
    state[changed & (state == UNWRITTEN)] = 0
