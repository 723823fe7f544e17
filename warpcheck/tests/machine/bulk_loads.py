"""Loads of boxes: the tensor, its memory as a buffer, and the launch."""

from __future__ import annotations

from typing import Any

import numpy as np

from machine.boxes import Case, Words
from machine.bulk_kernels import aligned_bytes, run_bulk
from warpcheck import simt

__all__ = ["five", "iota", "load", "tensor"]


def iota(case: Case) -> Words:
    memory = aligned_bytes(case.nbytes)
    memory.view(f"u{case.size}")[:] = np.arange(1, case.nbytes // case.size + 1)
    return memory


def five(case: Case) -> list[int]:
    return (case.coords + [0] * 5)[:5]


def tensor(memory: Words, **options: Any) -> simt.Buffer:
    return simt.Buffer("x", memory.ctypes.data, memory.nbytes, 1, dtype="bytes", **options)


def load(
    case: Case, descriptor: bytes | None = None, rank: int = 0, **options: Any
) -> tuple[simt.Launch, Words, Words]:
    memory, out = iota(case), np.zeros(case.shared, np.uint8)
    descriptor = case.map(memory.ctypes.data) if descriptor is None else descriptor
    args = [descriptor, out, case.shared, case.at, case.total, *five(case)]
    launch = run_bulk(f"load{rank or case.rank}", args, **{"buffers": [tensor(memory)]} | options)
    return launch, out, memory
