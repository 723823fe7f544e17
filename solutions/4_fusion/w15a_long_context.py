"""Attention of packed sequences of up to 256k tokens each, without padding or a score matrix in memory.

long_context(q, k, v, cu_seqlens) takes contiguous bfloat16 tensors that start at a multiple of 16 bytes: q of shape
(total, heads, head), k and v of shape (total, kv_heads, head), where head is 32, 64, 128 or 256 and heads is a multiple
of kv_heads: query head h reads key head h // (heads // kv_heads). total is the number of tokens in all sequences, which
are stored one after another: sequence i is rows cu_seqlens[i] to cu_seqlens[i + 1] - 1. cu_seqlens, int32, starts with
0 and ends with total, from 1 to 2^31 - 1; a sequence may be empty. The function returns a new tensor with the shape and
dtype of q: softmax(q @ k^T / sqrt(head)) @ v for each head and sequence, where a token sees itself and the earlier
tokens of its sequence, but no token of another sequence. Values are finite, and scores are between -1000 and 1000.
Tensors may have more than 2**32 elements, so offsets need 64 bits. On GPUs older than sm_80, which lack bfloat16, q, k
and v are float16.

cu_seqlens is on the device. If the host reads it, the host waits for all work that is queued on the GPU, and a CUDA
graph can't contain such a call. So the launch may depend only on shapes. The total and the number of sequences limit
the number of tiles, and each program can find out which tile it has to compute. Start with the causal flash attention
of w12a, and let each program compute one tile of a sequence. The grader checks the values, the bytes moved, and the
memory that is allocated in addition to inputs and output. On a GPU, it compares the time with the formula written as
PyTorch operators, which process one group of equally long sequences at a time.

The grader enforces these limits on the largest case; smaller cases get some slack for partial tiles. Each load or store
may touch at most 2 times the sectors that its bytes require. In total, global memory accesses may move at most 4 times
the size of the inputs and outputs. Any workspace may be at most 0.1 times the size of the inputs and outputs. The
multiply-adds must run on tensor cores.

Bytes: q, k, v and out once, 0.5 GB for 32768 tokens with 16 heads of 128, 0.13 ms on an H200. Operations: 4 per score
and column, and a sequence of n tokens has n (n + 1) / 2 scores per head. With more than a few hundred tokens, the
kernel is compute-bound.

Each tile finds its sequence by bisection; vLLM's kernels number their tiles in the same way. A sequence's tiles run
from its end, because the last tiles have the most keys; the opposite order takes 1 to 8% longer. A third stage saves
20 to 25%. Values after the end of a sequence are multiplied by weights of 0. Masking them would cost 2 to 5%.

Measured on an H200, causal, 16 heads of 128: the kernel's rate divided by cuDNN's where all lengths are equal, and by
the rate of PyTorch 2.11's Flash-Attention 2 for packed sequences:

    16 x 1024 0.84, 1.7    4 x 4096 0.88, 1.7    16384 0.87, 1.7    32768 0.89, 1.8    500 x 64 0.96, 1.07
    4 x 4096 with heads of 32 1.27, 1.6, of 64 1.09, 1.8, of 256 0.91, 1.9    16384 + 8192 + 4096 + 2048 + 2 x 1024 1.65
"""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

LOG2_E = 1.4426950408889634

# Queries, keys, warps and stages by the size of a head.
TILES = {32: (64, 64, 4, 3), 64: (64, 64, 4, 3), 128: (64, 64, 4, 3), 256: (64, 32, 4, 3)}

# The numbers before sm_80, where Triton multiplies without tensor cores and a block has 64 KiB of shared memory.
BEFORE_AMPERE = 32, 32, 4, 1


@triton.jit
def sequence_of(tile, cu_seqlens, sequences, QUERIES: tl.constexpr):
    """Return the sequence of a tile. The first tile of sequence i is cu_seqlens[i] // QUERIES + i.

    A bisection finds the last sequence whose first tile is not after this tile.
    """
    low, high = 0, sequences
    while high - low > 1:
        middle = (low + high) // 2
        before = tl.load(cu_seqlens + middle) // QUERIES + middle <= tile
        low, high = tl.where(before, middle, low), tl.where(before, high, middle)
    return low


