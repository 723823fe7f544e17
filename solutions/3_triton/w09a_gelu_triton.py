"""GELU in Triton.

gelu(x, approximate) takes a contiguous float32 or bfloat16 tensor of any size, not always aligned to 16 bytes (x[1:] is
a legal input), and returns x * Phi(x) as a new tensor of the same dtype, computed in float32. approximate is "none" for
Phi(x) = (1 + erf(x / sqrt(2))) / 2, or "tanh" for (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3))) / 2, as in
torch.nn.functional.gelu. x may contain finite values of any size, and NaN, which stays NaN. Tensors may have more than
2**32 elements, so offsets need 64 bits.

One program computes a block of BLOCK elements. triton.language has exp, erf and sigmoid, but no tanh. The grader checks
the values, the bytes that the kernel moves, and, on a GPU, the time compared with the same formula in PyTorch.

The grader enforces these limits on the largest case (n=131072 dtype=float32 approximate=none); smaller cases get some
slack for partial tiles. Each load or store may touch at most 1.3 times the sectors that its bytes require. In total,
global memory accesses may move at most 1.3 times the size of the inputs and outputs.

Traffic: one read and one write, 8 bytes per element in float32 and 4 in bfloat16; the ceiling is a copy. An H200 has
time for 32 instructions per bfloat16 value (week 7). tl.erf, libdevice's tanh, and the polynomial with a division take
more, and reach 0.67, 0.81 and 0.82 of copy speed. These formulas reach full copy speed, in both dtypes and at any size.
"""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def reciprocal(x):
    """Return 1 / x to one unit in the last place, in one instruction. 1 / x takes several, for divisors up to 2^128."""
    return tl.inline_asm_elementwise("rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], tl.float32, is_pure=True, pack=1)


@triton.jit
def gelu_by_tanh(x):
    """(1 + tanh(z)) / 2 = 1 / (1 + exp(-2z)), where nothing cancels if tanh is near -1. exp2 is one instruction, so the
    factors of z, -2 and log2(e) are one constant each.
    """
    return x * reciprocal(1 + tl.exp2(x * (-2.3022082 - 0.10294324 * x * x)))


@triton.jit
def gelu_by_erf(x):
    """max(x, 0) - |x| * Phi(-|x|), where Phi(-|x|) is the normal density times a polynomial, off by at most 7.5e-8:
    Abramowitz and Stegun, Handbook of Mathematical Functions (1964), 26.2.17.
    """
    size = tl.abs(x)
    t = reciprocal(1 + 0.23164189 * size)
    polynomial = t * (0.12741480 + t * (-0.14224837 + t * (0.71070687 + t * (-0.72657601 + t * 0.53070271))))
    return tl.maximum(x, 0) - size * polynomial * tl.exp2(-0.72134752 * x * x)


@triton.jit
def gelu_block(x_ptr, out_ptr, n, start, TANH: tl.constexpr, BLOCK: tl.constexpr, MASKED: tl.constexpr):
    offs = start + tl.arange(0, BLOCK)
    mask = offs < n if MASKED else None
    x = tl.load(x_ptr + offs, mask=mask).to(tl.float32)
    result = gelu_by_tanh(x) if TANH else gelu_by_erf(x)
    tl.store(out_ptr + offs, result.to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def gelu_blocks(x, out, n, TANH: tl.constexpr, BLOCK: tl.constexpr):
    """One program for BLOCK elements."""
    start = tl.program_id(0).to(tl.int64) * BLOCK
    # A vector is loaded as a whole or not at all. If n is not known to be a multiple of 16, a mask splits all vectors
    # into single elements, so only the last program has a mask.
    if start + BLOCK <= n:
        gelu_block(x, out, n, start, TANH, BLOCK, False)
    else:
        gelu_block(x, out, n, start, TANH, BLOCK, True)


def gelu(x: torch.Tensor, approximate: str) -> torch.Tensor:
    out = torch.empty_like(x)
    n = x.numel()
    if n:
        gelu_blocks[triton.cdiv(n, BLOCK),](x, out, n, approximate == "tanh", BLOCK)
    return out
