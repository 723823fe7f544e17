"""Triton's kernels for sm_100a on the machine, against float64: tl.dot with pointers and with tensor descriptors."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl

import warpcheck


@triton.jit  # type: ignore[untyped-decorator]
def with_pointers(a, b, c, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):  # type: ignore[no-untyped-def]
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k in range(0, K, BLOCK_K):
        depth = k + tl.arange(0, BLOCK_K)
        tile_a = tl.load(a + rows[:, None] * K + depth[None, :])
        tile_b = tl.load(b + depth[:, None] * N + columns[None, :])
        acc = tl.dot(tile_a, tile_b, acc)
    tl.store(c + rows[:, None] * N + columns[None, :], acc)


@triton.jit  # type: ignore[untyped-decorator]
def specialized(a, b, c, M, N, K, BLOCK: tl.constexpr, BLOCK_K: tl.constexpr):  # type: ignore[no-untyped-def]
    map_a = tl.make_tensor_descriptor(a, [M, K], [K, 1], [BLOCK, BLOCK_K])
    map_b = tl.make_tensor_descriptor(b, [N, K], [K, 1], [BLOCK, BLOCK_K])
    map_c = tl.make_tensor_descriptor(c, [M, N], [N, 1], [BLOCK, BLOCK])
    for tile in tl.range(tl.program_id(0), M // BLOCK * (N // BLOCK), tl.num_programs(0), warp_specialize=True):
        row = tile // (N // BLOCK) * BLOCK
        column = tile % (N // BLOCK) * BLOCK
        acc = tl.zeros((BLOCK, BLOCK), tl.float32)
        for k in range(0, K, BLOCK_K):
            acc = tl.dot(map_a.load([row, k]), map_b.load([column, k]).T, acc)
        map_c.store([row, column], acc.to(tl.float16))


@pytest.mark.parametrize(
    ("dtype", "block_m", "tolerance"),
    [(torch.bfloat16, 64, 1e-4), (torch.float8_e4m3fn, 128, 1e-4), (torch.float32, 128, 0.2)],
    ids=["bf16", "fp8", "tf32"],
)
def test_a_product_with_pointers(dtype: torch.dtype, block_m: int, tolerance: float) -> None:
    torch.manual_seed(0)
    with warpcheck.gpu("sm_100a") as gpu:
        a, b = (torch.randn(shape).to(dtype).cuda() for shape in ((128, 128), (128, 64)))
        c = torch.zeros(128, 64, device="cuda")
        with_pointers[128 // block_m, 1](a, b, c, 64, 128, BLOCK_M=block_m, BLOCK_N=64, BLOCK_K=32)
        expected = a.cpu().double() @ b.cpu().double()
        torch.testing.assert_close(c.cpu().double(), expected, rtol=0, atol=tolerance)
    assert not gpu.faults


def test_a_persistent_kernel_with_specialized_warps() -> None:
    torch.manual_seed(0)
    with warpcheck.gpu("sm_100a") as gpu:
        triton.set_allocator(lambda size, _align, _stream: torch.empty(size, dtype=torch.int8, device="cuda"))
        a, b = (torch.randn(shape).half().cuda() for shape in ((256, 128), (256, 128)))
        c = torch.zeros(256, 256, device="cuda", dtype=torch.float16)
        specialized[(2,)](a, b, c, 256, 256, 128, BLOCK=128, BLOCK_K=64)
        expected = a.cpu().double() @ b.cpu().double().T
        torch.testing.assert_close(c.cpu().double(), expected, rtol=1e-3, atol=1e-3)
    assert not gpu.faults
