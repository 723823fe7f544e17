"""NumPy's floor division on columns, and numpy.minimum.reduce."""

import numpy as np
import torch


def active_blocks(kernels, sm):
    threads, registers, shared = kernels.cpu().numpy().T
    warps = -(-threads // 32)
    warp_registers = -(-32 * registers // 256) * 256
    block_shared = -(-(shared + sm["shared_reserved"]) // sm["shared_unit"]) * sm["shared_unit"]
    with np.errstate(divide="ignore"):
        by_shared = np.where(block_shared == 0, sm["blocks"], sm["shared"] // np.maximum(block_shared, 1))
    rows = [
        sm["warps"] // warps,
        np.full_like(warps, sm["blocks"]),
        sm["registers"] // 4 // warp_registers * 4 // warps,
    ]
    return torch.from_numpy(np.minimum.reduce([*rows, by_shared]).astype(np.int64)).to(kernels.device)
