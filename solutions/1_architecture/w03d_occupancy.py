"""Occupancy: how many blocks fit on an SM.

An SM (streaming multiprocessor) accepts a block when there is room for the whole block, and keeps the block until its
last thread has finished. Four resources can run out: warp slots, block slots, registers, and shared memory. They are
allocated in units:

- Threads are allocated in warps of 32.
- Registers are allocated per warp, in units of 256. The SM has four partitions. Each has a quarter of the registers,
  and all registers of a warp are in one partition.
- Shared memory is allocated per block, in units of sm["shared_unit"] bytes. Since sm_80 the system reserves
  sm["shared_reserved"] bytes per block, in addition to the bytes that the block requests. On older architectures
  shared_reserved is 0, and shared memory doesn't limit a block that uses none.

sm also contains "warps" and "blocks", the largest numbers that fit at once; "registers"; and "shared", in bytes. A
kernel that cannot run at all has 0 active blocks. The results must match exactly. They are compared with NVIDIA's
published limits for five architectures (sm_75 of the T4, sm_80 of the A100, sm_86 of the RTX 3090, sm_89 of the RTX
4090, sm_90 of the H100 and the H200), and with the results of a driver.
"""

import torch


def blocks(threads: int, registers: int, shared: int, sm: dict) -> int:
    """Return how many blocks fit at once, for `threads` and `shared` bytes per block and `registers` per thread.

    NVIDIA's occupancy calculator (cuda_occupancy.h in the CUDA toolkit) uses the same formulas.
    """
    warps_of_block = -(-threads // 32)
    registers_of_warp = round_up(32 * registers, 256)
    shared_of_block = round_up(shared + sm["shared_reserved"], sm["shared_unit"])
    warps_by_registers = sm["registers"] // 4 // registers_of_warp * 4  # the remainder of a partition is unused
    room = [sm["warps"] // warps_of_block, sm["blocks"], warps_by_registers // warps_of_block]
    if shared_of_block:
        room.append(sm["shared"] // shared_of_block)
    return min(room)


def round_up(amount: int, unit: int) -> int:
    return (amount + unit - 1) // unit * unit


def active_blocks(kernels: torch.Tensor, sm: dict) -> torch.Tensor:
    """Return how many blocks fit at once, as int64, per row of kernels (threads, registers, shared memory bytes)."""
    return torch.tensor([blocks(*row, sm) for row in kernels.tolist()], device=kernels.device)
