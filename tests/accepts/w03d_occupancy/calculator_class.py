"""The occupancy calculator as a spreadsheet has it: a limit for each resource, and the least of them."""

import math
from dataclasses import dataclass

import torch

WARP_SIZE, REGISTER_UNIT, PARTITIONS = 32, 256, 4


@dataclass(frozen=True)
class Calculator:
    sm: dict

    def limits(self, threads: int, registers: int, shared: int) -> dict[str, float]:
        warps = math.ceil(threads / WARP_SIZE)
        per_warp = math.ceil(registers * WARP_SIZE / REGISTER_UNIT) * REGISTER_UNIT
        per_partition = math.floor(self.sm["registers"] / PARTITIONS / per_warp)
        unit = self.sm["shared_unit"]
        per_block = math.ceil((shared + self.sm["shared_reserved"]) / unit) * unit
        return {
            "warps": math.floor(self.sm["warps"] / warps),
            "blocks": self.sm["blocks"],
            "registers": math.floor(per_partition * PARTITIONS / warps),
            "shared": math.floor(self.sm["shared"] / per_block) if per_block else math.inf,
        }


def active_blocks(kernels, sm):
    calculator = Calculator(sm)
    out = torch.zeros(len(kernels), dtype=torch.int64, device=kernels.device)
    for row, kernel in enumerate(kernels):
        out[row] = min(calculator.limits(*(int(number) for number in kernel)).values())
    return out
