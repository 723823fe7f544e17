"""SwiGLU: two GEMMs and their gate in one kernel, and its backward.

swiglu(x, w, dh) takes contiguous matrices x (m, k) and w (2 n, k), both bfloat16 or both float16, and dh, which is None
or a contiguous matrix (m, n) in the dtype of x. w has n rows for gate, then n rows for up:

    gate = x @ w[:n].T    up = x @ w[n:].T    h = silu(gate) * up    silu(g) = g / (1 + exp(-g))

Without dh, as in inference, it returns only h, a new tensor (m, n). With dh, the gradient of h, it returns (h, dx, dw),
where dx and dw are the gradients of x and w and have their shapes. All results have the dtype of x. Accumulate in
float32, and round h once. You may round the operands of the GEMMs for dx and dw. n and k are multiples of 8, every
tensor starts at a multiple of 16 bytes, and all have fewer than 2**31 elements.

Start with h. Give each program two accumulator tiles, and load each block of x once for both. In the backward pass,
compute the gradients of gate and up element by element, and from these dx and dw with one GEMM each. You decide whether
to keep gate and up or to recompute them. The grader checks the values, the use of tensor cores, and the bytes moved,
and on a GPU it compares the time of h alone with cuBLAS for both GEMMs plus one kernel for the gate.

The grader enforces these limits on the largest case (m=328 n=272 k=32 dtype=bfloat16 backward=False); smaller cases get
some slack for partial tiles. In total, global memory accesses may move at most 3.5 times the size of the inputs and
outputs. The multiply-adds must run on tensor cores.
"""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def gated_product(
    x, w, h, kept_gate, kept_up, M, N, K,
    KEEP: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Compute h = silu(gate) * up. The descriptor of w is (2, n, k): a block has equally many rows of gate and up.

    Without KEEP, kept_gate and kept_up may be None.
    """
    # TODO: accumulate both products, store them if KEEP is set, then store h


@triton.jit
def gate_backward(gate_up, dh, N, BLOCK: tl.constexpr):
    """Overwrite gate and up with their gradients. A row of gate_up has n columns of gate, then n of up."""
    # TODO: element by element


@triton.jit
def product(
    a, b, out, M, N, K,
    A_BY_COLUMNS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Compute out = a @ b, as in week 11's matmul_persistent."""
    # TODO: as there


def swiglu(
    x: torch.Tensor, w: torch.Tensor, dh: torch.Tensor | None
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    raise NotImplementedError("TODO: choose tiles, launch gated_product, then what follows if there is dh")
    (m, k), n = x.shape, len(w) // 2
    h = x.new_empty(m, n)
    if dh is None:
        return h