@triton.jit
def attend(query, out, total, top, k, v, kv_head, origin, first, last, row, length, scale,
           KEYS: tl.constexpr, HEAD: tl.constexpr, MASKED: tl.constexpr):  # fmt: skip
    """Add the keys from first to last of a sequence to a tile's sums. MASKED: not every query sees every key."""
    for start in tl.range(first, last, KEYS):
        scores = tl.dot(query, k.load([origin + start, kv_head, 0]).reshape(KEYS, HEAD).T)
        values = v.load([origin + start, kv_head, 0]).reshape(KEYS, HEAD)
        if MASKED:
            key = start + tl.arange(0, KEYS)
            scores = tl.where(key[None, :] <= row[:, None], scores, -float("inf"))
        larger = tl.maximum(top, tl.max(scores, axis=1) * scale)
        share = tl.exp2(scores * scale - larger[:, None])
        shrink = tl.exp2(top - larger)
        total = total * shrink + tl.sum(share, axis=1)
        out = tl.dot(share.to(query.dtype), values, out * shrink[:, None])
        top = larger
    return out, total, top


@triton.jit(do_not_specialize=["sequences", "heads", "group"])
def packed_attention(out_ptr, q, k, v, cu_seqlens, sequences, heads, group, scale,
                     QUERIES: tl.constexpr, KEYS: tl.constexpr, HEAD: tl.constexpr):  # fmt: skip
    """Compute QUERIES queries of one head per program. All heads of a tile come before the next tile."""
    head, tile = tl.program_id(0) % heads, tl.program_id(0) // heads
    sequence = sequence_of(tile, cu_seqlens, sequences, QUERIES)
    origin = tl.load(cu_seqlens + sequence)
    length = tl.load(cu_seqlens + sequence + 1) - origin
    # the longest tiles first
    begin = (tl.cdiv(length, QUERIES) - 1 - (tile - origin // QUERIES - sequence)) * QUERIES
    if begin < 0:
        return
    row = begin + tl.arange(0, QUERIES)
    query = q.load([origin + begin, head, 0]).reshape(QUERIES, HEAD)
    out = tl.zeros([QUERIES, HEAD], tl.float32)
    total = tl.zeros([QUERIES], tl.float32)
    top = tl.full([QUERIES], -float("inf"), tl.float32)
    kv_head = head // group
    whole = begin // KEYS * KEYS  # every query sees every key before this one
    out, total, top = attend(
        query, out, total, top, k, v, kv_head, origin, 0, whole, row, length, scale, KEYS, HEAD, False
    )
    last = tl.minimum(begin + QUERIES, length)
    out, total, top = attend(
        query, out, total, top, k, v, kv_head, origin, whole, last, row, length, scale, KEYS, HEAD, True
    )
    out *= (1 / total)[:, None]
    inside = row < length
    place = (origin + row).to(tl.int64)
    at = (place * heads + head)[:, None] * HEAD + tl.arange(0, HEAD)[None, :]
    tl.store(out_ptr + at, out.to(query.dtype), mask=inside[:, None])


def long_context(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, cu_seqlens: torch.Tensor) -> torch.Tensor:
    tokens, heads, head = q.shape
    sequences = len(cu_seqlens) - 1
    out = torch.empty_like(q)
    ampere = torch.cuda.get_device_capability() >= (8, 0)
    queries, keys, warps, stages = TILES[head] if ampere else BEFORE_AMPERE
    tiles = tokens // queries + sequences  # some more than there are, as lengths stay on the device
    inputs = rows(q, queries), rows(k, keys), rows(v, keys)
    sizes = sequences, heads, heads // k.shape[1], head**-0.5 * LOG2_E
    packed_attention[tiles * heads,](
        out, *inputs, cu_seqlens, *sizes, queries, keys, head, num_warps=warps, num_stages=stages
    )
    return out


def rows(x: torch.Tensor, count: int) -> TensorDescriptor:
    """Describe x (tokens, heads, head) in tiles of `count` tokens of a head. Rows past the last token read as 0."""
    return TensorDescriptor.from_tensor(x, [count, 1, x.shape[2]])
