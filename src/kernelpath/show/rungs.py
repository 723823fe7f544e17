"""Provide kernels between the naive one and the reference, which notebooks count and time.

Notebooks do not print them, because each solves a star of an exercise. Sizes are multiples of the tile.
"""

from __future__ import annotations

from functools import cache

import torch

from warpcheck.frontends import cuda

_TRANSPOSE = r"""
template <int WIDTH, int PITCH, int LOADS, bool DOWN>
__global__ void transpose(const float* x, float* out, int rows, int columns) {
    __shared__ float tile[WIDTH][PITCH];
    constexpr int STEP = WIDTH / LOADS;
    int u = threadIdx.x, v = threadIdx.y;
    int across = DOWN ? blockIdx.y : blockIdx.x, down = DOWN ? blockIdx.x : blockIdx.y;
    int column = across * WIDTH + u, row = down * WIDTH + v;
    #pragma unroll
    for (int k = 0; k < WIDTH; k += STEP) tile[v + k][u] = x[(row + k) * columns + column];
    __syncthreads();
    column = down * WIDTH + u, row = across * WIDTH + v;
    #pragma unroll
    for (int k = 0; k < WIDTH; k += STEP) out[(row + k) * rows + column] = tile[u][v + k];
}
"""
"""PITCH is the distance of two rows of the tile in words. With 33, the words of a column are in 32 different banks."""

_TILE = r"""
template <int WIDTH>
__global__ void product(const float* a, const float* b, float* c, int n) {
    __shared__ float of_a[WIDTH][WIDTH], of_b[WIDTH][WIDTH];
    int x = threadIdx.x, y = threadIdx.y;
    int row = blockIdx.y * WIDTH + y, column = blockIdx.x * WIDTH + x;
    float sum = 0;
    for (int begin = 0; begin < n; begin += WIDTH) {
        of_a[y][x] = a[row * n + begin + x];
        of_b[y][x] = b[(begin + y) * n + column];
        __syncthreads();
        for (int l = 0; l < WIDTH; ++l) sum += of_a[y][l] * of_b[l][x];
        __syncthreads();
    }
    c[row * n + column] = sum;
}
"""

_OUTPUTS = r"""
template <int TILE, int OUTPUTS>
__global__ void product(const float* a, const float* b, float* c, int n) {
    constexpr int DEPTH = 16, ACROSS = TILE / OUTPUTS, THREADS = ACROSS * ACROSS;
    __shared__ float of_a[DEPTH][TILE + 4], of_b[DEPTH][TILE];
    int x = threadIdx.x % ACROSS, y = threadIdx.x / ACROSS;
    int row = blockIdx.y * TILE, column = blockIdx.x * TILE;
    float sum[OUTPUTS][OUTPUTS] = {};
    for (int begin = 0; begin < n; begin += DEPTH) {
        for (int i = threadIdx.x; i < TILE * DEPTH; i += THREADS) {
            of_a[i % DEPTH][i / DEPTH] = a[(row + i / DEPTH) * n + begin + i % DEPTH];
            of_b[i / TILE][i % TILE] = b[(begin + i / TILE) * n + column + i % TILE];
        }
        __syncthreads();
        #pragma unroll
        for (int l = 0; l < DEPTH; ++l) {
            for (int r = 0; r < OUTPUTS; ++r) {
                for (int s = 0; s < OUTPUTS; ++s) sum[r][s] += of_a[l][y + ACROSS * r] * of_b[l][x + ACROSS * s];
            }
        }
        __syncthreads();
    }
    for (int r = 0; r < OUTPUTS; ++r) {
        for (int s = 0; s < OUTPUTS; ++s) c[(row + y + ACROSS * r) * n + column + x + ACROSS * s] = sum[r][s];
    }
}
"""
"""A row of of_a has 4 words more than the tile: otherwise the 16 rows that a warp stores to would share their banks."""

_COLUMN = r"""
template <int TILE, int OUTPUTS>
__global__ void product(const float* a, const float* b, float* c, int n) {
    constexpr int DEPTH = OUTPUTS;
    __shared__ float of_a[TILE][DEPTH], of_b[DEPTH][TILE];
    int x = threadIdx.x % TILE, y = threadIdx.x / TILE, u = threadIdx.x % DEPTH, v = threadIdx.x / DEPTH;
    int row = blockIdx.y * TILE, column = blockIdx.x * TILE;
    float sum[OUTPUTS] = {};
    for (int begin = 0; begin < n; begin += DEPTH) {
        of_a[v][u] = a[(row + v) * n + begin + u];
        of_b[y][x] = b[(begin + y) * n + column + x];
        __syncthreads();
        #pragma unroll
        for (int l = 0; l < DEPTH; ++l) {
            float once = of_b[l][x];
            for (int r = 0; r < OUTPUTS; ++r) sum[r] += of_a[y * OUTPUTS + r][l] * once;
        }
        __syncthreads();
    }
    for (int r = 0; r < OUTPUTS; ++r) c[(row + y * OUTPUTS + r) * n + column + x] = sum[r];
}
"""

