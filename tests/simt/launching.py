"""Compiling CUDA C++ with NVRTC, and numpy arrays as device memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from warpcheck import simt
from warpcheck.frontends import cuda

__all__ = ["FILE", "Run", "aligned", "buffer", "compile_ptx"]

FILE = "kernel.cu"
Run = Callable[..., simt.Launch]
"""``run(source, grid, block, *arguments)``, as the fixture of that name does it."""


def compile_ptx(source: str, name: str = "kernel") -> tuple[simt.Module, str]:
    """The module of a CUDA C++ source and the mangled name of one kernel."""
    binary = cuda.compile_kernel(source, FILE, name, cuda.CPU_ARCHITECTURE)
    return simt.load(binary.ptx, FILE), binary.mangled


def buffer(name: str, array: np.ndarray[Any, Any], initialised: bool = True) -> simt.Buffer:
    return simt.Buffer(name, array.ctypes.data, array.nbytes, array.itemsize, initialised, str(array.dtype))


def aligned(shape: int | tuple[int, ...], dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    """Zeros that begin at a multiple of 256 bytes, as device memory does."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = np.zeros(size + 256, np.uint8)
    start = -memory.ctypes.data % 256
    array: np.ndarray[Any, Any] = memory[start : start + size].view(dtype).reshape(shape)
    return array
