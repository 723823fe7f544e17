"""Compute the occupancy of a multiprocessor by three sources.

The sources are NVIDIA's published limits, the recorded answers of an H200's driver, and the driver of the GPU at hand.

A multiprocessor is a dict as the learner gets it: its "name", its "warps", "blocks", "registers" and bytes of "shared"
memory, and the "shared_unit" and "shared_reserved" of the latter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import torch

from warpcheck.occupancy import MULTIPROCESSORS, occupancy

ARCHITECTURES = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90")

Sm = dict[str, Any]

# Returns the blocks at once from threads per block, registers per thread and shared bytes per block.
Oracle = Callable[[int, int, int], int]

# fmt: off
# Threads, registers, bytes of shared memory, and the number of blocks by the driver of an H200 (580).
RECORDED: tuple[tuple[int, int, int, int], ...] = (
    (181, 64, 909, 5), (3, 64, 11700, 18), (384, 64, 0, 2), (32, 128, 28014, 8), (128, 64, 140, 8),
    (480, 168, 103979, 0), (111, 128, 109, 4), (352, 255, 4589, 0), (32, 128, 60440, 3), (43, 255, 203648, 1),
    (32, 254, 0, 8), (32, 254, 45202, 5), (19, 128, 0, 16), (32, 128, 0, 16), (13, 254, 1734, 8), (32, 64, 1011, 32),
    (224, 254, 0, 1), (32, 64, 0, 32), (189, 254, 0, 1), (128, 255, 136726, 1), (117, 128, 77606, 2),
    (45, 128, 446, 8), (64, 254, 31546, 4), (32, 96, 0, 20), (217, 96, 258, 2), (188, 255, 6980, 1),
    (32, 255, 20625, 8), (544, 64, 5228, 1), (30, 96, 117024, 1), (32, 96, 60, 20), (52, 168, 34492, 6),
    (32, 168, 0, 12), (11, 64, 42431, 5), (31, 20, 42079, 5), (96, 96, 29884, 6), (2, 128, 0, 16), (3, 20, 0, 32),
    (32, 96, 1328, 20), (224, 96, 80, 2), (663, 255, 0, 0), (145, 254, 3691, 1), (8, 96, 191382, 1),
    (32, 20, 17042, 12), (154, 254, 80718, 1), (96, 168, 150, 4),
)
# fmt: on


def draw(rng: torch.Generator, architecture: str, count: int) -> tuple[torch.Tensor, Sm]:
    """Generate kernels as rows of (threads per block, registers per thread, shared bytes per block), and their SM.

    Args:
        architecture: One with published limits. For any other, the driver of this GPU decides, or the H200's.
    """
    if architecture in MULTIPROCESSORS:
        sm = {"name": architecture, **asdict(MULTIPROCESSORS[architecture])}
        rows = draw_kernels(rng, count, sm["shared"], torch.arange(16, 256, device=rng.device))
    elif rng.device.type == "cuda":
        from kernelpath.course.labs import driver

        sm = driver.this_gpu()
        registers = torch.tensor(sorted(driver.functions()), device=rng.device)
        rows = draw_kernels(rng, count, sm["shared"] - sm["shared_reserved"], registers)
    else:
        sm = {"name": "H200", **asdict(MULTIPROCESSORS["sm_90"])}
        rows = torch.tensor([row[:3] for row in RECORDED])[torch.randperm(len(RECORDED), generator=rng)]
    return rows, sm


def draw_kernels(rng: torch.Generator, count: int, max_shared: int, registers: torch.Tensor) -> torch.Tensor:
    """Generate small and large blocks, whole and partial warps, little and nearly all of the shared memory."""

    def uniform(low: float, high: float) -> torch.Tensor:
        return low + (high - low) * torch.rand(count, generator=rng, device=rng.device, dtype=torch.float64)

    threads = torch.exp2(uniform(0, 10)).long()
    threads = torch.where(uniform(0, 1) < 0.5, (threads + 31) // 32 * 32, threads)
    sampled_registers = registers[torch.randint(registers.numel(), (count,), generator=rng, device=rng.device)]
    shared = (uniform(0, 1) ** 4 * max_shared).long()
    shared = torch.where(uniform(0, 1) < 0.3, 0, shared)
    return torch.stack((threads, sampled_registers, shared), 1)


def oracle(name: str) -> Oracle:
    """Return the source of answers for a multiprocessor: the published limits, the record, or the driver."""
    if name == "this GPU":
        from kernelpath.course.labs import driver

        return driver.active_blocks
    if name == "H200":
        recorded_answers = {row[:3]: row[3] for row in RECORDED}
        return lambda *row: recorded_answers[row]
    return lambda *row: published(name, *row)


def published(architecture: str, threads: int, registers: int, shared: int) -> int:
    """Return the blocks at once by the published limits; 0 if none fits."""
    try:
        return occupancy(threads, registers, shared, architecture).blocks
    except ValueError:
        return 0


def reason(name: str, threads: int, registers: int, shared: int, answer: int, expected: int) -> str:
    """Explain an error as the rest of a sentence; empty for a driver, which gives no reasons."""
    if name not in MULTIPROCESSORS:
        return ""
    if answer < expected:
        return "; none of the four limits is that low"
    try:
        return f", limited by {occupancy(threads, registers, shared, name).limit}"
    except ValueError as error:
        return f"; {error}"
