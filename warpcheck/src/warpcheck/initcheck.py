"""Track memory of torch.empty in this process that nothing has written yet.

The grader tracks it in its own process (work.watch). In a notebook or a test, the functions that allocate without
writing are replaced: their memory is filled with a pattern, and the host has not written a byte that still has the
pattern. The bytes that kernels have written are remembered from launch to launch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from warpcheck import patching, simt
from warpcheck.layout import UNWRITTEN
from warpcheck.pointers import bytes_at

if TYPE_CHECKING:
    import torch

__all__ = ["POISON", "memory_of", "watch"]

POISON = 0x7FA5
"""The 16-bit pattern that fills memory which nothing has written: a NaN in float16, bfloat16 and float32."""

_FUNCTIONS = ("empty", "empty_like", "empty_strided")
_METHODS = ("new_empty", "new_empty_strided")


@dataclass
class _Allocation:
    """A storage by its address. alive: a weak reference to it. state: of each byte, as the PTX machine keeps it."""

    alive: Any
    state: npt.NDArray[np.uint8]


_allocations: dict[int, _Allocation] = {}
_is_watching = False


def watch() -> None:
    """Mark what torch.empty and its relatives return from now on. Calling it again changes nothing."""
    global _is_watching
    import torch

    if _is_watching:
        return
    _is_watching = True
    patching.on_exit(_stop_watching)
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
        if kwargs.get("out") is None:
            _mark(tensor)
        return tensor

    return allocate_and_mark


def _mark(tensor: torch.Tensor) -> None:
    """Fill a tensor's storage, if it is ordinary memory of this process, and remember it as unwritten."""
    import torch
    from torch.multiprocessing.reductions import StorageWeakRef

    if type(tensor) is not torch.Tensor or tensor.device.type != "cpu" or tensor.layout is not torch.strided:
        return
    storage = tensor.untyped_storage()
    if not 0 < storage.nbytes() < simt.FAR:
        return
    _forget_the_dead()
    _pattern_in(bytes_at(storage.data_ptr(), storage.nbytes()))
    _allocations[storage.data_ptr()] = _Allocation(
        StorageWeakRef(storage), np.full(storage.nbytes(), UNWRITTEN, np.uint8)
    )


def _forget_the_dead() -> None:
    for address in [address for address, allocation in _allocations.items() if allocation.alive.expired()]:
        del _allocations[address]


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
