"""Attention of a layer in one kernel, without a score matrix in memory.

flash_attention(q, k, v, causal) takes contiguous bfloat16 tensors that start at a multiple of 16 bytes: q of shape
(batch, heads, tokens, head), and k and v of shape (batch, kv_heads, tokens, head). head is 64, 128, or 256, and heads
is a multiple of kv_heads; query head h reads key head h // (heads // kv_heads). If causal is True, query i sees the
keys 0 to i, and otherwise all keys. It returns two new tensors. out has the shape and dtype of q and contains softmax(q
@ k^T / sqrt(head)) @ v for each head. lse is float32 of shape (batch, heads, tokens) and contains the natural logarithm
of each row's sum of exp(scores), which the backward pass in the next exercise needs. Scores may be as large as 1000 and
as low as -1000. The number of tokens, heads, and batches is arbitrary. Tensors may have more than 2**32 elements, so
offsets need 64 bits. On GPUs older than sm_80, which lack bfloat16, q, k, and v are float16.

Start with one program per block of queries, a loop over blocks of keys, and a mask on every block. Then skip the blocks
that the causal mask hides, and mask only the blocks that need it. The grader checks the values, the bytes moved, and
the memory allocated in addition to inputs and outputs, which must not grow with tokens**2. On a GPU, it compares the
time with the formula written as PyTorch operators.

The grader enforces these limits on the largest case (batch=1 heads=4 kv_heads=2 tokens=320 head=64 causal=False
dtype=bfloat16); smaller cases get some slack for partial tiles. Each load or store may touch at most 2 times the
sectors that its bytes require. In total, global memory accesses may move at most 5 times the size of the inputs and
outputs. Any workspace may be at most 0.1 times the size of the inputs and outputs. The multiply-adds must run on tensor
cores.

Bytes: q, k, v, and out once, 268 MB for 4 x 16 x 4096 x 128, 0.07 ms on an H200. Every write or read of the scores
would move another 2.1 GB. Operations: 4 per score and column, 0.275e12 if causal, 0.4 ms at the 690e12 per second that
the largest GEMMs reach there. So the kernel is compute-bound, if the softmax between the two GEMMs does not keep the
tensor cores waiting.
"""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

LOG2_E = 1.4426950408889634
LN_2 = tl.constexpr(0.6931471805599453)

HEADS_AT_A_TIME = tl.constexpr(16)

# Queries, keys, warps and stages by the size of a head.
TILES = {64: (64, 128, 4, 2), 128: (128, 64, 4, 2), 256: (128, 64, 8, 2)}

# The same before sm_80, where Triton multiplies without tensor cores and a block has 64 KiB of shared memory.
BEFORE_AMPERE = {64: (64, 32, 4, 1), 128: (64, 32, 4, 1), 256: (32, 32, 4, 1)}


@triton.jit
def attend(q, acc, l_i, m_i, desc_k, desc_v, kv_head, lo, hi, offs_m, tokens, scale,
           BLOCK_N: tl.constexpr, HEAD_DIM: tl.constexpr, CAUSAL: tl.constexpr, MASKED: tl.constexpr):  # fmt: skip
    """Add the keys from lo to hi to acc and l_i of a block of queries. MASKED: not every query sees every key."""
    for start_n in tl.range(lo, hi, BLOCK_N):
        qk = tl.dot(q, desc_k.load([kv_head, start_n, 0]).reshape(BLOCK_N, HEAD_DIM).T)
        if MASKED:
            offs_n = start_n + tl.arange(0, BLOCK_N)[None, :]
            qk = tl.where(offs_n <= offs_m[:, None] if CAUSAL else offs_n < tokens, qk, -float("inf"))
        m_new = tl.maximum(m_i, tl.max(qk, axis=1) * scale)
        p = tl.exp2(qk * scale - m_new[:, None])
        alpha = tl.exp2(m_i - m_new)
        l_i = l_i * alpha + tl.sum(p, axis=1)
        acc = acc * alpha[:, None]
        acc = tl.dot(p.to(q.dtype), desc_v.load([kv_head, start_n, 0]).reshape(BLOCK_N, HEAD_DIM), acc)
        m_i = m_new
    return acc, l_i, m_i


