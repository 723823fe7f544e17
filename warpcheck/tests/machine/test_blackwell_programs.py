"""Compare Triton kernels for sm_100a with float64: tl.dot with pointers, tensor descriptors, and scale factors."""

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
def test_tl_dot_with_pointers(dtype: torch.dtype, block_m: int, tolerance: float) -> None:
    torch.manual_seed(0)
    with warpcheck.gpu("sm_100a") as gpu:
        a, b = (torch.randn(shape).to(dtype).cuda() for shape in ((128, 128), (128, 64)))
        c = torch.zeros(128, 64, device="cuda")
        with_pointers[128 // block_m, 1](a, b, c, 64, 128, BLOCK_M=block_m, BLOCK_N=64, BLOCK_K=32)
        expected = a.cpu().double() @ b.cpu().double()
        torch.testing.assert_close(c.cpu().double(), expected, rtol=0, atol=tolerance)
    assert not gpu.faults


def test_a_persistent_kernel_with_warp_specialization() -> None:
    torch.manual_seed(0)
    with warpcheck.gpu("sm_100a") as gpu:
        triton.set_allocator(lambda size, _align, _stream: torch.empty(size, dtype=torch.int8, device="cuda"))
        a, b = (torch.randn(shape).half().cuda() for shape in ((256, 128), (256, 128)))
        c = torch.zeros(256, 256, device="cuda", dtype=torch.float16)
        specialized[(2,)](a, b, c, 256, 256, 128, BLOCK=128, BLOCK_K=64)
        expected = a.cpu().double() @ b.cpu().double().T
        torch.testing.assert_close(c.cpu().double(), expected, rtol=1e-3, atol=1e-3)
    assert not gpu.faults


@triton.jit  # type: ignore[untyped-decorator]
def scaled(a, scale_a, b, scale_b, c, K, BLOCK: tl.constexpr, BLOCK_K: tl.constexpr):  # type: ignore[no-untyped-def]
    """Multiply 4-bit numbers, two per byte, with one scale factor per 16 numbers."""
    rows = tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK, BLOCK), tl.float32)
    for k in range(0, K, BLOCK_K):
        pairs = k // 2 + tl.arange(0, BLOCK_K // 2)
        factors = k // 16 + tl.arange(0, BLOCK_K // 16)
        tile_a = tl.load(a + rows[:, None] * (K // 2) + pairs[None, :])
        tile_b = tl.load(b + rows[None, :] * (K // 2) + pairs[:, None])
        factors_a = tl.load(scale_a + rows[:, None] * (K // 16) + factors[None, :])
        factors_b = tl.load(scale_b + rows[:, None] * (K // 16) + factors[None, :])
        acc = tl.dot_scaled(tile_a, factors_a, "e2m1", tile_b, factors_b, "e2m1", acc)
    tl.store(c + rows[:, None] * BLOCK + rows[None, :], acc)


def test_tl_dot_scaled() -> None:
    """The format is nvfp4. Triton itself stores the scale factors to tensor memory, in its own layout."""
    torch.manual_seed(0)
    sizes = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=torch.float64)
    numbers = torch.cat([sizes, -sizes])
    with warpcheck.gpu("sm_100a") as gpu:
        codes = [torch.randint(0, 16, (128, 256)) for _ in range(2)]
        pairs = [(code[:, ::2] | code[:, 1::2] << 4).to(torch.uint8).cuda() for code in codes]
        factors = [(4 * torch.rand(128, 16)).to(torch.float8_e4m3fn) for _ in range(2)]
        c = torch.zeros(128, 128, device="cuda")
        scaled[(1,)](pairs[0], factors[0].cuda(), pairs[1], factors[1].cuda(), c, 256, BLOCK=128, BLOCK_K=128)
        a, b = (
            numbers[code] * factor.double().repeat_interleave(16, 1)
            for code, factor in zip(codes, factors, strict=True)
        )
        expected = a @ b.T
        torch.testing.assert_close(c.cpu().double(), expected, rtol=0, atol=1e-6 * float(expected.abs().max()))
    assert not gpu.faults