_VECTORS = r"""
template <bool WARPS>
__launch_bounds__(256, 2)
__global__ void product(const float* a, const float* b, float* c, int n) {
    constexpr int TILE = 128, DEPTH = 8, DOWN = WARPS ? 16 : 64, ACROSS = WARPS ? 32 : 64;
    __shared__ float4 of_a[DEPTH][TILE / 4 + 1], of_b[DEPTH][TILE / 4];
    int t = threadIdx.x, warp = t / 32, lane = t % 32;
    int row = blockIdx.y * TILE, column = blockIdx.x * TILE;
    int y = WARPS ? warp / 2 * 32 + (lane / 16 * 2 + lane % 2) * 4 : t / 16 * 4;
    int x = WARPS ? warp % 2 * 64 + lane / 2 % 8 * 4 : t % 16 * 4;
    const float* from_a = a + (row + t / 2) * n + t % 2 * 4;
    const float* from_b = b + warp * n + column + lane * 4;
    alignas(16) float sum[8][8] = {};
    for (int begin = 0; begin < n; begin += DEPTH) {
        float4 four = *(const float4*)(from_a + begin);
        for (int e = 0; e < 4; ++e) ((float*)of_a[t % 2 * 4 + e])[t / 2] = (&four.x)[e];
        of_b[warp][lane] = *(const float4*)(from_b + begin * n);
        __syncthreads();
        #pragma unroll
        for (int l = 0; l < DEPTH; ++l) {
            float4 down[2] = {of_a[l][y / 4], of_a[l][(y + DOWN) / 4]};
            float4 across[2] = {of_b[l][x / 4], of_b[l][(x + ACROSS) / 4]};
            for (int r = 0; r < 8; ++r) {
                for (int s = 0; s < 8; ++s) sum[r][s] += ((float*)down)[r] * ((float*)across)[s];
            }
        }
        __syncthreads();
    }
    for (int r = 0; r < 8; ++r) {
        for (int s = 0; s < 8; s += 4) {
            float* to = c + (row + y + r / 4 * DOWN + r % 4) * n + column + x + s / 4 * ACROSS;
            *(float4*)to = *(float4*)&sum[r][s];
        }
    }
}
"""
"""A row of of_a has 4 words more than the tile, so that the two rows that a warp stores to are 16 banks apart."""


@cache
def _kernel(source: str, name: str) -> cuda.Kernel:
    """Return one object per kernel, since loading a kernel at every launch costs more than 30 µs on a GPU."""
    return cuda.Kernel("rungs.cu", source, name)


def transpose(x: torch.Tensor, width: int = 32, pitch: int = 33, loads: int = 4, down: bool = False) -> torch.Tensor:
    """Transpose a float32 matrix through tiles of `width` rows of `pitch` words; a thread loads `loads` elements.

    Args:
        down: Number the blocks along the columns of x instead of the rows.
    """
    rows, columns = x.shape
    out = x.new_empty(columns, rows)
    kernel = _kernel(_TRANSPOSE, f"transpose<{width}, {pitch}, {loads}, {str(down).lower()}>")
    grid_columns = columns // width
    grid_rows = rows // width
    kernel[(grid_rows, grid_columns) if down else (grid_columns, grid_rows), (width, width // loads)](
        x, out, rows, columns
    )
    return out


def tile(a: torch.Tensor, b: torch.Tensor, width: int = 32) -> torch.Tensor:
    """Multiply two square float32 matrices through tiles of `width`, one output per thread."""
    n = a.shape[0]
    c = torch.empty_like(a)
    _kernel(_TILE, f"product<{width}>")[(n // width, n // width), (width, width)](a, b, c, n)
    return c


def outputs(a: torch.Tensor, b: torch.Tensor, width: int = 64, outputs: int = 4) -> torch.Tensor:
    """Multiply two square float32 matrices through tiles of `width`, `outputs` x `outputs` outputs per thread."""
    n = a.shape[0]
    c = torch.empty_like(a)
    kernel = _kernel(_OUTPUTS, f"product<{width}, {outputs}>")
    kernel[(n // width, n // width), (width // outputs) ** 2](a, b, c, n)
    return c


def column(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Multiply two square float32 matrices through tiles of 64; a thread computes 8 outputs of a column."""
    n = a.shape[0]
    c = torch.empty_like(a)
    _kernel(_COLUMN, "product<64, 8>")[(n // 64, n // 64), 512](a, b, c, n)
    return c


def vectors(a: torch.Tensor, b: torch.Tensor, warp_tiles: bool = False) -> torch.Tensor:
    """Multiply two square float32 matrices through tiles of 128, by 16-byte accesses, 8 x 8 outputs per thread.

    Args:
        warp_tiles: Let a warp compute 32 x 64 of the tile, so that lanes that read the same 16 bytes are neighbors.
            Otherwise its threads form rows of 16.
    """
    n = a.shape[0]
    c = torch.empty_like(a)
    _kernel(_VECTORS, f"product<{str(warp_tiles).lower()}>")[(n // 128, n // 128), 256](a, b, c, n)
    return c
