"""Warps that copy and warps that multiply, as the compiler divides them."""

import torch
import triton
import triton.language as tl


@triton.jit
def specialized(
    a, b, out, M, N, K, TA: tl.constexpr, TB: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    of_a = tl.make_tensor_descriptor(a, [K, M] if TA else [M, K], [M if TA else K, 1], [BK, BM] if TA else [BM, BK])
    of_b = tl.make_tensor_descriptor(b, [N, K] if TB else [K, N], [K if TB else N, 1], [BN, BK] if TB else [BK, BN])
    of_out = tl.make_tensor_descriptor(out, [M, N], [N, 1], [BM, BN])
    down = tl.cdiv(M, BM)
    for tile in tl.range(tl.program_id(0), down * tl.cdiv(N, BN), tl.num_programs(0), warp_specialize=True):
        row, column = tile % down * BM, tile // down * BN
        total = tl.zeros((BM, BN), tl.float32)
        for k in range(0, K, BK):
            x = of_a.load([k, row]).T if TA else of_a.load([row, k])
            y = of_b.load([column, k]).T if TB else of_b.load([k, column])
            total = tl.dot(x, y, total)
        of_out.store([row, column], total.to(out.dtype.element_ty))


def matmul(a, b):
    (M, K), N = a.shape, b.shape[1]
    out = a.new_empty(M, N)
    triton.set_allocator(lambda size, *_: torch.empty(size, dtype=torch.int8, device=a.device))
    programs = torch.cuda.get_device_properties(a.device).multi_processor_count
    specialized[programs,](
        a, b, out, M, N, K, a.stride(1) != 1, b.stride(1) != 1, 128, 128, 64, num_warps=4, num_stages=3
    )
    return out
