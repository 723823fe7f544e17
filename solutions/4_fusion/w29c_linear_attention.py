"""Linear attention with a decay: instead of a KV cache or a score matrix, a state is carried from chunk to chunk.

linear_attention(q, k, v, g) takes contiguous tensors that start at a multiple of 16 bytes: q, k, and v in bfloat16, of
shape (batch, heads, tokens, head), where head is 64 or 128; and g, float32 of shape (batch, heads, tokens), which is at
most 0. Each head has a state S, a matrix of head x head that starts at 0, and for each token

    S = exp(g) * S + outer(k, v)        out = S^T q

It returns two new tensors: out, of the shape and dtype of q, and the state after the last token, float32 of shape
(batch, heads, head, head), with a row for each column of k. g may be 0, and it may be as low as -100. There may be any
number of tokens, heads, and batches. Tensors may have more than 2**32 elements: offsets need 64 bits.

The recurrence has no GEMM, and the formula with all pairs has tokens**2 scores. Divide the tokens into chunks, compute
the pairs within each chunk, and carry the state from chunk to chunk. These GEMMs must run on tensor cores. The grader
checks the values, the use of tensor cores, the exponentials (all pairs of the largest case take 8 for each element),
the bytes that are moved, and the memory that is allocated in addition to inputs and outputs. On a GPU, it compares the
time with chunks written as PyTorch operators.

The grader enforces these limits on the largest case (batch=1 heads=3 tokens=1000 head=64 dtype=bfloat16); smaller cases
get some slack for partial tiles. In total, global memory accesses may move at most 4 times the size of the inputs and
outputs. The kernel may evaluate at most 5 special functions (such as exponentials) per output element. Any workspace
may be at most 1 times the size of the inputs and outputs.

Bytes: q, k, v, and out have 4 head elements for each token and head, and g has a float32. Moving them once takes 1.1 GB
for 4 x 32 heads of 128 with 8,192 tokens, or 0.24 ms at the 4.5 TB/s at which an H200 reads. Operations: for each token
and column, 4 head with the state and 4 CHUNK within the chunk, so 0.1e12 in all, or 0.13 ms at 790e12 per second.
Neither bounds the kernel, which took 0.51 ms on an H200: the steps of a chunk wait for one another, and only two
programs for each SM fill the gaps.

A program computes one head and BLOCK_V columns of v and of the state, so q and k are read head / BLOCK_V times. Each
factor is the exponential of a difference that is at most 0, as in Mamba-2 (https://arxiv.org/abs/2405.21060). Slower on
an H200: chunks of 32 (0.56 ms) or of 128 tokens (0.71 ms), 32 (0.70 ms) or 128 columns (0.68 ms), three stages (0.80
ms), and weighted keys instead of weighted values (0.67 ms).

With 16 heads of 65,536 tokens, this kernel has 32 programs and took 3.2 ms. Another version divides the tokens into 16
segments: a first launch computes the state that each segment adds, and a second one starts each segment with the
combined state of the earlier ones. It reads k and v twice, and took 0.68 ms.
"""

import torch
import triton
import triton.language as tl

# Tokens per chunk, and columns of v per program.
CHUNK, BLOCK_V = 64, 64


@triton.jit(do_not_specialize=["tokens"])
def linear_attention_kernel(out_ptr, state_ptr, q_ptr, k_ptr, v_ptr, g_ptr, tokens,
                            CHUNK: tl.constexpr, HEAD: tl.constexpr, BLOCK_V: tl.constexpr):  # fmt: skip
    """Compute BLOCK_V columns of a head, chunk after chunk."""
    head = (tl.program_id(0) // (HEAD // BLOCK_V)).to(tl.int64)
    offs_d = tl.arange(0, HEAD)
    offs_v = tl.program_id(0) % (HEAD // BLOCK_V) * BLOCK_V + tl.arange(0, BLOCK_V)
    offs_c = tl.arange(0, CHUNK)
    state = tl.zeros([HEAD, BLOCK_V], tl.float32)
    for start in tl.range(0, tokens, CHUNK):
        token = start + offs_c
        mask = token < tokens  # keys and values past the end are 0, and their decay is 1
        row = (head * tokens + token)[:, None] * HEAD
        q = tl.load(q_ptr + row + offs_d[None, :], mask=mask[:, None], other=0.0)
        k = tl.load(k_ptr + row + offs_d[None, :], mask=mask[:, None], other=0.0)
        v = tl.load(v_ptr + row + offs_v[None, :], mask=mask[:, None], other=0.0)
        g = tl.load(g_ptr + head * tokens + token, mask=mask, other=0.0)
        decay = tl.cumsum(g, axis=0)  # from the beginning of the chunk to each token, as a logarithm
        g_last = tl.sum(g, axis=0)
        # The mask comes before the exponential, which could overflow above the diagonal.
        pairs = tl.where(offs_c[:, None] >= offs_c[None, :], decay[:, None] - decay[None, :], -float("inf"))
        qk = tl.dot(q, k.T) * tl.exp(pairs)
        o = tl.exp(decay)[:, None] * tl.dot(q, state.to(q.dtype))
        o = tl.dot(qk.to(q.dtype), v, o)
        tl.store(out_ptr + row + offs_v[None, :], o.to(q.dtype), mask=mask[:, None])
        # Weighted values instead of weighted keys: k remains in shared memory, where both of its products read it.
        v_decayed = (v * tl.exp(g_last - decay)[:, None]).to(v.dtype)
        state = tl.dot(k.T, v_decayed, state * tl.exp(g_last))
    tl.store(state_ptr + (head * HEAD + offs_d)[:, None] * HEAD + offs_v[None, :], state)


def linear_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, g: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    batch, heads, tokens, head = q.shape
    out = torch.empty_like(q)
    state = q.new_empty((batch, heads, head, head), dtype=torch.float32)
    linear_attention_kernel[batch * heads * (head // BLOCK_V),](
        out, state, q, k, v, g, tokens, CHUNK, head, BLOCK_V, num_warps=4, num_stages=2
    )
    return out, state
