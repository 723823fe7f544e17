"""SwiGLU: two GEMMs and their gate in one kernel, and its backward.

swiglu(x, w, dh) takes contiguous matrices x (m, k) and w (2 n, k), both bfloat16 or both float16, and dh, which is None
or a contiguous matrix (m, n) in the dtype of x. w has n rows for gate, then n rows for up:

    gate = x @ w[:n].T    up = x @ w[n:].T    h = silu(gate) * up    silu(g) = g / (1 + exp(-g))

Without dh, as in inference, it returns only h, a new tensor (m, n). With dh, the gradient of h, it returns (h, dx, dw),
where dx and dw are the gradients of x and w and have their shapes. All results have the dtype of x. Accumulate in
float32, and round h once. You may round the operands of the GEMMs for dx and dw. n and k are multiples of 8, every
tensor starts at a multiple of 16 bytes, and all have fewer than 2**31 elements.

Start with h. Give each program two accumulator tiles, and load each block of x once for both. In the backward pass,
compute the gradients of gate and up element by element, and from these dx and dw with one GEMM each. You decide whether
to keep gate and up or to recompute them. The grader checks the values, the use of tensor cores, and the bytes moved,
and on a GPU it compares the time of h alone with cuBLAS for both GEMMs plus one kernel for the gate.

The grader enforces these limits on the largest case (m=328 n=272 k=32 dtype=bfloat16 backward=False); smaller cases get
some slack for partial tiles. In total, global memory accesses may move at most 3.5 times the size of the inputs and
outputs. The multiply-adds must run on tensor cores.

Operations: 4 m n k forward, 1.9e12 for 8192 tokens in Llama 3 8B (n = 14,336, k = 4096), and 8 m n k backward. The
tensor cores limit the kernels. Fusing saves writing and reading gate and up, 940 MB. If there is a backward pass, it
keeps them, 470 MB, and their gradients overwrite them, which moves 5 tensors the size of h. On an H200, in
microseconds:

    h: one dot of both blocks          2556    cuBLAS, both products              2559
    h: a dot for each                  3937    cuBLAS, then one kernel            2721
    h: tiles of 256, which spill     21,850
    gradients of gate and up            293    torch.compile                       410

Speedup of h over cuBLAS and one kernel: 16 rows 1.16, 64 1.18, 256 1.10, 1000 1.11, 8192 1.07.
"""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

# Programs go down this many rows of tiles before the next column, so those that run together share both in L2.
GROUP_SIZE_M = tl.constexpr(8)


