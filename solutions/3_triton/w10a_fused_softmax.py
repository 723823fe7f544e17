"""Softmax over the rows of a matrix, in one kernel.

fused_softmax(x) takes a contiguous 2-D tensor of bfloat16 or float32, of any number of rows and 1 to 131072 columns.
It returns a new tensor of the same shape and dtype, out[r, c] = exp(x[r, c] - m) / sum of exp(x[r, :] - m), where m is
the maximum of row r. The arithmetic is float32, and right for finite values of any size.
Tensors may have more than 2**32 elements: offsets need 64 bits.

Begin with one row per program, all of it in one block of values: read it once, write it once. Then give a program
several rows where they are short. Rows that do not fit into the registers of one program need a loop.
Graded: the values, the bytes that are moved, and on a GPU the time against the formula written as operators.

Bytes: 2 tensors, 537 MB for 16384 x 8192 bfloat16, 0.13 ms at the 4.1 TB/s that an H200 copies with. Operations:
about 5 per value, a tenth of that time. So memory is the bound, if enough programs are in flight to keep it busy while
others reduce. That decides the shape of each kernel:

    columns     a row is held in    what keeps memory busy                               of the copy (H200, bfloat16)
    to 16384    registers           2 to 32 programs per SM, in different phases         0.99 to 8192, 0.95 at 16384
    to 32768    registers           the next two rows, on their way to shared memory     0.91
    beyond      L2, in chunks       one or two programs; a row is read twice             0.62 at 131072

The first is the fused softmax of Triton's tutorials, the second their persistent version, the third the online
normalizer of Milakov and Gimelshein (2018). A cluster of blocks that shares a row, as in Quack, would keep all of them
on chip; Triton 3.6 does not reduce across a cluster.
"""

import torch
import triton
import triton.language as tl

LOWEST = tl.constexpr(-3.4028234663852886e38)


@triton.jit
def softmax_rows(out, x, rows, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """One program for ROWS rows."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    inside = (row < rows) & (column < columns)
    begin = row.to(tl.int64) * columns
    values = tl.load(x + begin + column, mask=inside, other=-float("inf")).to(tl.float32)
    numerator = tl.exp(values - tl.max(values, axis=1, keep_dims=True))
    share = numerator * (1 / tl.sum(numerator, axis=1, keep_dims=True))  # one division per row
    tl.store(out + begin + column, share.to(out.dtype.element_ty), mask=inside)


@triton.jit
def softmax_pipelined(out, x, rows, columns, BLOCK: tl.constexpr, STAGES: tl.constexpr):
    """One program per SM: while it works on a row, the next ones are on their way to shared memory."""
    column = tl.arange(0, BLOCK)
    inside = column < columns
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0), num_stages=STAGES):
        begin = row.to(tl.int64) * columns
        values = tl.load(x + begin + column, mask=inside, other=-float("inf")).to(tl.float32)
        # Not exp2(values * LOG2_E - max * LOG2_E), a fused multiply-add: what one product is rounded by and the other
        # is not grows with max, until exp2 of it overflows.
        numerator = tl.exp(values - tl.max(values, axis=0))
        share = numerator * (1 / tl.sum(numerator, axis=0))
        tl.store(out + begin + column, share.to(out.dtype.element_ty), mask=inside)


@triton.jit
def softmax_chunks(out, x, columns, BLOCK: tl.constexpr):
    """One program per row that does not fit on the chip: one pass for the maximum and the sum, another to write."""
    begin = tl.program_id(0).to(tl.int64) * columns
    column = tl.arange(0, BLOCK)
    # A maximum and a sum for each lane of the block, reduced once at the end and not in every chunk.
    largest = tl.full([BLOCK], LOWEST, tl.float32)  # of float32: what lies beyond the row is -inf, and below it
    total = tl.zeros([BLOCK], tl.float32)
    for chunk in tl.range(0, columns, BLOCK):
        inside = chunk + column < columns
        values = tl.load(x + begin + chunk + column, mask=inside, other=-float("inf")).to(tl.float32)
        larger = tl.maximum(largest, values)
        total = total * tl.exp(largest - larger) + tl.exp(values - larger)
        largest = larger
    top = tl.max(largest, axis=0)
    scale = 1 / tl.sum(total * tl.exp(largest - top), axis=0)
    for chunk in tl.range(0, columns, BLOCK):
        inside = chunk + column < columns
        values = tl.load(x + begin + chunk + column, mask=inside, other=-float("inf")).to(tl.float32)
        share = tl.exp(values - top) * scale
        tl.store(out + begin + chunk + column, share.to(out.dtype.element_ty), mask=inside)


def fused_softmax(x: torch.Tensor) -> torch.Tensor:
    rows, columns = x.shape
    out = torch.empty_like(x)
    block = triton.next_power_of_2(columns)
    if block <= 16_384:
        rows_each = max(1, 1024 // block)
        warps = max(2, block // 512)  # 16 values per thread: two 16-byte loads of bfloat16
        softmax_rows[triton.cdiv(rows, rows_each),](out, x, rows, columns, rows_each, block, num_warps=warps)
    elif block <= 32_768:
        stages = 3 if x.element_size() == 2 else 2  # one row fewer than this waits in shared memory, 64 or 128 KB each
        programs = min(rows, multiprocessors(x.device))
        softmax_pipelined[programs,](out, x, rows, columns, block, stages, num_warps=32)
    else:
        softmax_chunks[rows,](out, x, columns, 16_384, num_warps=32)
    return out


def multiprocessors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1
