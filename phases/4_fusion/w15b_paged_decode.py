"""Attention of one decode step: one new token per sequence and a paged KV cache.

paged_decode(q, k_pages, v_pages, block_table, lengths) takes contiguous bfloat16 tensors that start at a multiple of 16
bytes: q of shape (batch, heads, head); k_pages and v_pages of shape (pages, page, kv_heads, head). head is 32, 64, 128
or 256, page is a power of two from 1 to 256, and heads is a multiple of kv_heads: query head h reads key head h //
(heads // kv_heads). block_table, int32 of shape (batch, most), and lengths, int32 of shape (batch,), say where a
sequence's tokens are: token t of sequence i is row t % page of page block_table[i, t // page]. Every length is at least
1. The function returns a new tensor with the shape and dtype of q: softmax(q @ k^T / sqrt(head)) @ v over the tokens of
each sequence. Scores are between -1000 and 1000. k_pages may have more than 2**32 elements, so offsets need 64 bits. On
GPUs older than sm_80, which lack bfloat16, q, k_pages and v_pages are float16.

Data that doesn't belong to any token is garbage. Entries of block_table after a sequence's last page may hold any
number. Rows that follow the last token in its page may contain NaN, and so may pages that no sequence owns. One
sequence may have a single token and the next one 100,000, but the host doesn't know which, because lengths is on the
device. Start with one program per sequence and key head, which processes all query heads of this key head. Then split
the sequences, because a single long sequence has to fill the whole GPU. The grader checks the values, the bytes moved,
and the memory that is allocated in addition to inputs and output. On a GPU, it compares the time with PyTorch's
operators, which gather each sequence's pages and evaluate the formula.

The grader enforces these limits on the largest case (lengths=3x7+2500 page=16 heads=12 kv_heads=3 head=64
dtype=bfloat16); smaller cases get some slack for partial tiles. Each load or store may touch at most 2 times the
sectors that its bytes require. In total, global memory accesses may move at most 1.5 times the size of the inputs and
outputs. Any workspace may be at most 0.85 times the size of the inputs and outputs.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def attend(query, k_pages, v_pages, block_table, first, last, kv_head, kv_heads, shift, scale,
           GROUP: tl.constexpr, HEAD_DIM: tl.constexpr, TOKENS: tl.constexpr):  # fmt: skip
    """Return the weighted sum of the values of tokens `first` to `last`, the sum of weights, and the top score."""
    # TODO: look up the page of each token, load its key and value, keep the sums of an online softmax


def paged_decode(
    q: torch.Tensor, k_pages: torch.Tensor, v_pages: torch.Tensor, block_table: torch.Tensor, lengths: torch.Tensor
) -> torch.Tensor:
    raise NotImplementedError("TODO: launch a kernel that calls attend, and one that merges; then delete this line")
    out = torch.empty_like(q)
    return out
