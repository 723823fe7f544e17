"""Triton's second tutorial: compiled ahead, programs by occupancy from registers and shared memory, rows in a loop."""

import torch
import triton
import triton.language as tl

DEVICE = triton.runtime.driver.active.get_active_torch_device()
properties = triton.runtime.driver.active.utils.get_device_properties(triton.runtime.driver.active.get_current_device())
NUM_SM, NUM_REGS = properties["multiprocessor_count"], properties["max_num_regs"]
SIZE_SMEM, WARP_SIZE = properties["max_shared_mem"], properties["warpSize"]


@triton.jit
def softmax_kernel(out_ptr, in_ptr, in_stride, out_stride, n_rows, n_cols, BLOCK: tl.constexpr, STAGES: tl.constexpr):
    for row in tl.range(tl.program_id(0).to(tl.int64), n_rows, tl.num_programs(0), num_stages=STAGES):
        columns = tl.arange(0, BLOCK)
        mask = columns < n_cols
        values = tl.load(in_ptr + row * in_stride + columns, mask=mask, other=-float("inf")).to(tl.float32)
        numerator = tl.exp(values - tl.max(values, axis=0))
        tl.store(out_ptr + row * out_stride + columns, numerator / tl.sum(numerator, axis=0), mask=mask)


def fused_softmax(x):
    n_rows, n_cols = x.shape
    block = triton.next_power_of_2(n_cols)
    warps = 32 if block > 8192 else 8
    y = torch.empty_like(x)
    stages = (4 if SIZE_SMEM > 200_000 else 2) if block <= 8192 else 1
    kernel = softmax_kernel.warmup(
        y, x, x.stride(0), y.stride(0), n_rows, n_cols, BLOCK=block, STAGES=stages, num_warps=warps, grid=(1,)
    )
    kernel._init_handles()
    occupancy = max(1, NUM_REGS // (kernel.n_regs * WARP_SIZE * warps))
    if kernel.metadata.shared:
        occupancy = min(occupancy, SIZE_SMEM // kernel.metadata.shared)
    programs = min(NUM_SM * max(occupancy, 1), n_rows)
    kernel[(programs, 1, 1)](y, x, x.stride(0), y.stride(0), n_rows, n_cols, block, stages)
    return y
