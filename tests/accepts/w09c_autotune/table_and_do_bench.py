"""Without autotune: a dictionary, triton.testing.do_bench on a copy of c, and a launch of the best."""

import torch
import triton
import triton.language as tl
from triton.testing import do_bench

TILES = (
    (16, 64, 64, 4, 8, 5), (16, 64, 128, 4, 8, 3), (64, 64, 64, 4, 8, 5), (64, 64, 64, 4, 4, 3), (64, 64, 64, 1, 8, 5),
    (64, 64, 128, 1, 8, 5), (128, 64, 64, 1, 8, 5), (64, 256, 64, 1, 8, 5), (64, 128, 64, 1, 4, 3),
    (128, 128, 64, 1, 4, 3), (128, 256, 64, 1, 8, 3),
)  # fmt: skip
found = {}


@triton.jit(do_not_specialize=["M", "size_class"])
def accumulate(
    a, w, c, M, N, K, size_class,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SPLIT_K: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) % tl.cdiv(M, BLOCK_M) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(0) // tl.cdiv(M, BLOCK_M) * BLOCK_N + tl.arange(0, BLOCK_N)
    share = K // SPLIT_K
    steps = tl.program_id(1) * share + tl.arange(0, BLOCK_K)
    a_tile = a + rows[:, None] * K + steps[None, :]
    w_tile = w + columns[None, :] * K + steps[:, None]
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for _ in range(share // BLOCK_K):
        left = tl.load(a_tile, mask=rows[:, None] < M, other=0.0)
        right = tl.load(w_tile, mask=columns[None, :] < N, other=0.0)
        total = tl.dot(left, right, total)
        a_tile += BLOCK_K
        w_tile += BLOCK_K
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    tl.atomic_add(c + rows[:, None] * N + columns[None, :], total, mask=inside, sem="relaxed")


def launch(a, w, c, tile):
    m, n, k, split, warps, stages = tile
    M, K = a.shape
    N = w.shape[0]
    grid = (triton.cdiv(M, m) * triton.cdiv(N, n), split)
    accumulate[grid](a, w, c, M, N, K, 0, m, n, k, split, num_warps=warps, num_stages=stages)


def milliseconds(a, w, c, tile):
    try:
        return do_bench(lambda: launch(a, w, c, tile))
    except triton.runtime.errors.OutOfResources:
        return float("inf")


def add_product(a, w, c):
    M, K = a.shape
    key = M.bit_length() if M & (M - 1) else M.bit_length() - 1, w.shape, a.dtype
    if key not in found:
        scratch = c.clone()
        able = [tile for tile in TILES if K % (tile[2] * tile[3]) == 0]
        found[key] = min(able, key=lambda tile: milliseconds(a, w, scratch, tile))
    launch(a, w, c, found[key])


def serve(gpu) -> torch.Tensor:
    for a, w, c in gpu.requests:
        add_product(a, w, c)
    return gpu.ledger()