@triton.jit
def tile_of(tile_id, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Return the first row and column of a tile. The last group may have fewer than GROUP_SIZE_M rows of tiles."""
    num_pid_m, num_pid_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    first_pid_m = tile_id // (GROUP_SIZE_M * num_pid_n) * GROUP_SIZE_M
    group_size_m = min(num_pid_m - first_pid_m, GROUP_SIZE_M)
    pid_in_group = tile_id % (GROUP_SIZE_M * num_pid_n)
    return (first_pid_m + pid_in_group % group_size_m) * BLOCK_M, pid_in_group // group_size_m * BLOCK_N


@triton.jit
def sigmoid(x):
    """Return (1 + tanh(x / 2)) / 2. tanh uses the special function unit once; exp2 and a reciprocal use it twice."""
    return 0.5 + 0.5 * tl.inline_asm_elementwise("tanh.approx.f32 $0, $1;", "=f,f", [0.5 * x], tl.float32, True, 1)


@triton.jit
def halves(x):
    """Split the columns into halves. A thread holds equally many accumulators of both, so no data moves."""
    return tl.reshape(x, (x.shape[0], 2, x.shape[1] // 2)).permute(0, 2, 1).split()


@triton.jit
def store(out, off_m, off_n, x):
    """Store in two halves, whose smaller buffer in shared memory leaves room for another stage."""
    parts = halves(x)
    for i in tl.static_range(2):
        out.store([off_m, off_n + i * parts[i].shape[1]], parts[i].to(out.dtype))


@triton.jit
def gated_product(
    x, w, h, kept_gate, kept_up, M, N, K,
    KEEP: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Compute h = silu(gate) * up. The descriptor of w is (2, n, k): a block has equally many rows of gate and up.

    Without KEEP, kept_gate and kept_up may be None.
    """
    num_tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
    for tile_id in tl.range(tl.program_id(0), num_tiles, tl.num_programs(0), flatten=True):
        offs_am, offs_bn = tile_of(tile_id, M, N, BLOCK_M, BLOCK_N)
        acc = tl.zeros((BLOCK_M, 2 * BLOCK_N), tl.float32)
        for offs_k in range(0, K, BLOCK_K):
            w_tile = tl.reshape(w.load([0, offs_bn, offs_k]), (2 * BLOCK_N, BLOCK_K))
            acc = tl.dot(x.load([offs_am, offs_k]), w_tile.T, acc)
        gate, up = halves(acc)
        if KEEP:
            store(kept_gate, offs_am, offs_bn, gate)
            store(kept_up, offs_am, offs_bn, up)
        store(h, offs_am, offs_bn, gate * sigmoid(gate) * up)


@triton.jit
def gate_backward(gate_up, dh, N, BLOCK: tl.constexpr):
    """Overwrite gate and up with their gradients. A row of gate_up has n columns of gate, then n of up."""
    row = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = cols < N
    gate_ptrs, up_ptrs = gate_up + row * 2 * N + cols, gate_up + row * 2 * N + N + cols
    gate = tl.load(gate_ptrs, mask=mask).to(tl.float32)
    up = tl.load(up_ptrs, mask=mask).to(tl.float32)
    d = tl.load(dh + row * N + cols, mask=mask).to(tl.float32)
    sig = sigmoid(gate)
    tl.store(gate_ptrs, (d * up * sig * (1 + gate * (1 - sig))).to(gate_up.dtype.element_ty), mask=mask)
    tl.store(up_ptrs, (d * gate * sig).to(gate_up.dtype.element_ty), mask=mask)


@triton.jit
def product(
    a, b, out, M, N, K,
    A_BY_COLUMNS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Compute out = a @ b, as in week 11's matmul_persistent."""
    num_tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
    for tile_id in tl.range(tl.program_id(0), num_tiles, tl.num_programs(0), flatten=True):
        offs_am, offs_bn = tile_of(tile_id, M, N, BLOCK_M, BLOCK_N)
        acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for offs_k in range(0, K, BLOCK_K):
            a_tile = a.load([offs_k, offs_am]).T if A_BY_COLUMNS else a.load([offs_am, offs_k])
            acc = tl.dot(a_tile, b.load([offs_k, offs_bn]), acc)
        store(out, offs_am, offs_bn, acc)


# Rows and columns of accumulators, depth, stages, warps, and the approximate speed relative to the largest tile.
TILES = (
    (128, 256, 64, 4, 8, 1.0),
    (64, 256, 64, 4, 4, 0.85),
    (64, 128, 128, 4, 4, 0.65),
    (64, 64, 128, 5, 4, 0.5),
    (16, 64, 256, 4, 4, 0.2),
)


def swiglu(
    x: torch.Tensor, w: torch.Tensor, dh: torch.Tensor | None
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    (m, k), n = x.shape, len(w) // 2
    h = x.new_empty(m, n)
    programs, block_m, block_n, block_k, options = plan(x.device, m, 2 * n)
    gate_up = x.new_empty(0 if dh is None else m, 2, n)
    outputs = (h, h, h) if dh is None else (h, gate_up[:, 0], gate_up[:, 1])
    gated_product[programs,](
        described(x, block_m, block_k),
        described(w.view(2, n, k), 2, block_n // 2, block_k),
        *(described(out, block_m, block_n // 4) for out in outputs),
        *(m, n, k, dh is not None, block_m, block_n // 2, block_k),
        **options,
    )
    if dh is None:
        return h
    gate_backward[m, triton.cdiv(n, 1024)](gate_up, dh, n, 1024)
    dgate_up = gate_up.view(m, 2 * n)
    return h, multiply(dgate_up, w), multiply(dgate_up.T, x)


def multiply(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return a @ b for a row-major or column-major a."""
    (m, k), n = a.shape, b.shape[1]
    out = a.new_empty(m, n)
    programs, block_m, block_n, block_k, options = plan(a.device, m, n)
    by_columns = a.stride(1) != 1
    product[programs,](
        described(a.T, block_k, block_m) if by_columns else described(a, block_m, block_k),
        described(b, block_k, block_n),
        described(out, block_m, block_n // 2),
        *(m, n, k, by_columns, block_m, block_n, block_k),
        **options,
    )
    return out


def described(x: torch.Tensor, *block: int) -> TensorDescriptor:
    return TensorDescriptor.from_tensor(x, list(block))


def plan(device: torch.device, m: int, n: int) -> tuple[int, int, int, int, dict[str, int]]:
    """Return the launch for m x n results: programs, rows, columns, and depth of a tile, and compile options.

    The tile has the least total time: the number of waves on all SMs times the time per tile.
    """
    properties = torch.cuda.get_device_properties(device)
    num_sms = properties.multi_processor_count

    def tiles(tile: tuple[int, int, int, int, int, float]) -> int:
        return triton.cdiv(m, tile[0]) * triton.cdiv(n, tile[1])

    # Before Hopper, which has TMA, Triton compiles descriptors to loads, without stages in shared memory.
    fitting = tiles_in(properties.shared_memory_per_block_optin) if properties.major >= 9 else TILES
    best = min(fitting, key=lambda tile: triton.cdiv(tiles(tile), num_sms) * tile[0] * tile[1] / tile[-1])
    block_m, block_n, block_k, stages, warps, _ = best
    return min(num_sms, tiles(best)), block_m, block_n, block_k, {"num_stages": stages, "num_warps": warps}


def tiles_in(shared: int) -> list[tuple[int, int, int, int, int, float]]:
    """Return the tiles whose two stages and half of out's tile fit into shared memory, with the stages that fit."""
    stages = {tile: (shared - tile[0] * tile[1]) // (2 * tile[2] * (tile[0] + tile[1])) for tile in TILES}
    return [(*tile[:3], min(tile[3], stages[tile]), *tile[4:]) for tile in TILES if stages[tile] >= 2]
