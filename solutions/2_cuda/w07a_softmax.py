"""Softmax: one read and one write, with the row kept on the chip."""

import torch

from kernelpath.lanes import cuda

C_TYPE = {torch.float32: "float", torch.bfloat16: "__nv_bfloat16"}
FAST = ("--use_fast_math",)
HELD = 32  # elements that a thread holds in registers
LARGEST_BLOCK = 1024
LARGEST_CLUSTER = 8


def softmax(x: torch.Tensor) -> torch.Tensor:
    """x: float32 or bfloat16, rows by columns, contiguous. Returns the softmax of each row, computed in float32."""
    rows, columns = x.shape
    out = torch.empty_like(x)
    if x.numel() == 0:
        return out
    width = 16 // x.element_size()
    if columns % width or x.data_ptr() % 16:
        width = 1
    cluster = cluster_size(x, columns)
    threads = warps_for(columns, cluster) * 32
    if threads > LARGEST_BLOCK:
        kernel = cuda.kernel("w07a_softmax.cu", f"softmax_streaming<{C_TYPE[x.dtype]}, {width}>", FAST)
        kernel[rows, LARGEST_BLOCK](x, out, columns)
    else:
        rows_per_block = 4 if threads == 32 else 1
        blocks = (rows + rows_per_block - 1) // rows_per_block * cluster
        name = f"softmax<{C_TYPE[x.dtype]}, {width}, {HELD // width}, {cluster}>"
        kernel = cuda.kernel("w07a_softmax.cu", name, FAST)
        kernel[blocks, (threads, rows_per_block)](x, out, rows, columns)
    return out


def cluster_size(x: torch.Tensor, columns: int) -> int:
    """Blocks that share a row: as many as leave each at most 8192 columns, on GPUs that have clusters."""
    if not x.is_cuda or torch.cuda.get_device_capability(x.device) < (9, 0):
        return 1
    cluster = 1
    while cluster < LARGEST_CLUSTER and columns > cluster * 8192:
        cluster *= 2
    return cluster


def warps_for(columns: int, cluster: int) -> int:
    per_warp = cluster * HELD * 32
    return (columns + per_warp - 1) // per_warp
