"""All kernels at once, with integer operators on whole columns."""

import torch


def ceil_to(x, unit):
    return (x + unit - 1).div(unit, rounding_mode="floor") * unit


def active_blocks(kernels: torch.Tensor, sm: dict) -> torch.Tensor:
    threads, registers, shared = kernels.unbind(1)
    warps = torch.div(threads + 31, 32, rounding_mode="floor")
    by_warps = sm["warps"] // warps
    a_warp = ceil_to(registers * 32, 256).clamp(min=1)
    by_registers = (sm["registers"] // 4 // a_warp * 4) // warps
    a_block = ceil_to(shared + sm["shared_reserved"], sm["shared_unit"])
    by_shared = torch.where(a_block > 0, sm["shared"] // a_block.clamp(min=1), sm["blocks"])
    most = torch.full_like(threads, sm["blocks"])
    return torch.stack([by_warps, by_registers, by_shared, most]).amin(0)
