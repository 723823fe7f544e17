"""Compile CUDA C++ with NVRTC, and launch it with numpy arrays as device memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from warpcheck import simt
from warpcheck.frontends import cuda

__all__ = ["FILE", "Run", "aligned", "buffer", "compile_ptx", "run"]

FILE = "kernel.cu"
# The type of ``run(source, grid, block, *arguments)``. A fixture of that name returns the function.
Run = Callable[..., simt.Launch]


def compile_ptx(source: str, name: str = "kernel") -> tuple[simt.Module, str]:
    """Return the module of a CUDA C++ source and the mangled name of one of its kernels."""
    binary = cuda.compile_kernel(source, FILE, name, cuda.CPU_ARCHITECTURE)
    return simt.load(binary.ptx, FILE), binary.mangled


def buffer(name: str, array: np.ndarray[Any, Any], initialised: bool = True) -> simt.Buffer:
    return simt.Buffer(name, array.ctypes.data, array.nbytes, array.itemsize, initialised, str(array.dtype))


def aligned(shape: int | tuple[int, ...], dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    """Return zeros whose address is a multiple of 256, as cudaMalloc would allocate them."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = np.zeros(size + 256, np.uint8)
    start = -memory.ctypes.data % 256
    array: np.ndarray[Any, Any] = memory[start : start + size].view(dtype).reshape(shape)
    return array


def run(
    source: str,
    grid: Any,
    block: Any,
    *arguments: Any,
    shared: int = 0,
    fresh: Sequence[int] = (),
    name: str = "kernel",
    **options: Any,
) -> simt.Launch:
    """Launch a kernel in CUDA C++.

    Args:
        arguments: Numpy arrays are passed as pointers, named a, b, c and so on. Other values are passed as they are.
        fresh: The indices of the arguments that count as unwritten.
    """
    module, mangled = compile_ptx(source, name)
    values = [a.ctypes.data if isinstance(a, np.ndarray) else a for a in arguments]
    buffers = [
        buffer("abcdefgh"[index], argument, index not in fresh)
        for index, argument in enumerate(arguments)
        if isinstance(argument, np.ndarray)
    ]
    grid, block = (extent if isinstance(extent, tuple) else (extent,) for extent in (grid, block))
    return module.launch(mangled, grid=grid, block=block, shared=shared, args=values, buffers=buffers, **options)
