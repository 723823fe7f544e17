"""GEMM of float8 matrices with block scales: accumulators on two levels, in the tensor cores and in registers.

fp8_matmul(a, b, scale_a, scale_b) takes contiguous float8_e4m3fn matrices a (m, k) and b (n, k) of any nonzero size. b
has one row per column of the result, like the weight of nn.Linear. It returns a new bfloat16 tensor (m, n). The scales
are contiguous float32 tensors. Either both have shape (1, 1), one scale for all of a and one for all of b, or they are
for blocks of 128:

    scale_a (ceil(k / 128), m)               one for each 128 values of a row of a
    scale_b (ceil(n / 128), ceil(k / 128))   one for each 128 x 128 values of b

    out[i, j] = sum over p of a[i, p] * scale_a[p // 128, i] * b[j, p] * scale_b[j // 128, p // 128]

The sum must be as accurate as in float32. Hopper's tensor cores keep only 14 bits of an fp8 accumulator, so add it to a
float32 accumulator in registers at least every 512 values along k. Tensors do not always start at a multiple of 16
bytes, and they may have more than 2**32 elements, so offsets need 64 bits.

Start with one tile of out per program and total += tl.dot(x, y) * scales, 128 values along k at a time. The grader
checks the values, the use of tensor cores, the bytes moved, and on a GPU the time compared with dequantizing the
matrices to bfloat16 and multiplying them with the library.

The grader enforces these limits on the largest case (m=256 n=256 k=512 dtype=float8_e4m3fn scales=block); smaller cases
get some slack for partial tiles. Each load or store may touch at most 2 times the sectors that its bytes require. In
total, global memory accesses may move at most 3.5 times the size of the inputs and outputs. The multiply-adds must run
on tensor cores.

Operations: 2 m n k, 137 billion at 4096 cubed, 0.07 ms at the 1979 TFLOP/s that NVIDIA states for fp8 on Hopper. Bytes:
68 million, 0.016 ms. The kernel is compute-bound, and the promotion slows it down. It takes one multiply-add on the
CUDA cores per 128 on the tensor cores, which are 32× faster, so it takes a fifth of the time unless another program
multiplies meanwhile. Two programs per SM overlap in this way if each thread of their 4 warps stays within 255
registers: 128 for the accumulators of 128 x 128, and 64 for the new accumulator of one half. On an H200 at 4096 (8192)
cubed, in TFLOP/s:

    scales                                                      of tensors     of blocks
    two halves of 64 rows, two programs per SM                  1127 (1189)     861 (880)
    one tile of 128 x 128, 8 warps, one program per SM           860  (965)     819 (875)
    torch._scaled_mm, sums at two levels                        1290 (1458)    1174 (1323)
    one level, wrong where k is long                            1370 (1527)

CUTLASS goes further, with a warp that only copies and two warpgroups that multiply out of phase. Triton's
warp_specialize reached 1108 (1237), but returned wrong results with block scales (Triton 3.6, on the H200).
"""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

# Values along k that share a scale and that the tensor cores sum before a promotion.
BLOCK_K = tl.constexpr(128)


