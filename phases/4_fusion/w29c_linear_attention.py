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
"""

import torch
import triton
import triton.language as tl

# TODO: a kernel that computes the outputs of a head chunk by chunk, and carries its state


def linear_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, g: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    raise NotImplementedError("TODO: launch the kernel, and return the outputs and the last state")
