"""Declare the hooks inside PyTorch that `device="cuda"` on memory of the CPU needs."""

from __future__ import annotations

from warpcheck.hooks import Attribute, Hook

_LOST = 'device="cuda" is not available without a GPU'

FROM_DLPACK = Hook("torch._C", "_from_dlpack", _LOST)
TO_DLPACK = Hook("torch._C", "_to_dlpack", _LOST)
MAKE_STORAGE = Hook("torch._C", "_construct_storage_from_data_pointer", _LOST)
KEY_SET = Hook("torch._C", "DispatchKeySet", _LOST)
KEY = Hook("torch._C", "DispatchKey", _LOST)
REGISTRATIONS = Hook("torch._C", "_dispatch_get_registrations_for_dispatch_key", _LOST)
PYTHON_KERNELS = Hook("torch.library", "_impls", _LOST)
FALLBACK = Hook("torch.library", "Library.fallback", _LOST, takes=("fn", "dispatch_key"))
ENSURE_GUARD = Hook("torch._C", "_ensureCUDADeviceGuardSet", _LOST)
ACCELERATOR = Hook("torch._C", "_accelerator_getAccelerator", _LOST)
GENERATOR_ADDRESS = Attribute("torch._C", "Generator._cdata", _LOST)
BACKWARD = Hook("torch.autograd", "_engine_run_backward", _LOST)
BACKWARD_OF_GRAPH = Hook("torch.autograd.graph", "_engine_run_backward", _LOST)
LAZY_INIT = Hook("torch.cuda", "_lazy_init", _LOST)


def changed(change: str) -> str:
    """Describe a change of PyTorch because of which CUDA tensors are not available."""
    return LAZY_INIT.sentence(change)
