"""Helpers for TMA loads of boxes: fill the tensor, describe its memory as a buffer, and launch the kernel."""

from __future__ import annotations

from typing import Any

import numpy as np

from machine.boxes import Case, Words
from machine.bulk_kernels import aligned_bytes, run_bulk
from warpcheck import simt

__all__ = ["iota", "load", "pad_coordinates", "tensor"]


def iota(case: Case) -> Words:
    """Return the tensor's memory, filled with 1, 2, 3 and so on."""
    memory = aligned_bytes(case.nbytes)
    memory.view(f"u{case.size}")[:] = np.arange(1, case.nbytes // case.size + 1)
    return memory


def pad_coordinates(case: Case) -> list[int]:
    """Return the coordinates of the box, padded with zeros to the five that every kernel takes."""
    return (case.coords + [0] * 5)[:5]


def tensor(memory: Words, **options: Any) -> simt.Buffer:
    return simt.Buffer("x", memory.ctypes.data, memory.nbytes, 1, dtype="bytes", **options)


def load(
    case: Case, descriptor: bytes | None = None, rank: int = 0, **options: Any
) -> tuple[simt.Launch, Words, Words]:
    memory = iota(case)
    out = np.zeros(case.shared, np.uint8)
    descriptor = case.map(memory.ctypes.data) if descriptor is None else descriptor
    args = [descriptor, out, case.shared, case.at, case.total, *pad_coordinates(case)]
    launch = run_bulk(f"load{rank or case.rank}", args, **{"buffers": [tensor(memory)]} | options)
    return launch, out, memory
