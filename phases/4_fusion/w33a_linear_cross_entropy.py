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
checks the values, the bytes moved, the memory allocated, and the use of tensor cores. On a GPU, it compares the time
with PyTorch's h @ w.T and cross_entropy.

The grader enforces these limits on the largest case (rows=128 vocabulary=4000 hidden=64); smaller cases get some slack
for partial tiles. In total, global memory accesses may move at most 6 times the size of the inputs and outputs. Any
workspace may be at most 0.2 times the size of the inputs and outputs. The multiply-adds must run on tensor cores.
"""

import torch
import triton
import triton.language as tl

IGNORED = tl.constexpr(-100)


# TODO: write a kernel that keeps only the values from each tile of logits that the two outputs need


def linear_cross_entropy(h: torch.Tensor, w: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    (rows, hidden), vocabulary = h.shape, len(w)
    # TODO: launch enough programs to fill the GPU, even if there are few tiles of rows
    raise NotImplementedError("launch your kernels, then return loss and lse")
