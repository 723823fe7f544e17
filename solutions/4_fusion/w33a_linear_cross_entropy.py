"""Linear cross-entropy: the loss of a model's last layer, whose logits are never stored.

linear_cross_entropy(h, w, labels) takes contiguous tensors that start at multiples of 16 bytes: hidden states h (rows,
hidden) and the vocabulary matrix w (vocabulary, hidden) in bfloat16, and labels (rows,) in int64. It returns two new
float32 tensors of shape (rows,), loss and lse:

    logits = h @ w.T                                    in float32, never rounded to bfloat16
    lse[r] = log(sum of exp(logits[r, :]))
    loss[r] = lse[r] - logits[r, labels[r]]             0 where labels[r] is -100

Every label is -100 or a class. vocabulary is 1 to 131072, hidden is a multiple of 16 up to 4096, and there may be any
number of rows. Each tensor has fewer than 2**31 elements; the logits may have more. The logits' magnitudes are up to
2,000.

From the forward pass, the backward pass needs only lse. The limit on bytes leaves no room for storing and loading
logits, not even part by part. Start with one program per tile of rows, which processes the whole vocabulary. The grader
checks the values, the bytes moved and held, and the use of tensor cores. On a GPU, it compares the time with PyTorch's
h @ w.T and cross_entropy.

The grader enforces these limits on the largest case; smaller cases get some slack for partial tiles. In total, global
memory accesses may move at most 6 times the size of the inputs and outputs. Any workspace may be at most 0.2 times the
size of the inputs and outputs. The multiply-adds must run on tensor cores.

Operations: 2 rows vocabulary hidden, 8.6e12 for 8192 rows, Llama 3's vocabulary of 128,256, and 4096 columns, which
takes 8.7 ms at 989 TFLOP/s. Bytes: h and w have 1.1 GB, which takes 0.25 ms at 4.5 TB/s. The kernel is compute-bound.
The logits would take 4.2 GB in float32. Writing and reading them once would take 2 ms more, and they would take four
times the memory of everything else.

A program reduces its tiles to a maximum and a sum per row, as FlashAttention's online softmax does, but it has no
values to accumulate. The vocabulary is split, since 64 tiles of rows don't fill 132 SMs, and a second kernel merges the
parts. The tile that contains the label's column stores the label's logit. The kernel hasn't been timed on a GPU yet.

Source: Wijmans and others, "Cut Your Losses in Large-Vocabulary Language Models" (2024), arXiv 2411.09009.
"""

import torch
import triton
import triton.language as tl

BLOCK_M, BLOCK_N, BLOCK_K = 64, 128, 64
IGNORED = tl.constexpr(-100)
# The minimum number of programs in a launch: two for each SM of an H200.
PROGRAMS = 264


@triton.jit(do_not_specialize=["M", "V"])
def partial_kernel(m_ptr, l_ptr, target_ptr, h_ptr, w_ptr, labels_ptr, M, V, K, tiles_per_split,
                   BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):  # fmt: skip
    """Reduce the logits of BLOCK_M rows and one part of the vocabulary to a maximum and a sum per row."""
    split = tl.program_id(1)
    row = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    label = tl.load(labels_ptr + row, mask=row < M, other=IGNORED)
    m_i = tl.full([BLOCK_M], -float("inf"), tl.float32)
    l_i = tl.zeros([BLOCK_M], tl.float32)
    for tile in tl.range(split * tiles_per_split, tl.minimum((split + 1) * tiles_per_split, tl.cdiv(V, BLOCK_N))):
        column = tile * BLOCK_N + tl.arange(0, BLOCK_N)
        logits = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
        for first in range(0, K, BLOCK_K):
            k = first + tl.arange(0, BLOCK_K)
            h = tl.load(h_ptr + row[:, None] * K + k, mask=(row < M)[:, None] & (k < K), other=0.0)
            w = tl.load(w_ptr + column[:, None] * K + k, mask=(column < V)[:, None] & (k < K), other=0.0)
            logits = tl.dot(h, w.T, logits)
        # One tile has the label.
        is_label = label[:, None] == column
        target = tl.sum(tl.where(is_label, logits, 0.0), axis=1)
        tl.store(target_ptr + row, target, mask=tl.max(is_label.to(tl.int32), axis=1) > 0)
        # The logits of classes past the end are 0, and would add exp(0).
        logits = tl.where(column < V, logits, -float("inf"))
        m_new = tl.maximum(m_i, tl.max(logits, axis=1))  # finite, because each tile has a class
        l_i = l_i * tl.exp(m_i - m_new) + tl.sum(tl.exp(logits - m_new[:, None]), axis=1)
        m_i = m_new
    tl.store(m_ptr + split * M + row, m_i, mask=row < M)
    tl.store(l_ptr + split * M + row, l_i, mask=row < M)


@triton.jit(do_not_specialize=["M", "splits"])
def merge_kernel(loss_ptr, lse_ptr, m_ptr, l_ptr, target_ptr, labels_ptr, M, splits, BLOCK: tl.constexpr):
    """Merge the parts of BLOCK rows in their order."""
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m_i = tl.full([BLOCK], -float("inf"), tl.float32)
    for split in range(splits):
        m_i = tl.maximum(m_i, tl.load(m_ptr + split * M + row, mask=row < M, other=0.0))
    l_i = tl.zeros([BLOCK], tl.float32)
    for split in range(splits):
        m = tl.load(m_ptr + split * M + row, mask=row < M, other=0.0)
        l_i += tl.exp(m - m_i) * tl.load(l_ptr + split * M + row, mask=row < M, other=1.0)
    lse = m_i + tl.log(l_i)
    counts = tl.load(labels_ptr + row, mask=row < M, other=IGNORED) != IGNORED
    target = tl.load(target_ptr + row, mask=(row < M) & counts, other=0.0)  # no program stored that of an ignored row
    tl.store(lse_ptr + row, lse, mask=row < M)
    tl.store(loss_ptr + row, tl.where(counts, lse - target, 0.0), mask=row < M)


def linear_cross_entropy(h: torch.Tensor, w: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    (rows, hidden), vocabulary = h.shape, len(w)
    tiles, row_tiles = triton.cdiv(vocabulary, BLOCK_N), triton.cdiv(rows, BLOCK_M)
    tiles_per_split = triton.cdiv(tiles, triton.cdiv(PROGRAMS, row_tiles))
    splits = triton.cdiv(tiles, tiles_per_split)
    maxima, sums = torch.empty(2, splits, rows, dtype=torch.float32, device=h.device)
    target, loss, lse = (torch.empty(rows, dtype=torch.float32, device=h.device) for _ in range(3))
    partial_kernel[row_tiles, splits](
        maxima, sums, target, h, w, labels, rows, vocabulary, hidden, tiles_per_split, BLOCK_M, BLOCK_N, BLOCK_K,
        num_warps=8,
    )  # fmt: skip
    merge_kernel[triton.cdiv(rows, 128),](loss, lse, maxima, sums, target, labels, rows, splits, 128)
    return loss, lse
