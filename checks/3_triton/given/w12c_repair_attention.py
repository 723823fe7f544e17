"""Repair attention: four Triton kernels that somebody else wrote, each with a fault.

run(kernel, q, k, v) launches one of them on float32 matrices of shape (tokens, 32), with up to 64 tokens. The kernels
padding, rescale, and store return softmax(q @ k^T / sqrt(32)) @ v. The kernel gradient receives the gradient of the
output as v, and it returns the gradient of v, p^T @ grad, where p is the softmax.

Repair each kernel with as few changes as possible, and name the kind of its fault in CAUSES. The kind is the name of an
exception of warpcheck, such as "Uninitialized", or "WrongValues" if the machine reports no fault but the values are
wrong. If an entry is missing, `kp check` lists all names. `kp check repair_attention` runs all kernels and reports the
first that fails. The PTX machine grades this exercise even on a computer with a GPU.

The grader checks the values, checks CAUSES, and checks that the machine finds no fault in any program order. It also
counts the statements that the repair changes: at most 1 in padding, 2 in rescale, 1 in store, 2 in gradient, and none
outside of the kernels. A moved statement counts as two changes. Comments, line breaks, and CAUSES do not count.
"""

import torch
import triton
import triton.language as tl

HEAD = 32
BLOCK_M = 16
BLOCK_N = 32
SCALE = 1.4426950408889634 / HEAD**0.5  # exp2 instead of exp

# Replace each "TODO" with the kind of the kernel's fault.
CAUSES = {
    "padding": "TODO",
    "rescale": "TODO",
    "store": "TODO",
    "gradient": "TODO",
}

# ---- padding ----


@triton.jit
def padding(q_ptr, k_ptr, v_ptr, out_ptr, tokens, scale,
            BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, HEAD: tl.constexpr):  # fmt: skip
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_d = tl.arange(0, HEAD)
    q = tl.load(q_ptr + offs_m[:, None] * HEAD + offs_d, mask=offs_m[:, None] < tokens, other=0.0)
    m_i = tl.full([BLOCK_M], -float("inf"), tl.float32)
    l_i = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, HEAD], tl.float32)
    for start in range(0, tokens, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        k = tl.load(k_ptr + offs_n[:, None] * HEAD + offs_d, mask=offs_n[:, None] < tokens, other=0.0)
        v = tl.load(v_ptr + offs_n[:, None] * HEAD + offs_d, mask=offs_n[:, None] < tokens, other=0.0)
        qk = tl.dot(q, k.T, input_precision="ieee") * scale
        m_new = tl.maximum(m_i, tl.max(qk, axis=1))
        alpha = tl.exp2(m_i - m_new)
        p = tl.exp2(qk - m_new[:, None])
        l_i = l_i * alpha + tl.sum(p, axis=1)
        acc = acc * alpha[:, None] + tl.dot(p, v, input_precision="ieee")
        m_i = m_new
    tl.store(out_ptr + offs_m[:, None] * HEAD + offs_d, acc / l_i[:, None], mask=offs_m[:, None] < tokens)


# ---- rescale ----


@triton.jit
def rescale(q_ptr, k_ptr, v_ptr, out_ptr, tokens, scale,
            BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, HEAD: tl.constexpr):  # fmt: skip
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_d = tl.arange(0, HEAD)
    q = tl.load(q_ptr + offs_m[:, None] * HEAD + offs_d, mask=offs_m[:, None] < tokens, other=0.0)
    m_i = tl.full([BLOCK_M], -float("inf"), tl.float32)
    l_i = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, HEAD], tl.float32)
    for start in range(0, tokens, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        k = tl.load(k_ptr + offs_n[:, None] * HEAD + offs_d, mask=offs_n[:, None] < tokens, other=0.0)
        v = tl.load(v_ptr + offs_n[:, None] * HEAD + offs_d, mask=offs_n[:, None] < tokens, other=0.0)
        qk = tl.dot(q, k.T, input_precision="ieee") * scale
        qk = tl.where(offs_n[None, :] < tokens, qk, -float("inf"))
        m_new = tl.maximum(m_i, tl.max(qk, axis=1))
        p = tl.exp2(qk - m_new[:, None])
        m_i = m_new
        alpha = tl.exp2(m_i - m_new)
        l_i = l_i * alpha + tl.sum(p, axis=1)
        acc = acc * alpha[:, None] + tl.dot(p, v, input_precision="ieee")
    tl.store(out_ptr + offs_m[:, None] * HEAD + offs_d, acc / l_i[:, None], mask=offs_m[:, None] < tokens)


# ---- store ----


@triton.jit
def store(q_ptr, k_ptr, v_ptr, out_ptr, tokens, scale,
          BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, HEAD: tl.constexpr):  # fmt: skip
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_d = tl.arange(0, HEAD)
    q = tl.load(q_ptr + offs_m[:, None] * HEAD + offs_d, mask=offs_m[:, None] < tokens, other=0.0)
    # All keys at once: m_i is final, and nothing has to be rescaled.
    offs_n = tl.arange(0, 2 * BLOCK_N)
    k = tl.load(k_ptr + offs_n[:, None] * HEAD + offs_d, mask=offs_n[:, None] < tokens, other=0.0)
    v = tl.load(v_ptr + offs_n[:, None] * HEAD + offs_d, mask=offs_n[:, None] < tokens, other=0.0)
    qk = tl.dot(q, k.T, input_precision="ieee") * scale
    qk = tl.where(offs_n[None, :] < tokens, qk, -float("inf"))
    m_i = tl.max(qk, axis=1)
    p = tl.exp2(qk - m_i[:, None])
    acc = tl.dot(p, v, input_precision="ieee") / tl.sum(p, axis=1)[:, None]
    tl.store(out_ptr + offs_m[:, None] * HEAD + offs_d, acc, mask=offs_d[None, :] < HEAD)


# ---- gradient ----


@triton.jit
def gradient(q_ptr, k_ptr, grad_ptr, out_ptr, tokens, scale,
             BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, HEAD: tl.constexpr):  # fmt: skip
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_d = tl.arange(0, HEAD)
    q = tl.load(q_ptr + offs_m[:, None] * HEAD + offs_d, mask=offs_m[:, None] < tokens, other=0.0)
    grad = tl.load(grad_ptr + offs_m[:, None] * HEAD + offs_d, mask=offs_m[:, None] < tokens, other=0.0)
    offs_n = tl.arange(0, 2 * BLOCK_N)
    k = tl.load(k_ptr + offs_n[:, None] * HEAD + offs_d, mask=offs_n[:, None] < tokens, other=0.0)
    qk = tl.dot(q, k.T, input_precision="ieee") * scale
    qk = tl.where(offs_n[None, :] < tokens, qk, -float("inf"))
    p = tl.exp2(qk - tl.max(qk, axis=1)[:, None])
    p = p / tl.sum(p, axis=1)[:, None]
    dv_ptrs = out_ptr + offs_n[:, None] * HEAD + offs_d
    dv = tl.dot(p.T, grad, input_precision="ieee")
    dv += tl.load(dv_ptrs, mask=offs_n[:, None] < tokens)
    tl.store(dv_ptrs, dv, mask=offs_n[:, None] < tokens)


# ---- launch ----

KERNELS = {"padding": padding, "rescale": rescale, "store": store, "gradient": gradient}


def run(kernel: str, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    out = torch.zeros_like(v)  # gradient adds to it
    tokens = len(q)
    KERNELS[kernel][triton.cdiv(tokens, BLOCK_M),](q, k, v, out, tokens, SCALE, BLOCK_M, BLOCK_N, HEAD)
    return out
