"""Triton kernels for Hopper: host and device descriptors, warp specialization, and clusters."""

# mypy: ignore-errors

from __future__ import annotations

from collections.abc import Callable

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def multiply(a, b, c, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    m, n = tl.program_id(0) * M, tl.program_id(1) * N
    total = tl.zeros((M, N), tl.float32)
    for at in range(0, k, K):
        total = tl.dot(a.load([m, at]), b.load([n, at]).T, total)
    c.store([m, n], total.to(tl.float16))


@triton.jit
def persistent(a, b, c, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, WS: tl.constexpr):
    of_a = tl.make_tensor_descriptor(a, [m, k], [k, 1], [M, K])
    of_b = tl.make_tensor_descriptor(b, [n, k], [k, 1], [N, K])
    of_c = tl.make_tensor_descriptor(c, [m, n], [n, 1], [M, N])
    columns = tl.cdiv(n, N)
    for tile in tl.range(tl.program_id(0), tl.cdiv(m, M) * columns, tl.num_programs(0), warp_specialize=WS):
        row, column = tile // columns * M, tile % columns * N
        total = tl.zeros((M, N), tl.float32)
        for at in range(0, k, K):
            total = tl.dot(of_a.load([row, at]), of_b.load([column, at]).T, total)
        of_c.store([row, column], total.to(tl.float16))


@triton.jit
def twice(a, b, c, K: tl.constexpr, M: tl.constexpr, N: tl.constexpr):
    """Compute (a I) b^T: the product with the identity matrix leaves a in registers, so both forms of wgmma run."""
    unit = (tl.arange(0, K)[:, None] == tl.arange(0, K)[None, :]).to(tl.float16)
    a_in_registers = tl.dot(a.load([0, 0]), unit).to(tl.float16)
    c.store([0, 0], tl.dot(a_in_registers, b.load([0, 0]).T).to(tl.float16))


def chained(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return a b^T, computed by one program whose second product reads the result of the first from registers."""
    (m, k), n = a.shape, b.shape[0]
    c = torch.empty(m, n, dtype=torch.float16, device=a.device)
    twice[1,](*(TensorDescriptor.from_tensor(x, list(x.shape)) for x in (a, b, c)), k, m, n)
    return c


def host(a: torch.Tensor, b: torch.Tensor, tile: tuple[int, int, int], **options: int) -> torch.Tensor:
    """Return a b^T, loaded through descriptors that the host creates."""
    (rows, depth), (columns, _), (m, n, k) = a.shape, b.shape, tile
    c = torch.empty(rows, columns, dtype=torch.float16, device=a.device)
    descriptors = (TensorDescriptor.from_tensor(x, list(box)) for x, box in ((a, (m, k)), (b, (n, k)), (c, (m, n))))
    multiply[(triton.cdiv(rows, m), triton.cdiv(columns, n))](*descriptors, depth, *tile, **options)
    return c


def device(a: torch.Tensor, b: torch.Tensor, tile: tuple[int, int, int], specialized: bool) -> torch.Tensor:
    """Return a b^T, loaded through descriptors that each of two programs creates."""
    triton.set_allocator(lambda nbytes, *_: torch.empty(nbytes, dtype=torch.int8, device=a.device))
    c = torch.empty(a.shape[0], b.shape[0], dtype=torch.float16, device=a.device)
    persistent[(2,)](a, b, c, *c.shape, a.shape[1], *tile, specialized)
    return c


def operands(m: int, n: int, k: int, dtype: torch.dtype, where: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Return random operands a (m, k) and b (n, k), generated on the CPU so that they are the same on all machines."""
    seed = torch.Generator().manual_seed(m + n + k)
    a, b = (torch.randn(rows, k, generator=seed).to(dtype).to(where) for rows in (m, n))
    return a, b


# Functions by name that generate operands on a device and multiply them there; they return a, b, and the product.
PRODUCTS: dict[str, Callable[[str], tuple[torch.Tensor, ...]]] = {}


def _product(name: str, size: tuple[int, int, int], dtype: torch.dtype, call: Callable[..., torch.Tensor]) -> None:
    def run(where: str) -> tuple[torch.Tensor, ...]:
        a, b = operands(*size, dtype, where)
        return a, b, call(a, b)

    PRODUCTS[name] = run


HALF = torch.float16
TILE = (64, 64, 64)
_product("host", (128, 64, 128), HALF, lambda a, b: host(a, b, TILE))
_product("host with edges", (100, 72, 80), HALF, lambda a, b: host(a, b, (64, 64, 32)))
_product("host, bfloat16", (64, 64, 128), torch.bfloat16, lambda a, b: host(a, b, TILE))
_product("host, e4m3", (64, 64, 128), torch.float8_e4m3fn, lambda a, b: host(a, b, TILE))
_product("host, tf32", (64, 64, 64), torch.float32, lambda a, b: host(a, b, (64, 64, 32)))
_product("host, two blocks a program", (128, 64, 128), HALF, lambda a, b: host(a, b, (128, 64, 64), num_ctas=2))
_product("device", (128, 128, 128), HALF, lambda a, b: device(a, b, TILE, False))
_product("device, specialized", (256, 64, 128), HALF, lambda a, b: device(a, b, (128, 64, 64), True))
_product("chained", (64, 64, 64), HALF, chained)
