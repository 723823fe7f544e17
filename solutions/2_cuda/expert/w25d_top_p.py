"""Top-p: the launch.

top_p(logits, temperature, top_k, p, uniform) takes contiguous tensors that start at a multiple of 16 bytes: logits
(rows, vocabulary) in float32, and for each row, temperature, p, and uniform in float32 and top_k in int32. It returns
three new tensors of shape (rows,): token and size as int32, and kept as float32.

A row has the probabilities softmax(logits / temperature). A token is in the nucleus if

    fewer than top_k tokens of the row have a greater logit, and
    the probabilities of these tokens sum to less than p.

So tokens with equal logits are either all in the nucleus or all outside it; -0.0 equals 0.0. size is the number of
tokens in the nucleus, and kept is the sum of their probabilities. token is the first token, in the order of the
vocabulary, at which the running sum over the nucleus exceeds uniform * kept.

vocabulary is 1 to 131072, temperature is 0.5 to 1.5, top_k is 1 to vocabulary, 0 < p < 1, and 0 <= uniform < 1. Logits
are at most 20,000 in magnitude, or -inf for a masked token, and each row has a finite logit. No sum is closer than 3e-5
to the number that it is compared with, except for sums of 0 where uniform is 0, so float32 sums suffice. But the same
inputs must give the same bits in every run. The tensors have fewer than 2**31 elements.

Write the kernel in w25d_top_p.cu, then launch it here, with a block for each row. A row may be larger than shared
memory. The grader checks the values, the bytes moved, and that the bits are the same in all orders of warps and blocks.
On a GPU, it compares the time with PyTorch's softmax, sort, and cumsum. The limit on bytes allows a few reads of the
row, but no sort of all tokens and no search that reads the row once per bit.

The grader enforces this limit on the largest case (rows=4 vocabulary=20000); smaller cases get some slack for partial
tiles. In total, global memory accesses may move at most 8 times the size of the inputs and outputs.

Bytes: 4 for each logit, which makes 525 MB for 1024 rows of 128,256, or 0.12 ms at 4.5 TB/s. A row is read three times:
for its maximum, for the first digit, and for the candidates. All further passes read only the candidates, usually a few
hundred. With several rows per SM, the rows on all 132 SMs are larger than the L2 cache, so three reads take 0.35 ms.

In a graded run on an H200, this kernel took 0.55 ms for these rows, and PyTorch 14.8 ms. A previous version, with four
digits of the key's bits, 64-bit atomics for all tokens of the first, and a search by thread 0, took 19.9 ms. In one
session, a variant of this kernel in which only the first warp searches took:
- with the distance from the largest logit as the first digit, and a list of candidates: 0.80 ms
- with the tail of the row in registers instead of atomics, too: 0.46 ms; with 64-bit atomics: 0.47 ms
No measurement explains yet why this kernel takes longer than the variant.

Source: Alabi and others, "Fast K-Selection Algorithms for Graphics Processing Units" (2012), for radix select.
FlashInfer samples by rejection instead, which takes a new random number for each round.
"""

import torch

from kernelpath.lanes import cuda

THREADS = 512


def top_p(
    logits: torch.Tensor, temperature: torch.Tensor, top_k: torch.Tensor, p: torch.Tensor, uniform: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    rows, vocabulary = logits.shape
    token, size = (torch.empty(rows, dtype=torch.int32, device=logits.device) for _ in range(2))
    kept = torch.empty(rows, dtype=torch.float32, device=logits.device)
    kernel = cuda.kernel("w25d_top_p.cu", "top_p")
    kernel[rows, THREADS](logits, temperature, top_k, p, uniform, token, size, kept, vocabulary)
    return token, size, kept
