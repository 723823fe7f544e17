"""As the matrix products of older Triton: a model ranks all configurations, and the best few are measured."""

import torch
import triton
import triton.language as tl


def configs():
    for m in (16, 64, 128):
        for n in (64, 128, 256):
            for k in (64, 128):
                for split in (1, 4):
                    blocks = {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "SPLIT_K": split}
                    few = n == 128 and m > 16  # warps: a thread has 64 sums or fewer
                    yield triton.Config(blocks, num_warps=4 if few else 8, num_stages=3 if few or m * n == 32768 else 5)


def possible(configs, arguments, **_):
    size = 2 if arguments["a"].dtype == torch.float16 else 4
    return [
        one
        for one in configs
        if arguments["K"] % (one.kwargs["BLOCK_K"] * one.kwargs["SPLIT_K"]) == 0
        and (one.kwargs["BLOCK_M"] + one.kwargs["BLOCK_N"]) * one.kwargs["BLOCK_K"] * one.num_stages * size < 227 * 1024
    ]


def model(a, M, N, K, BLOCK_M, BLOCK_N, BLOCK_K, SPLIT_K, num_warps, num_stages, **_):
    """Seconds, roughly: waves of programs on 132 SMs, each bound by its loads or its products."""
    programs = triton.cdiv(M, BLOCK_M) * triton.cdiv(N, BLOCK_N) * SPLIT_K
    waves = triton.cdiv(programs, 132)
    steps = K // SPLIT_K // BLOCK_K
    size = a.element_size()
    loads = (BLOCK_M + BLOCK_N) * BLOCK_K * size / 2.4e10
    products = 2 * max(BLOCK_M, 64) * BLOCK_N * BLOCK_K / (5e12 if size == 2 else 2.5e12)
    started = 2e-6 / num_stages
    spread = 1 + 0.3 * (BLOCK_M * BLOCK_N > 8192) * (num_warps == 4) + 0.3 * (BLOCK_M == 16 and M > 64)
    return waves * (steps * max(loads, products) * spread + started) + M * N * 4 * SPLIT_K / 3e12


@triton.autotune(
    list(configs()),
    key=["size_class", "N", "K"],
    prune_configs_by={"early_config_prune": possible, "perf_model": model, "top_k": 8},
    restore_value=["c"],
)
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


def add_product(a, w, c):
    (M, K), N = a.shape, w.shape[0]

    def grid(meta):
        return triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]), meta["SPLIT_K"]

    accumulate[grid](a, w, c, M, N, K, triton.next_power_of_2(M))


def serve(gpu) -> torch.Tensor:
    for a, w, c in gpu.requests:
        add_product(a, w, c)
    return gpu.ledger()
