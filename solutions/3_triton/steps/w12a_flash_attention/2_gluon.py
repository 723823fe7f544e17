"""Gluon: the same loop with every layout spelled out, of registers, of shared memory, and of the tensor cores."""

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import mma_v2


@gluon.jit
def attention_kernel(
    out_ptr, q_ptr, k_ptr, v_ptr, tokens, qk_scale, BLOCK: gl.constexpr, IN_SMEM: gl.constexpr, SCORES: gl.constexpr,
    ROWS: gl.constexpr, DETOUR: gl.constexpr,
):  # fmt: skip
    LEFT: gl.constexpr = gl.DotOperandLayout(operand_index=0, parent=SCORES, k_width=2)
    RIGHT: gl.constexpr = gl.DotOperandLayout(operand_index=1, parent=SCORES, k_width=2)
    row = gl.arange(0, BLOCK, gl.SliceLayout(1, ROWS))[:, None]
    tile = row * BLOCK + gl.arange(0, BLOCK, gl.SliceLayout(0, ROWS))[None, :]
    head = gl.program_id(1).to(gl.int64) * tokens * BLOCK
    rows = head + gl.program_id(0) * BLOCK * BLOCK
    q = gl.convert_layout(gl.load(q_ptr + rows + tile), LEFT)
    smem_k = gl.allocate_shared_memory(gl.bfloat16, [BLOCK, BLOCK], IN_SMEM)
    smem_v = gl.allocate_shared_memory(gl.bfloat16, [BLOCK, BLOCK], IN_SMEM)
    m_i = gl.full([BLOCK], -float("inf"), gl.float32, gl.SliceLayout(1, SCORES))
    l_i = gl.zeros([BLOCK], gl.float32, gl.SliceLayout(1, SCORES))
    acc = gl.zeros([BLOCK, BLOCK], gl.float32, SCORES)
    for start_n in range(0, tokens, BLOCK):
        smem_k.store(gl.load(k_ptr + head + start_n * BLOCK + tile))
        smem_v.store(gl.load(v_ptr + head + start_n * BLOCK + tile))
        qk = mma_v2(q, smem_k.permute((1, 0)).load(RIGHT), gl.zeros([BLOCK, BLOCK], gl.float32, SCORES))
        m_ij = gl.maximum(m_i, gl.max(qk, axis=1) * qk_scale)
        p = gl.exp2(qk * qk_scale - m_ij[:, None])
        alpha = gl.exp2(m_i - m_ij)
        l_i = l_i * alpha + gl.sum(p, axis=1)
        p = p.to(gl.bfloat16)
        if DETOUR:
            p = gl.convert_layout(p, ROWS)
        acc = mma_v2(gl.convert_layout(p, LEFT), smem_v.load(RIGHT), acc * alpha[:, None])
        m_i = m_ij
    result = (acc / l_i[:, None]).to(gl.bfloat16)
    gl.store(out_ptr + rows + tile, gl.convert_layout(result, ROWS))


def flash_attention(q, k, v, in_smem, scores, rows, detour=False) -> torch.Tensor:
    batch, heads, tokens, head = q.shape
    out = torch.empty_like(q)
    qk_scale = 1.4426950408889634 * head**-0.5
    attention_kernel[tokens // 64, batch * heads](out, q, k, v, tokens, qk_scale, 64, in_smem, scores, rows, detour)
    return out
