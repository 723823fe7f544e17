"""An accident: right up to Turing; since Ampere the system takes 1 KiB of each block's shared memory."""

import torch


def blocks(threads: int, registers: int, shared: int, sm: dict) -> int:
    """Blocks at once of a kernel with so many threads a block, registers a thread and bytes of shared memory a block.

    Where the formulas come from: NVIDIA's occupancy calculator (cuda_occupancy.h in the CUDA toolkit).
    """
    warps_of_block = -(-threads // 32)
    registers_of_warp = round_up(32 * registers, 256)
    shared_of_block = round_up(shared, sm["shared_unit"])
    warps_by_registers = sm["registers"] // 4 // registers_of_warp * 4  # what a partition has left over is lost
    room = [sm["warps"] // warps_of_block, sm["blocks"], warps_by_registers // warps_of_block]
    if shared_of_block:
        room.append(sm["shared"] // shared_of_block)
    return min(room)


def round_up(amount: int, unit: int) -> int:
    return (amount + unit - 1) // unit * unit


def active_blocks(kernels: torch.Tensor, sm: dict) -> torch.Tensor:
    """Row by row of kernels (threads, registers, bytes of shared memory) the blocks at once, as int64."""
    return torch.tensor([blocks(*row, sm) for row in kernels.tolist()], device=kernels.device)
