"""Autotune: find a configuration once for each size.

A layer computes GEMMs of many sizes: c += a @ w.T, with a (M, K) and w (N, K) in float16 or float32, and c (M, N) in
float32, the way gradients are accumulated. The kernel is complete, and so is its launch. You specify how it is tuned:

- the decorator @triton.autotune: its configurations, its key, what is pruned, and what must be restored after timing;
- size_class(M), an integer that the kernel does not use. The key can name it.

Tuning is graded on a simulated GPU, even if you have a real one. It replies with this kernel's times on an H200,
recorded with a cold L2 for every combination of

    BLOCK_M 16 64 128, BLOCK_N 64 128 256, BLOCK_K 64 128, SPLIT_K 1 4, num_warps 4 8, num_stages 3 5

and for no others. M is one of 18 numbers from 16 to 4096, few of them powers of two; (N, K) is (1024, 4096), (4096,
4096), (4096, 11008) or (2880, 2880). Compiling a configuration takes 0.5 s per dtype, timing it 0.1 s, both as
recorded. Each line of the report covers a day of requests, and the autotuner remembers the results of earlier days.

- Every c is right at the end, regardless of the configurations that were tried. The kernel masks M and N, but not K.
- No size is tuned twice.
- Tuning takes at most 50 s a day.
- On every day with 50 or more requests, launches take on average at most 5% longer than with the best configuration
  for each size.
"""

import torch
import triton
import triton.language as tl


def size_class(M: int) -> int:
    """Return the same number for all M that share a configuration."""
    return triton.next_power_of_2(M)


def config(m: int, n: int, k: int, split: int, warps: int, stages: int) -> triton.Config:
    blocks = {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "SPLIT_K": split}
    return triton.Config(blocks, num_warps=warps, num_stages=stages)


CONFIGS = [
    config(16, 64, 64, 4, 8, 5),  # a few rows: many programs read the weights, each of them only once
    config(16, 64, 128, 4, 8, 3),
    config(64, 64, 64, 4, 8, 5),  # up to 128 rows: SPLIT_K creates programs for SMs that would idle
    config(64, 64, 64, 4, 4, 3),
    config(64, 64, 64, 1, 8, 5),
    config(64, 64, 128, 1, 8, 5),
    config(128, 64, 64, 1, 8, 5),  # hundreds: enough tiles for 132 SMs, and larger tiles read less
    config(64, 256, 64, 1, 8, 5),
    config(64, 128, 64, 1, 4, 3),
    config(128, 128, 64, 1, 4, 3),
    config(128, 128, 64, 4, 4, 3),
    config(128, 256, 64, 1, 8, 3),  # thousands: the tile with the most operations per byte
]


def whole_steps(configs: list, arguments: dict, **_: object) -> list:
    """Drop configurations whose steps do not divide K: the kernel would skip the rest of the sum, and be faster."""
    return [cfg for cfg in configs if arguments["K"] % (cfg.kwargs["BLOCK_K"] * cfg.kwargs["SPLIT_K"]) == 0]


@triton.autotune(
    configs=CONFIGS,
    key=["size_class", "N", "K"],  # the dtypes are part of every key
    prune_configs_by={"early_config_prune": whole_steps},
    restore_value=["c"],  # measuring adds the product many times
)
@triton.jit(do_not_specialize=["M", "size_class"])
def accumulate(
    a, w, c, M, N, K, size_class,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SPLIT_K: tl.constexpr,
):  # fmt: skip
    """c += a @ w.T, all contiguous. Each of SPLIT_K programs adds its share of the sums, in steps of BLOCK_K."""
    offs_m = tl.program_id(0) % tl.cdiv(M, BLOCK_M) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(0) // tl.cdiv(M, BLOCK_M) * BLOCK_N + tl.arange(0, BLOCK_N)
    k_per_split = K // SPLIT_K
    offs_k = tl.program_id(1) * k_per_split + tl.arange(0, BLOCK_K)
    a_ptrs = a + offs_m[:, None] * K + offs_k[None, :]
    w_ptrs = w + offs_n[None, :] * K + offs_k[:, None]
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for _ in range(k_per_split // BLOCK_K):
        a_tile = tl.load(a_ptrs, mask=offs_m[:, None] < M, other=0.0)
        w_tile = tl.load(w_ptrs, mask=offs_n[None, :] < N, other=0.0)
        acc = tl.dot(a_tile, w_tile, acc)
        a_ptrs += BLOCK_K
        w_ptrs += BLOCK_K
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.atomic_add(c + offs_m[:, None] * N + offs_n[None, :], acc, mask=mask, sem="relaxed")


def add_product(a: torch.Tensor, w: torch.Tensor, c: torch.Tensor) -> None:
    """c += a @ w.T"""
    (M, K), N = a.shape, w.shape[0]

    def grid(meta: dict) -> tuple[int, int]:
        return triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]), meta["SPLIT_K"]

    accumulate[grid](a, w, c, M, N, K, size_class(M))


def serve(gpu) -> torch.Tensor:
    """Serve all requests of a day in turn. Return the GPU's ledger, which is all zeros if nothing is wrong."""
    for a, w, c in gpu.requests:
        add_product(a, w, c)
    return gpu.ledger()
