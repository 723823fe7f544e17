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

The grader enforces these limits on the largest case; smaller cases get some slack for partial tiles. Each load or store
may touch at most 2 times the sectors that its bytes require. In total, global memory accesses may move at most 5 times
the size of the inputs and outputs. Any workspace may be at most 0.1 times the size of the inputs and outputs. The
multiply-adds must run on tensor cores.

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
def attend(query, out, total, top, k, v, kv_head, first, last, row, tokens, scale,
           KEYS: tl.constexpr, HEAD: tl.constexpr, CAUSAL: tl.constexpr, MASKED: tl.constexpr):  # fmt: skip
    """Add the keys from first to last to the sums of a block of queries. MASKED: not every query sees every key."""
    for start in tl.range(first, last, KEYS):
        scores = tl.dot(query, k.load([kv_head, start, 0]).reshape(KEYS, HEAD).T)
        if MASKED:
            key = start + tl.arange(0, KEYS)[None, :]
            scores = tl.where(key <= row[:, None] if CAUSAL else key < tokens, scores, -float("inf"))
        larger = tl.maximum(top, tl.max(scores, axis=1) * scale)
        share = tl.exp2(scores * scale - larger[:, None])
        shrink = tl.exp2(top - larger)
        total = total * shrink + tl.sum(share, axis=1)
        out = out * shrink[:, None]
        out = tl.dot(share.to(query.dtype), v.load([kv_head, start, 0]).reshape(KEYS, HEAD), out)
        top = larger
    return out, total, top


@triton.jit(do_not_specialize=["tokens", "group"])
def flash_attention_forward(out_ptr, lse_ptr, q, k, v, tokens, group, scale, QUERIES: tl.constexpr,
                            KEYS: tl.constexpr, HEAD: tl.constexpr, CAUSAL: tl.constexpr):  # fmt: skip
    """Compute the attention of QUERIES queries of a head per program."""
    blocks = tl.cdiv(tokens, QUERIES)
    head, block = tl.program_id(0) // blocks, tl.program_id(0) % blocks
    if CAUSAL:  # the longest first, of some heads at a time, whose keys stay in L2
        first = head // HEADS_AT_A_TIME * HEADS_AT_A_TIME
        width = tl.minimum(HEADS_AT_A_TIME, tl.num_programs(0) // blocks - first)
        turn = tl.program_id(0) - first * blocks
        head, block = first + turn % width, blocks - 1 - turn // width
    begin = block * QUERIES
    row = begin + tl.arange(0, QUERIES)
    last = tl.minimum(begin + QUERIES, tokens) if CAUSAL else tokens
    whole = (begin if CAUSAL else tokens) // KEYS * KEYS  # every query sees every key before this one
    query = q.load([head, begin, 0]).reshape(QUERIES, HEAD)
    out = tl.zeros([QUERIES, HEAD], tl.float32)
    total = tl.zeros([QUERIES], tl.float32)
    top = tl.full([QUERIES], -float("inf"), tl.float32)
    kv_head = head // group
    out, total, top = attend(query, out, total, top, k, v, kv_head, 0, whole, row, tokens, scale,
                             KEYS, HEAD, CAUSAL, False)  # fmt: skip
    out, total, top = attend(query, out, total, top, k, v, kv_head, whole, last, row, tokens, scale,
                             KEYS, HEAD, CAUSAL, True)  # fmt: skip
    out *= (1 / total)[:, None]
    out_ptr.store([head, begin, 0], out.to(query.dtype).reshape(1, QUERIES, HEAD))
    tl.store(lse_ptr + head.to(tl.int64) * tokens + row, (top + tl.log2(total)) * LN_2, mask=row < tokens)


def flash_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    out, lse = torch.empty_like(q), q.new_empty(q.shape[:-1], dtype=torch.float32)
    batch, heads, tokens, head = q.shape
    ampere = torch.cuda.get_device_capability() >= (8, 0)
    queries, keys, warps, stages = (TILES if ampere else BEFORE_AMPERE)[head]
    inputs = tiles(q, queries), tiles(k, keys), tiles(v, keys)
    sizes = tokens, heads // k.shape[1], head**-0.5 * LOG2_E
    flash_attention_forward[batch * heads * triton.cdiv(tokens, queries),](
        tiles(out, queries), lse, *inputs, *sizes, queries, keys, head, causal, num_warps=warps, num_stages=stages
    )
    return out, lse


def tiles(x: torch.Tensor, rows: int) -> TensorDescriptor:
    """Describe (batch, heads, tokens, head) in tiles of one head. Rows past the end read as 0; stores skip them."""
    return TensorDescriptor.from_tensor(x.flatten(0, 1), [1, rows, x.shape[3]])
