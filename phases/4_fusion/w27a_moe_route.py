"""Routing: top-k experts with their weights, and a stable sort of the rows by expert.

moe_route(logits, top_k) takes a contiguous float32 tensor of shape (tokens, experts) and returns four new contiguous
tensors. experts is 1 to 512, and top_k is 1 to 16 and at most experts. Logits are finite values of any size. All
tensors have fewer than 2**31 elements, and do not always start at a multiple of 16 bytes.

    weights (tokens, top_k) float32     softmax of the top_k largest logits of each token, the largest first
    rows (tokens, top_k) int32          the row of each of these choices, in an order sorted by expert
    source (tokens * top_k,) int32      the token of each row
    offsets (experts + 1,) int32        expert e has the rows from offsets[e] to offsets[e + 1] - 1

Where logits are equal, the lower expert comes first; -0.0 equals 0.0. The rows of an expert are in the order of their
tokens. So for each choice j of token t, source[rows[t, j]] == t, and rows[t, j] is among the rows of its expert.

Start with three kernels: choose experts and count them in each block of tokens, scan the counts, place the rows. The
grader checks the bytes moved and that all outputs are the same for every block order. On a GPU, it compares the time
with PyTorch's softmax, topk, sort, and bincount.

The grader enforces this limit on the largest case (tokens=1500 experts=64 top_k=6 balance=even); smaller cases get some
slack for partial tiles. In total, global memory accesses may move at most 2.5 times the size of the inputs and outputs.
"""

import torch
import triton
import triton.language as tl


@triton.jit(do_not_specialize=["tokens", "top_k"])
def choose_kernel(weights_ptr, chosen_ptr, counts_ptr, totals_ptr, logits_ptr, tokens, experts, top_k,
                  COLUMNS: tl.constexpr, TOKENS: tl.constexpr, EXPERTS: tl.constexpr):  # fmt: skip
    """Find the experts of TOKENS tokens, their weights, and how many of these tokens each expert gets."""
    # TODO: top_k times, take the largest logit of each token and its expert, and remove it from the row


@triton.jit(do_not_specialize=["blocks"])
def scan_kernel(offsets_ptr, starts_ptr, counts_ptr, totals_ptr, blocks, experts,
                BLOCKS: tl.constexpr, BLOCK_E: tl.constexpr, EXPERTS: tl.constexpr):  # fmt: skip
    """For BLOCK_E experts, turn the counts of all blocks into the first row that each block assigns."""
    # TODO: scan down the columns of counts


@triton.jit(do_not_specialize=["choices", "top_k"])
def place_kernel(rows_ptr, source_ptr, chosen_ptr, starts_ptr, choices, experts, top_k, block_choices,
                 CHOICES: tl.constexpr, EXPERTS: tl.constexpr):  # fmt: skip
    """Compute the row of each choice of a block: the block's first row of the expert, plus its earlier choices."""
    # TODO: compare each choice with all choices of the block to count the earlier ones


def moe_route(logits: torch.Tensor, top_k: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    raise NotImplementedError("TODO: allocate the tables, launch the kernels, then delete this line")
    tokens, experts = logits.shape
    weights = logits.new_empty(tokens, top_k)
    rows = logits.new_empty(tokens, top_k, dtype=torch.int32)
    source = logits.new_empty(tokens * top_k, dtype=torch.int32)
    offsets = logits.new_empty(experts + 1, dtype=torch.int32)
    return weights, rows, source, offsets
