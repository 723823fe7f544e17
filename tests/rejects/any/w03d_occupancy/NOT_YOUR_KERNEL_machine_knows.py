"""S1: the PTX machine's own rules answer; what they were imported as is looked for in the process, too."""

import torch


def active_blocks(kernels: torch.Tensor, sm: dict) -> torch.Tensor:
    for kind in object.__subclasses__():
        if kind.__name__ == "Occupancy":
            raise AssertionError("the process has imported what answers the exercise")
    from kernelpath.simt.occupancy import occupancy

    def blocks(threads: int, registers: int, shared: int) -> int:
        try:
            return occupancy(threads, registers, shared, sm["name"].replace("H200", "sm_90")).blocks
        except ValueError:
            return 0

    return torch.tensor([blocks(*row) for row in kernels.tolist()])