@triton.jit
def product(
    a, b, scale_a, scale_b, out_desc, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_SIZE_M: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    """Compute tiles of BLOCK_M x BLOCK_N of out. BLOCKS: whether the scales are per block."""
    # Each iteration computes two tiles, one below the other.
    num_pid_m, num_pid_n = tl.cdiv(M, 2 * BLOCK_M), tl.cdiv(N, BLOCK_N)
    blocks = tl.cdiv(K, BLOCK_K)
    for tile_id in tl.range(tl.program_id(0), num_pid_m * num_pid_n, tl.num_programs(0), flatten=True):
        # Go down GROUP_SIZE_M tiles before the next column of tiles, so programs in flight share rows of a and b in L2.
        first_pid_m = tile_id // (GROUP_SIZE_M * num_pid_n) * GROUP_SIZE_M
        group_size_m = min(num_pid_m - first_pid_m, GROUP_SIZE_M)
        offs_am = (first_pid_m + tile_id % (GROUP_SIZE_M * num_pid_n) % group_size_m) * (2 * BLOCK_M)
        offs_bn = tile_id % (GROUP_SIZE_M * num_pid_n) // group_size_m * BLOCK_N
        acc0, acc1 = tl.zeros((BLOCK_M, BLOCK_N), tl.float32), tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for block in range(0, blocks):  # a descriptor reads 0 beyond the matrix
            y = b.load([offs_bn, block * BLOCK_K]).T
            # One half after the other, so that only one needs registers for a sum that isn't promoted yet.
            acc0 += block_dot(a, y, scale_a, scale_b, offs_am, offs_bn, block, M, blocks, BLOCK_M, BLOCKS)
            acc1 += block_dot(a, y, scale_a, scale_b, offs_am + BLOCK_M, offs_bn, block, M, blocks, BLOCK_M, BLOCKS)
        if not BLOCKS:
            scale = tl.load(scale_a) * tl.load(scale_b)
            acc0 *= scale
            acc1 *= scale
        out_desc.store([offs_am, offs_bn], acc0.to(tl.bfloat16))
        out_desc.store([offs_am + BLOCK_M, offs_bn], acc1.to(tl.bfloat16))


@triton.jit
def block_dot(a, y, scale_a, scale_b, offs_am, offs_bn, block, M, blocks, BLOCK_M: tl.constexpr, BLOCKS: tl.constexpr):
    """Return the tensor cores' sum over one block along k, times the scales of that block."""
    x = a.load([offs_am, block * BLOCK_K])
    if BLOCKS:
        offs_m = offs_am + tl.arange(0, BLOCK_M)
        a_scale = tl.load(scale_a + block.to(tl.int64) * M + offs_m, mask=offs_m < M, other=0.0)
        b_scale = tl.load(scale_b + (offs_bn // BLOCK_K).to(tl.int64) * blocks + block)
        return tl.dot(x, y) * (a_scale * b_scale)[:, None]
    else:
        return tl.dot(x, y)


@triton.jit
def copy_rows(out, x, columns, stride_out, stride_x, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + row * stride_x + cols, mask=cols < columns)
    tl.store(out + row * stride_out + cols, value, mask=cols < columns)


def copied(x: torch.Tensor, dst: torch.Tensor) -> torch.Tensor:
    """Copy the columns that both matrices have, from rows with one stride to rows with another."""
    columns = min(x.shape[1], dst.shape[1])
    copy_rows[x.shape[0], triton.cdiv(columns, 4096)](dst, x, columns, dst.shape[1], x.shape[1], 4096, num_warps=8)
    return dst


def padded(rows: int, columns: int, like: torch.Tensor) -> torch.Tensor:
    """Allocate a matrix whose rows start at multiples of 16 bytes, as TMA requires."""
    within = 16 // like.element_size()
    return torch.empty(rows, triton.cdiv(columns, within) * within, dtype=like.dtype, device=like.device)


def tiles(x: torch.Tensor, height: int, width: int, columns: int) -> TensorDescriptor:
    return TensorDescriptor(x, [x.shape[0], columns], [x.shape[1], 1], [height, width])


def fp8_matmul(a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor) -> torch.Tensor:
    (m, k), n = a.shape, len(b)
    out = torch.empty(m, n, dtype=torch.bfloat16, device=a.device)
    if out.numel() == 0 or k == 0:
        return out.zero_()
    a_in, b_in = (x if k % 16 + x.data_ptr() % 16 == 0 else copied(x, padded(len(x), k, x)) for x in (a, b))
    out_padded = out if n % 8 == 0 else padded(m, n, out)
    num_sms = torch.cuda.get_device_properties(a.device).multi_processor_count
    block_n = 128 if triton.cdiv(m, 128) * triton.cdiv(n, 128) >= num_sms else 64
    grid = (min(triton.cdiv(m, 128) * triton.cdiv(n, block_n), 2 * num_sms),)
    product[grid](
        tiles(a_in, 64, 128, k), tiles(b_in, block_n, 128, k), scale_a, scale_b, tiles(out_padded, 64, block_n, n),
        m, n, k, 64, block_n, 8, max(scale_a.numel(), scale_b.numel()) > 1, num_warps=4, num_stages=3,
    )  # fmt: skip
    if out_padded is not out:
        copied(out_padded, out)
    return out
