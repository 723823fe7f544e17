"""One query against a long context: the attention of a decode step, divided among all SMs.

split_kv(q, k, v, sink) takes contiguous tensors that start at a multiple of 16 bytes, all bfloat16 except sink: q of
shape (batch, heads, head), one query for each sequence; k and v of shape (batch, kv_heads, tokens, head); and sink,
float32 of shape (heads,). head is 64 or 128, and heads is a multiple of kv_heads: query head h reads key head h //
(heads // kv_heads). sink is an additional score for each query head, without a key and with a value of 0. The function
returns a new tensor of the shape and dtype of q:

    out = sum(exp(score) * v) / (exp(sink) + sum(exp(score))),  with score = q @ k / sqrt(head)

Scores and sinks are at most 1000 and at least -1000. There may be any number of tokens, heads, and sequences. The same
inputs always give the same bits. k may have more than 2**32 elements: offsets need 64 bits.

Almost all bytes are in k and v. Read them once, with enough programs for the 132 SMs of an H200. In the largest case,
with one key head and 8,500 tokens, no program may read more than 1/132 of k or of v. The grader checks the values, that
the bits are the same for every block order, the shares of k and v that a program reads, and the bytes that are moved
and allocated. On a GPU, it compares the time with the formula written as PyTorch operators.

The grader enforces these limits on the largest case (batch=1 heads=8 kv_heads=1 tokens=8500 head=64 dtype=bfloat16);
smaller cases get some slack for partial tiles. In total, global memory accesses may move at most 2 times the size of
the inputs and outputs. Any workspace may be at most 0.5 times the size of the inputs and outputs.
"""

import torch
import triton
import triton.language as tl

# TODO: a kernel that attends to a part of the context with the query heads of one key head
# TODO: a kernel that combines the parts of a query head with its sink, unless the last program to finish does so


def split_kv(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, sink: torch.Tensor) -> torch.Tensor:
    # TODO: choose the size of a part, so that there are enough programs for any batch and any number of key heads
    raise NotImplementedError("TODO: attend to the parts, combine them, and return the output")
