"""A launcher object that holds grid and block, as in frameworks; the kernel takes a struct by value."""

import ctypes
from dataclasses import dataclass

import torch

from kernelpath.lanes import cuda


class Shape(ctypes.Structure):
    _fields_ = (("blocks", ctypes.c_int), ("threads", ctypes.c_int), ("n", ctypes.c_longlong))


@dataclass(frozen=True)
class Launcher:
    blocks: int
    threads: int

    def __call__(self, out: torch.Tensor) -> torch.Tensor:
        shape = Shape(self.blocks, self.threads, self.blocks * self.threads)
        cuda.kernel("dataclass_launcher.cu", "hello")[self.blocks, self.threads](out, shape)
        return out


def hello_grid(blocks: int, threads: int, device: torch.device) -> torch.Tensor:
    out = torch.empty(4, blocks * threads, dtype=torch.int32, device=device)
    return Launcher(blocks, threads)(out)
