"""SwiGLU: two GEMMs and their gate in one kernel, and its backward.

swiglu(x, w, dh) takes contiguous matrices x (m, k) and w (2 n, k), both bfloat16 or both float16, and dh, which is None
or a contiguous matrix (m, n) in their dtype. w has the n rows for gate, then the n rows for up:

    gate = x @ w[:n].T    up = x @ w[n:].T    h = silu(gate) * up    silu(g) = g / (1 + exp(-g))

Without dh, as in inference, it returns h alone, a new tensor (m, n). With dh, the gradient of h, it returns (h, dx,
dw), where dx and dw are the gradients of x and w, in their shapes. All results have the dtype of x. The accumulators
are float32, and h is rounded once. The operands of the GEMMs for dx and dw may be rounded. n and k are multiples of 8,
every tensor starts at a multiple of 16 bytes, and all have fewer than 2**31 elements.

Start with h: a program with two accumulator tiles, for which it loads each block of x once. In the backward pass,
compute the gradients of gate and up element by element, and dx and dw from these by one GEMM each. You decide whether
to keep gate and up or to recompute them. The grader checks the values, the use of tensor cores, the bytes that are
moved, and on a GPU compares the time of h alone with cuBLAS for both GEMMs and one kernel for the gate.

Limits on the largest case, with room for edges on smaller ones: at most 3.5 times the bytes of inputs and outputs
moved; multiply-adds executed by tensor cores.
"""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def gated_product(
    x, w, h, kept_gate, kept_up, m, n, k,
    KEEP: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """h = silu(gate) * up. w is described as (2, n, k): a block of it has as many rows of gate as of up.

    kept_gate and kept_up may be None without KEEP.
    """
    # TODO: sum both products, keep them if KEEP says so, then store h


@triton.jit
def gate_backward(kept, dh, n, BLOCK: tl.constexpr):
    """In place: gate and up become their gradients. A row of kept has n columns of gate, then n of up."""
    # TODO: element by element


@triton.jit
def product(
    a, b, out, m, n, k,
    A_BY_COLUMNS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """out = a @ b, as in matmul_persistent of week 11."""
    # TODO: as there


def swiglu(
    x: torch.Tensor, w: torch.Tensor, dh: torch.Tensor | None
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    raise NotImplementedError("TODO: choose tiles, launch gated_product, then what follows if there is dh")
    (m, k), n = x.shape, len(w) // 2
    h = x.new_empty(m, n)
    if dh is None:
        return h
