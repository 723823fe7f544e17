"""GELU: the launch.

gelu(x, approximate) takes a contiguous float32 or bfloat16 tensor of any size, not always aligned to 16 bytes (x[1:] is
a legal input), and returns x * Phi(x) as a new tensor of the same dtype, computed in float32. approximate is "none" for
Phi(x) = (1 + erf(x / sqrt(2))) / 2, or "tanh" for (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3))) / 2, as in
torch.nn.functional.gelu. x may contain finite values of any size, and NaN, which stays NaN. Tensors may have more than
2**32 elements, so offsets need 64 bits.

Write the kernel in w07b_gelu.cu, then launch it here. The grader checks the values, the bytes that the kernel moves,
and, on a GPU, the time compared with the formula written as PyTorch operators.

The grader enforces these limits on the largest case (n=131072 dtype=float32 approximate=none); smaller cases get some
slack for partial tiles. Each load or store may touch at most 1.3 times the sectors that its bytes require. In total,
global memory accesses may move at most 1.3 times the size of the inputs and outputs.

Traffic: one read and one write, 8 bytes per element in float32 and 4 in bfloat16. The ceiling is a copy. At 4.2 TB/s, 2
floats or 4 bfloat16 values per cycle pass through an SM of an H200, which executes 128 thread instructions in that
time: 64 for a float, 32 for a bfloat16 value, conversions and addresses included. That leaves no room for erff in
bfloat16.

One element per thread reaches 0.6 of copy speed in float32 and 0.35 in bfloat16; one vector of 16 bytes per thread
reaches full copy speed.
"""

import torch

from kernelpath.lanes import cuda

C_TYPE = {torch.float32: "float", torch.bfloat16: "__nv_bfloat16"}
THREADS = 128


def gelu(x: torch.Tensor, approximate: str) -> torch.Tensor:
    out = torch.empty_like(x)
    formula = "true" if approximate == "tanh" else "false"
    n = x.numel()
    if n == 0:
        return out
    aligned = x.data_ptr() % 16 == 0 and out.data_ptr() % 16 == 0
    width = 16 // x.element_size() if aligned else 1
    blocks = (n + THREADS * width - 1) // (THREADS * width)
    cuda.kernel("w07b_gelu.cu", f"gelu<{C_TYPE[x.dtype]}, {formula}, {width}>")[blocks, THREADS](x, out, n)
    return out
