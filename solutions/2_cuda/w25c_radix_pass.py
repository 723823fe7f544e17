"""Radix pass: the launch.

radix_pass(keys, first, shift) takes a contiguous int32 vector of 1 to 2**30 - 1 keys, and first with 256 int32 values,
neither of them always aligned to 16 bytes. The digit of a key is the number in its 8 bits from bit shift on, with shift
0, 8, 16, or 24; it is never negative: (unsigned(key) >> shift) & 255. first[d] is the number of keys whose digit is
less than d. It returns a new vector with the same keys in the order of their digits. Keys with equal digits keep the
order that they have in keys: the pass is stable. Four passes, with shift 0 first, sort keys as unsigned numbers.

Write the kernel in w25c_radix_pass.cu, then launch it here. The grader checks the order, the bytes that the kernel
moves, and on a GPU the time against three kernels that read the keys twice. The limit on bytes requires that a block
sorts its tile before it writes: keys that go straight to their places touch a sector each. The grader starts the blocks
in different orders, with fewer blocks at once than the largest case has tiles of 4096 keys.

Limits on the largest case, with room for edges on smaller ones: at most 2.5 times the bytes of inputs and outputs
moved.

Traffic: 4 bytes read and 4 written for each key, and for each tile of 4096 keys three times 256 status words of 4
bytes. The bound is memory, if ranks are fast enough: a warp takes about 20 instructions for each row of 32 keys.

A tile has 16 keys with each digit if digits are evenly spread. After the sort in shared memory they leave side by side,
64 bytes that begin anywhere and touch 2.9 sectors instead of 2.

Source: Adinets, Merrill, "Onesweep: A Faster Least Significant Digit Radix Sort for GPUs" (2022),
https://arxiv.org/abs/2206.01784.
"""

import torch

from kernelpath.lanes import cuda

THREADS, ITEMS, DIGITS = 256, 16, 256
TILE = THREADS * ITEMS


def radix_pass(keys: torch.Tensor, first: torch.Tensor, shift: int) -> torch.Tensor:
    out = torch.empty_like(keys)
    n = keys.numel()
    tiles = (n + TILE - 1) // TILE
    status = torch.zeros(tiles * DIGITS, dtype=torch.int32, device=keys.device)
    next_tile = torch.zeros(1, dtype=torch.int32, device=keys.device)
    kernel = cuda.kernel("w25c_radix_pass.cu", "radix_pass")
    kernel[tiles, THREADS](keys, first, out, status, next_tile, n, shift)
    return out
