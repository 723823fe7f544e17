"""Softmax: the launch.

softmax(x) takes a contiguous bfloat16 or float32 matrix with any number of rows and at least one column; rows of more
than 262144 columns must work, too. It returns the softmax of each row as a new tensor of the same dtype, computed in
float32, for finite values of any size. x is not always aligned to 16 bytes. Tensors may have more than 2**32 elements,
so offsets need 64 bits.

Write the kernel in w07a_softmax.cu, then launch it here. The grader checks the values, the bytes that the kernel moves
(one read and one write are enough), and, on a GPU, the time compared with the formula written as five PyTorch
operators.

The grader enforces these limits on the largest case (rows=128 columns=2048 dtype=float32); smaller cases get some slack
for partial tiles. Each load or store may touch at most 1.3 times the sectors that its bytes require. In total, global
memory accesses may move at most 1.2 times the size of the inputs and outputs. Bank conflicts may add at most 1
wavefront per request.

Traffic: one read and one write, 4 bytes per element in bfloat16 and 8 in float32, and two exponentials per element. The
measured ceiling is a copy. The kernel is memory-bound, but with little margin: at 4.2 TB/s, 4 bfloat16 elements per
cycle pass through an SM of an H200, and its 16 exponentials per cycle are enough for 8.

The speed depends on where a row is kept, and on how many rows an SM has in different phases. Speed relative to a copy
of 2^27 elements:

- up to 1024 columns, a row is divided among lanes of a warp so that each lane holds two or three vectors: 0.98 to 1.01
  for rows of whole vectors.
- up to 8192 columns, a row is in the registers of a block: 0.97 to 1.00.
- up to 72 KiB, a row is in the shared memory of a block, and three blocks fit on an SM: 0.96 to 0.98.
- longer rows are in registers and shared memory, and above 144 KiB they are spread over several SMs, a cluster: float32
  0.93 to 0.97, bfloat16 0.86 to 0.94.
- a row with an odd number of columns has elements before its first whole vector and after its last. One thread handles
  each of these elements, and 5003 columns reach 0.96 in bfloat16.

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
    width = 16 // x.element_size() if x.data_ptr() % 16 == out.data_ptr() % 16 else 1
    if columns < 4 * width:
        width = 1
    held = 32 // width if width > 1 else 8
    if columns // width <= 256 * held:
        launch_short(x, out, width, held)
    else:
        launch_long(x, out, width, held)
    return out


def launch_short(x: torch.Tensor, out: torch.Tensor, width: int, most: int) -> None:
    """Give a row to some lanes with two to four vectors each, or to a warp or a block with up to `most` per thread."""
    rows, columns = x.shape
    vectors = columns // width
    lanes = min(32, 1 << max(0, (vectors // 2).bit_length() - 1))
    if is_ragged(x, width):
        lanes = max(lanes, 2 * width)  # a lane for each element before and after the vectors
    if vectors <= 32 * most:
        threads, rows_each, held = lanes, 128 // lanes, max(1, ceil_div(vectors, lanes))
    else:
        threads, rows_each, held = 32 * ceil_div(vectors, 32 * most), 1, most
    arguments = f"{C_TYPE[x.dtype]}, {width}, {lanes}, {held}, {str(is_ragged(x, width)).lower()}"
    kernel = cuda.kernel("w07a_softmax.cu", f"softmax<{arguments}>", FAST)
    kernel[ceil_div(rows, rows_each), (threads, rows_each)](x, out, rows, columns)


def launch_long(x: torch.Tensor, out: torch.Tensor, width: int, held: int) -> None:
    """Give a row to one block, or to a cluster of up to eight. An SM has three of them, or two that also use registers.

    At 131072 columns on an H200, three are faster in bfloat16 (0.91 of a copy, not 0.85), and two in float32 (0.96, not
    0.92).
    """
    rows, columns = x.shape
    vector_bytes, nbytes = width * x.element_size(), columns * x.element_size()
    has_clusters, shared_limit = on_chip(x.device)
    blocks = 3 if nbytes <= 72 * KIB or (nbytes > 144 * KIB and x.dtype == torch.bfloat16) else 2
    share = 72 * KIB if blocks == 3 else 144 * KIB
    cluster = min(8, 1 << (ceil_div(nbytes, share) - 1).bit_length()) if has_clusters else 1
    if blocks == 3 or width == 1:
        held = 0
    kept = min(ceil_div(columns // width, cluster) - 512 * held, shared_limit // vector_bytes)
    arguments = f"{C_TYPE[x.dtype]}, {width}, {held}, {blocks}, {cluster}, {str(is_ragged(x, width)).lower()}"
    kernel = cuda.kernel("w07a_softmax.cu", f"softmax_long<{arguments}>", FAST)
    kernel[rows * cluster, 512, kept * vector_bytes](x, out, columns, kept)


def is_ragged(x: torch.Tensor, width: int) -> bool:
    """Return whether rows start or end within a vector."""
    return x.shape[1] % width > 0 or x.data_ptr() % (width * x.element_size()) > 0


def on_chip(device: torch.device) -> tuple[bool, int]:
    """Return whether clusters can share memory, and how many bytes of shared memory one block may have."""
    properties = torch.cuda.get_device_properties(device)
    return properties.major >= 9, properties.shared_memory_per_block_optin - 2 * KIB


def ceil_div(a: int, b: int) -> int:
    return (a + b - 1) // b
