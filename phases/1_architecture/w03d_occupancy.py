"""Occupancy: how many blocks fit on an SM.

An SM (streaming multiprocessor) accepts a block when there is room for all of it, and keeps it until its last thread
has finished. Four resources can run out: warp slots, block slots, registers, and shared memory. They are allocated in
units:

- Threads come in warps of 32.
- Registers are allocated per warp, in units of 256. The SM has four partitions. Each has a quarter of the registers,
  and all registers of a warp are in one partition.
- Shared memory is allocated per block, in units of sm["shared_unit"] bytes. Since sm_80 the system reserves
  sm["shared_reserved"] bytes per block, in addition to the bytes that the block requests. On older architectures
  shared_reserved is 0, and a block that uses no shared memory is not limited by it.

sm also has "warps" and "blocks", the most that fit at once, "registers", and "shared" in bytes. A kernel that cannot
run at all has 0 active blocks. The results must match exactly. They are compared with NVIDIA's published limits for
five architectures (sm_75 of the T4, sm_80 of the A100, sm_86 of the RTX 3090, sm_89 of the RTX 4090, sm_90 of the H100
and the H200), and with the results of a driver.
"""

import torch


def blocks(threads: int, registers: int, shared: int, sm: dict) -> int:
    """The blocks at once of a kernel: threads per block, registers per thread, bytes of shared memory per block.

    The formulas are those of NVIDIA's occupancy calculator (cuda_occupancy.h in the CUDA toolkit).
    """
    raise NotImplementedError("TODO: how many blocks is there room for?")


def active_blocks(kernels: torch.Tensor, sm: dict) -> torch.Tensor:
    """For each row of kernels (threads, registers, bytes of shared memory) the blocks at once, as int64."""
    return torch.tensor([blocks(*row, sm) for row in kernels.tolist()], device=kernels.device)
