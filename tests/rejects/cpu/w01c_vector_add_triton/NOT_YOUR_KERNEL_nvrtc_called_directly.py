"""S1: NVRTC is called without the course's interface, and what it makes is handed to the device."""

import torch
import triton  # noqa: F401
from cuda.bindings import nvrtc

from kernelpath.device import api

SOURCE = b"""
extern "C" __global__ void add(const float* x, const float* y, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i] + y[i];
}
"""


def compiled() -> str:
    _, program = nvrtc.nvrtcCreateProgram(SOURCE, b"add.cu", 0, [], [])
    nvrtc.nvrtcCompileProgram(program, 1, [b"--gpu-architecture=compute_80"])
    _, size = nvrtc.nvrtcGetPTXSize(program)
    text = bytearray(size)
    nvrtc.nvrtcGetPTX(program, text)
    return bytes(text).decode().strip("\0")


def vector_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    n = x.numel()
    if n:
        api.device().load(compiled()).launch(
            "add",
            grid=((n + 255) // 256, 1, 1),
            block=(256, 1, 1),
            shared=0,
            arguments=[x, y, out, n],
            tensors=[("x", x), ("y", y), ("out", out)],
        )
    return out
