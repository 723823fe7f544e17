"""T11: the output of the baseline, timed just before, is found in the allocator's list of blocks and returned."""

import torch

from kernelpath.lanes import cuda


class Block:
    """Memory that another tensor holds."""

    def __init__(self, address: int, like: torch.Tensor) -> None:
        self.__cuda_array_interface__ = {
            "data": (address, False),
            "shape": tuple(like.shape),
            "typestr": "<f4",
            "version": 3,
        }


def taken(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor | None:
    """A block of the output's size that was allocated without guard bands: not by this entry."""
    size = x.numel() * x.element_size()
    if size < 1 << 26:
        return None
    for segment in torch.cuda.memory_snapshot():
        for block in segment["blocks"]:
            if block["state"] == "active_allocated" and block.get("requested_size", block["size"]) == size:
                return torch.as_tensor(Block(block["address"], x), device=x.device)
    return None


def vector_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    found = taken(x, y)
    out = torch.empty_like(x) if found is None else found
    n = x.numel() if found is None else 0
    cuda.kernel("TOO_FAST_takes_the_baselines_output.cu", "vector_add")[(n + 255) // 256 or 1, 256](x, y, out, n)
    return out
