"""CUDA tensors on memory of the CPU.

DLPack wraps memory as a tensor of whatever device a capsule names. A CPU tensor that is exported, renamed and imported
again is a true CUDA tensor for PyTorch: its storage, views, autograd and dispatch keys are those of CUDA, and its data
pointer is an address of this process. The imported storage owns the exported tensor, so that no table of live tensors
is necessary.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import torch

from warpcheck.hooks import Changed
from warpcheck.hooks import torch_cuda as hooks

__all__ = ["CPU", "CPU_KEYS", "CUDA", "cpu_alias", "cpu_bytes", "cuda_alias", "cuda_from_cpu", "set_storage"]

CPU = torch.device("cpu")
CUDA = torch.device("cuda", 0)

# kDLCPU and kDLCUDA of dlpack.h.
_DLPACK_CPU = 1
_DLPACK_CUDA = 2

# Redispatch with these keys runs the CPU kernel of an operator. The CPU's view operators read no memory, and their
# results are on the device of their input.
CPU_KEYS = hooks.KEY_SET.get()(hooks.KEY.get().CPU)

_as_strided = torch.ops.aten.as_strided.default.redispatch
_set_storage = torch.ops.aten.set_.source_Storage_storage_offset.redispatch
_view_dtype = torch.ops.aten.view.dtype.redispatch
_export = hooks.TO_DLPACK.get()
_import = hooks.FROM_DLPACK.get()
_storage_at = hooks.MAKE_STORAGE.get()
# torch.empty, which a scope replaces.
_new_empty = torch._C._VariableFunctions.empty


class _DLTensor(ctypes.Structure):
    """The first fields of DLTensor in dlpack.h."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
    )


# An index gives a function object of our own. The attribute is shared with all other users of ctypes.pythonapi.
_capsule_pointer = ctypes.pythonapi["PyCapsule_GetPointer"]
_capsule_pointer.restype = ctypes.c_void_p
_capsule_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]


class _Memory(torch.Tensor):
    """The bytes of a CPU storage that a CUDA storage owns.

    The class lets a search for the tensors of a program (`pointers.alive`) skip them.
    """


def _import_as_cuda(memory: torch.Tensor) -> torch.Tensor:
    """Return a CUDA tensor on the memory of a contiguous CPU tensor, which its storage keeps alive.

    The device in the header of the DLPack capsule is written. The capsule is new, and belongs to this function until
    PyTorch imports it. A capsule of another form has another name or another header: the pointer is then not returned
    (ValueError), or the header does not have the address and the device of the tensor.
    """
    capsule = _export(memory)
    header = _DLTensor.from_address(_capsule_pointer(capsule, b"dltensor"))
    if header.device_type != _DLPACK_CPU or (header.data or 0) != memory.data_ptr():
        raise Changed(hooks.changed("has DLPack capsules of another form"))
    header.device_type = _DLPACK_CUDA
    header.device_id = 0
    tensor: torch.Tensor = _import(capsule)
    return tensor


@cache
def _cuda_template(dtype: torch.dtype) -> torch.Tensor:
    """Return a CUDA tensor without elements, whose aliases get their memory from `set_storage`."""
    # An inference tensor lacks autograd's dispatch keys, and so would every tensor that is made of it.
    with torch.inference_mode(False):
        if dtype == torch.uint8:
            return _import_as_cuda(_new_empty(0, dtype=dtype, device=CPU))
        template: torch.Tensor = _view_dtype(CPU_KEYS, _cuda_template(torch.uint8), dtype)
        return template


def set_storage(
    tensor: torch.Tensor, storage: torch.UntypedStorage, offset: Any, size: Any, stride: Any
) -> torch.Tensor:
    """Put a CUDA tensor on a CUDA storage."""
    result: torch.Tensor = _set_storage(CPU_KEYS, tensor, storage, offset, size, stride)
    return result


def _copy_bits(tensor: torch.Tensor, alias: torch.Tensor) -> torch.Tensor:
    """Return an alias with the conjugate and the negative bit of a tensor."""
    if tensor.is_conj():
        alias = alias.conj()
    if tensor.is_neg():
        alias = torch._neg_view(alias)
    return alias


def cuda_alias(tensor: torch.Tensor, storage: torch.UntypedStorage) -> torch.Tensor:
    """Return a CPU tensor as a CUDA tensor on `storage`, the CUDA storage of the same memory."""
    alias = _as_strided(CPU_KEYS, _cuda_template(tensor.dtype), (0,), (1,))
    set_storage(alias, storage, tensor.storage_offset(), tensor.size(), tensor.stride())
    return _copy_bits(tensor, alias)


def cuda_from_cpu(tensor: torch.Tensor) -> torch.Tensor:
    """Return a CUDA tensor on the memory of a CPU tensor, which it keeps alive."""
    storage = tensor.untyped_storage()
    nbytes = storage.nbytes()
    if not nbytes:
        return cuda_alias(tensor, _cuda_template(torch.uint8).untyped_storage())
    # The storage of an imported tensor has the elements of the tensor, and no others.
    if tensor.dtype in _EXPORTED and tensor.is_contiguous() and nbytes == tensor.numel() * tensor.element_size():
        imported = _import_as_cuda(tensor)
        if imported.stride() == tensor.stride():  # DLPack may change the stride of an axis with one element
            return imported
    memory = _new_empty(0, dtype=torch.uint8, device=CPU).set_(storage, 0, (nbytes,), (1,))
    return cuda_alias(tensor, _import_as_cuda(memory.as_subclass(_Memory)).untyped_storage())


# Common dtypes that every version of DLPack has. None of them has a conjugate bit.
_EXPORTED = frozenset(
    (torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int32, torch.int64, torch.bool)
)


def cpu_alias(
    tensor: torch.Tensor, storages: dict[int, tuple[torch.UntypedStorage, torch.UntypedStorage]]
) -> torch.Tensor:
    """Return a CUDA tensor as a CPU tensor on the same memory, for as long as the CUDA tensor lives.

    Args:
        tensor: The CUDA tensor.
        storages: The CPU and the CUDA storage of each address that this operator has used; tensors that share a CUDA
            storage share a CPU storage.
    """
    storage = tensor.untyped_storage()
    nbytes = storage.nbytes()
    if not nbytes:
        # The operator may resize an empty output, and a storage that does not own its memory cannot be resized.
        empty: torch.Tensor = torch.ops.aten.empty_strided.default(
            tensor.size(), tensor.stride(), dtype=tensor.dtype, device=CPU
        )
        return empty
    address = storage.data_ptr()
    if address not in storages:
        storages[address] = _storage_at(address, CPU, nbytes), storage
    alias = _new_empty(0, dtype=tensor.dtype, device=CPU)
    alias.set_(storages[address][0], tensor.storage_offset(), tensor.size(), tensor.stride())
    return _copy_bits(tensor, alias)


def cpu_bytes(storage: torch.UntypedStorage) -> torch.Tensor:
    """Return the bytes of a CUDA storage as a CPU tensor, for as long as the storage lives."""
    memory = _storage_at(storage.data_ptr(), CPU, storage.nbytes())
    content: torch.Tensor = _new_empty(0, dtype=torch.uint8, device=CPU).set_(memory)
    return content