@triton.jit(do_not_specialize=["tokens", "group"])
def flash_attention_forward(desc_o, lse_ptr, desc_q, desc_k, desc_v, tokens, group, scale, BLOCK_M: tl.constexpr,
                            BLOCK_N: tl.constexpr, HEAD_DIM: tl.constexpr, CAUSAL: tl.constexpr):  # fmt: skip
    """Compute the attention of BLOCK_M queries of a head per program."""
    blocks = tl.cdiv(tokens, BLOCK_M)
    head, block = tl.program_id(0) // blocks, tl.program_id(0) % blocks
    if CAUSAL:  # longest blocks first, a few heads at a time, so that their keys stay in L2
        first = head // HEADS_AT_A_TIME * HEADS_AT_A_TIME
        width = tl.minimum(HEADS_AT_A_TIME, tl.num_programs(0) // blocks - first)
        turn = tl.program_id(0) - first * blocks
        head, block = first + turn % width, blocks - 1 - turn // width
    start_m = block * BLOCK_M
    offs_m = start_m + tl.arange(0, BLOCK_M)
    hi = tl.minimum(start_m + BLOCK_M, tokens) if CAUSAL else tokens
    whole = (start_m if CAUSAL else tokens) // BLOCK_N * BLOCK_N  # every query sees every key before this one
    q = desc_q.load([head, start_m, 0]).reshape(BLOCK_M, HEAD_DIM)
    acc = tl.zeros([BLOCK_M, HEAD_DIM], tl.float32)
    l_i = tl.zeros([BLOCK_M], tl.float32)
    m_i = tl.full([BLOCK_M], -float("inf"), tl.float32)
    kv_head = head // group
    acc, l_i, m_i = attend(q, acc, l_i, m_i, desc_k, desc_v, kv_head, 0, whole, offs_m, tokens, scale,
                           BLOCK_N, HEAD_DIM, CAUSAL, False)  # fmt: skip
    acc, l_i, m_i = attend(q, acc, l_i, m_i, desc_k, desc_v, kv_head, whole, hi, offs_m, tokens, scale,
                           BLOCK_N, HEAD_DIM, CAUSAL, True)  # fmt: skip
    acc *= (1 / l_i)[:, None]
    desc_o.store([head, start_m, 0], acc.to(q.dtype).reshape(1, BLOCK_M, HEAD_DIM))
    tl.store(lse_ptr + head.to(tl.int64) * tokens + offs_m, (m_i + tl.log2(l_i)) * LN_2, mask=offs_m < tokens)


def flash_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    out, lse = torch.empty_like(q), q.new_empty(q.shape[:-1], dtype=torch.float32)
    batch, heads, tokens, head = q.shape
    ampere = torch.cuda.get_device_capability() >= (8, 0)
    block_m, block_n, warps, stages = (TILES if ampere else BEFORE_AMPERE)[head]
    inputs = tiles(q, block_m), tiles(k, block_n), tiles(v, block_n)
    sizes = tokens, heads // k.shape[1], head**-0.5 * LOG2_E
    flash_attention_forward[batch * heads * triton.cdiv(tokens, block_m),](
        tiles(out, block_m), lse, *inputs, *sizes, block_m, block_n, head, causal, num_warps=warps, num_stages=stages
    )
    return out, lse


def tiles(x: torch.Tensor, rows: int) -> TensorDescriptor:
    """Describe (batch, heads, tokens, head) in tiles of one head. Rows past the end read as 0; stores skip them."""
    return TensorDescriptor.from_tensor(x.flatten(0, 1), [1, rows, x.shape[3]])
