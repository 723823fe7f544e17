"""Let programs say device="cuda" on a machine without a GPU.

Inside a scope, CUDA tensors are true ones for PyTorch, their memory is this process's (`tensors`), and their operators
run on the CPU (`operators`). `accelerator` lets the autograd engine accept them, and `interface` replaces the functions
of torch.cuda. After the scope PyTorch refuses to make CUDA tensors, as before. What remains are kernels for the CUDA
dispatch key and a device guard, which only a tensor that outlives the scope reaches: it can still be read.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NoReturn

from warpcheck import patching, simulated_gpu
from warpcheck.hooks import Changed
from warpcheck.hooks import torch_cuda as hooks

__all__ = ["activate"]


def activate() -> None:
    """Simulate CUDA tensors until the current `patching` scope ends; not where there is a GPU with tensors of its own.

    If this version of PyTorch has changed something that the simulation needs, a program gets the error where it first
    uses CUDA. Kernels on CPU tensors still run.
    """
    if _has_gpu():
        return
    try:
        from warpcheck.frontends.torch_cuda import accelerator, interface, operators

        operators.register()
        accelerator.install()
    except Changed as error:
        hooks.LAZY_INIT.replace(_raising(str(error)))
        return
    patching.on_exit(accelerator.uninstall)
    simulated_gpu.simulate_cuda_tensors()
    interface.replace_functions()
    _run_backward_on_the_calling_thread()


@cache
def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def _raising(message: str) -> Any:
    def raise_error() -> NoReturn:
        raise RuntimeError(message)

    return raise_error


def _run_backward_on_the_calling_thread() -> None:
    """Run backward on the thread that calls it.

    The autograd engine starts a thread for each GPU at its first backward, and no thread later. If that was before the
    first scope, nothing would run what it queues for the simulated GPU.
    """
    import torch

    run_backward = hooks.BACKWARD.get()

    def run(*args: Any, **kwargs: Any) -> Any:
        with torch.autograd.set_multithreading_enabled(False):
            return run_backward(*args, **kwargs)

    hooks.BACKWARD.replace(run)
    hooks.BACKWARD_OF_GRAPH.replace(run)
