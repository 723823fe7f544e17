"""Softmax: the launch.

softmax(x) takes a contiguous matrix, bfloat16 or float32, of any number of rows and of 1 to 262144 columns and more.
It returns the softmax of each row as a new tensor of the same dtype, computed in float32, for finite values of any
size. x is not always aligned to 16 bytes.
Tensors may have more than 2**32 elements: offsets need 64 bits.

Write the kernel in w07a_softmax.cu, then launch it here. Graded: the values, the bytes that the kernel moves (one read
and one write suffice), and on a GPU the time against the formula in five torch operators.

Traffic: one read and one write, 4 bytes per element in bfloat16 and 8 in float32, and two exponentials per element. The
speed of light is a copy. Memory is the bound, with less to spare than one might think: at 4.2 TB/s an SM of an H200
passes 4 bfloat16 elements per cycle, and its 16 exponentials per cycle serve 8.

How a row is kept decides the speed. Up to 8192 columns registers are the best place. A row of 32768 fills the
registers of an SM with one block, which loads, reduces and stores in turn: 0.82 of a copy. In shared memory two such
rows fit, each in another phase: 0.98. Longer rows need the shared memory of several SMs, a cluster: 0.87 to 0.9.

Maximum and sum in one sweep: Milakov and Gimelshein, "Online normalizer calculation for softmax" (2018). Rows over
clusters: Quack.
"""

import torch

from kernelpath.lanes import cuda

C_TYPE = {torch.float32: "float", torch.bfloat16: "__nv_bfloat16"}
KIB = 1024
FAST = ("--use_fast_math",)  # exp as one multiplication and ex2.approx


def softmax(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    if x.numel() == 0:
        return out
    columns = x.shape[1]
    width = 16 // x.element_size()
    if columns % width or x.data_ptr() % 16:
        width = 1
    elements = 32 if width > 1 else 8
    if columns <= 256 * elements:
        launch_short(x, out, width, elements)
    else:
        launch_long(x, out, width)
    return out


def launch_short(x: torch.Tensor, out: torch.Tensor, width: int, elements: int) -> None:
    """A row to as many warps as hold it at `elements` a thread; rows of a single warp share a block by fours."""
    rows, columns = x.shape
    threads = ceil_div(columns, 32 * elements) * 32
    rows_each = 4 if threads == 32 else 1
    kernel = cuda.kernel("w07a_softmax.cu", f"softmax<{C_TYPE[x.dtype]}, {width}, {elements // width}>", FAST)
    kernel[ceil_div(rows, rows_each), (threads, rows_each)](x, out, rows, columns)


def launch_long(x: torch.Tensor, out: torch.Tensor, width: int) -> None:
    """A row to a block, or past 128 KiB to a cluster of up to eight blocks with 64 KiB each."""
    rows, columns = x.shape
    vector_bytes = width * x.element_size()
    has_clusters, shared_limit = on_chip(x.device)
    cluster = 1
    if has_clusters and columns * x.element_size() > 128 * KIB:
        cluster = min(8, 1 << (ceil_div(columns * x.element_size(), 64 * KIB) - 1).bit_length())
    share = ceil_div(columns // width, cluster)
    kept = min(share, shared_limit // vector_bytes)
    threads = 1024 if cluster == 1 and share > 2048 else 512
    kernel = cuda.kernel("w07a_softmax.cu", f"softmax_long<{C_TYPE[x.dtype]}, {width}, {cluster}>", FAST)
    kernel[rows * cluster, threads, kept * vector_bytes](x, out, columns, kept)


def on_chip(device: torch.device) -> tuple[bool, int]:
    """Whether blocks can share their memory in clusters, and the bytes of it that one block may have."""
    if device.type == "cpu":
        return False, 160 * KIB
    properties = torch.cuda.get_device_properties(device)
    return properties.major >= 9, properties.shared_memory_per_block_optin - 2 * KIB


def ceil_div(a: int, b: int) -> int:
    return (a + b - 1) // b
