"""Softmax: the launch.

softmax(x) takes a contiguous matrix, bfloat16 or float32, of any number of rows and of 1 to 262144 columns and more.
It returns the softmax of each row as a new tensor of the same dtype, computed in float32.

Write the kernel in w07a_softmax.cu, then launch it here. Graded are the values, the bytes that the kernel moves (one
read and one write would do), and on a GPU the time against the formula in five torch operators.
"""

import torch

from kernelpath.lanes import cuda

C_TYPE = {torch.float32: "float", torch.bfloat16: "__nv_bfloat16"}
FAST = ("--use_fast_math",)  # exp as one multiplication and ex2.approx


def softmax(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    if x.numel() == 0:
        return out
    columns = x.shape[1]
    width = 16 // x.element_size()
    if columns % width or x.data_ptr() % 16:
        width = 1
    launch = launch_short if columns <= 8192 else launch_long
    launch(x, out, width)
    return out


def launch_short(x: torch.Tensor, out: torch.Tensor, width: int) -> None:
    """One row to as many warps as it takes at 32 elements a thread (8 where rows are not aligned)."""
    rows, columns = x.shape
    elements = 32 if width > 1 else 8
    threads = ceil_div(columns, 32 * elements) * 32
    rows_each = 4 if threads == 32 else 1
    kernel = cuda.kernel("w07a_softmax.cu", f"softmax<{C_TYPE[x.dtype]}, {width}, {elements // width}>", FAST)
    kernel[ceil_div(rows, rows_each), (threads, rows_each)](x, out, rows, columns)


def launch_long(x: torch.Tensor, out: torch.Tensor, width: int) -> None:
    """One row to a block, or to a cluster of up to eight if it is longer than 64 KiB."""
    rows, columns = x.shape
    has_clusters, shared_limit = on_chip(x.device)
    cluster = 1
    while has_clusters and cluster < 8 and columns * x.element_size() > cluster * 64 * 1024:
        cluster *= 2
    share = ceil_div(columns // width, cluster)
    kept = min(share, shared_limit // (width * x.element_size()))
    threads = 1024 if cluster == 1 else 512
    kernel = cuda.kernel("w07a_softmax.cu", f"softmax_long<{C_TYPE[x.dtype]}, {width}, {cluster}>", FAST)
    kernel[rows * cluster, threads, kept * width * x.element_size()](x, out, columns, kept)


def on_chip(device: torch.device) -> tuple[bool, int]:
    """Whether blocks can share their memory in clusters, and the bytes of it that one block may have."""
    if device.type == "cpu":
        return False, 160 * 1024
    properties = torch.cuda.get_device_properties(device)
    return properties.major >= 9, properties.shared_memory_per_block_optin - 2048


def ceil_div(a: int, b: int) -> int:
    return (a + b - 1) // b
