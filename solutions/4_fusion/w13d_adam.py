"""AdamW over a list of tensors in one launch: horizontal fusion.

adamw(steps, lr, beta1, beta2, eps, weight_decay, *tensors) performs one step of AdamW on a whole model, in place, and
returns nothing. steps contains a number t per parameter, which counts that parameter's steps, including this one.
tensors are all parameters, then the gradients, the first moments (exp_avg), and the second moments (exp_avg_sq), each
in the same order. All parameters and gradients have the same dtype, float32 or bfloat16; the moments and the arithmetic
are float32. For each element p with gradient g and moments m and v:

    p = p - lr * weight_decay * p
    m = beta1 * m + (1 - beta1) * g
    v = beta2 * v + (1 - beta2) * g * g
    p = p - lr / (1 - beta1**t) * m / (sqrt(v) / sqrt(1 - beta2**t) + eps)

Tensors are contiguous and of any size, including empty. There may be thousands of them, with a few elements or a
billion. An address is a multiple of the element size, but not necessarily of anything larger. No two tensors share
memory. The grader checks the values, the bytes moved, and that there is one launch for the whole list. On a GPU, it
compares the time with one launch per tensor.

The grader enforces these limits on the largest case (model=odd tensors=41 step=20 dtype=float32 begin=aligned); smaller
cases get some slack for partial tiles. In total, global memory accesses may move at most 1.6 times the size of the
inputs and outputs. A call may launch at most 1 kernel.

Start with the table, with one row per tensor: its addresses, its length, and the values that depend on its step. Then
let each program find its tensor and its part of that tensor.

Bytes: a step reads p, g, m, and v and writes p, m, and v, 28 bytes per element in float32. For the 124 million
parameters of GPT-2, it moves 3.5 GB, which take 0.83 ms at the 4.2 TB/s at which an H200 copies. With about 15
operations per element, the kernel is memory-bound if launches don't limit it. GPT-2 has 148 tensors, and 98 of them are
vectors of at most 3072 elements, for which a kernel takes as long as for no elements at all.

The list becomes one array of chunks. A table in device memory has a row per tensor, with its addresses, its length, and
the two scalars that depend on its step. A second table contains the tensor of each program's chunk, so that a program
finds its work with two dependent loads. This second table is the larger one, half a megabyte for GPT-2, and depends
only on the lengths, so it stays on the device from step to step. The first table is built in each step, so that tensors
may move. An address from a table tells the compiler nothing about its alignment. For full chunks of aligned tensors,
the kernel promises the alignment (tl.multiple_of), which leads to 16-byte accesses. PyTorch's fused optimizers and
NVIDIA's Apex do the same, but they pass their tables as kernel arguments, whose size is limited, so a long list takes
several launches.
"""

from functools import lru_cache

import numpy as np
import torch
import triton
import triton.language as tl

BLOCK, WARPS = 1024, 4
ALIGNMENT = 16

# A row of the table: eight words.
ROW = np.dtype(
    [
        ("param", "i8"),
        ("grad", "i8"),
        ("exp_avg", "i8"),
        ("exp_avg_sq", "i8"),
        ("numel", "i8"),
        ("first", "i8"),  # the tensor's first chunk
        ("aligned", "i8"),
        ("step_size", "f4"),
        ("denominator", "f4"),
    ]
)


@triton.jit
def chunk(address, start, DTYPE: tl.constexpr, BLOCK: tl.constexpr, ALIGNED: tl.constexpr):
    """Return pointers to BLOCK elements of the tensor at an address."""
    first = address.to(tl.pointer_type(DTYPE)) + start
    # Pointers of different shapes have different layouts. In the aligned ones', a thread has four neighboring elements,
    # so without 16-byte accesses, the lanes of a warp would be 16 bytes apart.
    return tl.multiple_of(first, 16) + tl.arange(0, BLOCK) if ALIGNED else first + tl.arange(0, BLOCK)[None, :]


@triton.jit
def update(row, start, mask, scalars, PARAM: tl.constexpr, BLOCK: tl.constexpr, ALIGNED: tl.constexpr):
    """Perform one step on a chunk of the tensor that this row of the table describes."""
    step_size, denominator, decay, beta1, rest1, beta2, rest2, eps = scalars
    p = chunk(tl.load(row), start, PARAM, BLOCK, ALIGNED)
    g = chunk(tl.load(row + 1), start, PARAM, BLOCK, ALIGNED)
    m = chunk(tl.load(row + 2), start, tl.float32, BLOCK, ALIGNED)
    v = chunk(tl.load(row + 3), start, tl.float32, BLOCK, ALIGNED)
    grad = tl.load(g, mask=mask).to(tl.float32)
    moment = beta1 * tl.load(m, mask=mask) + rest1 * grad
    square = beta2 * tl.load(v, mask=mask) + rest2 * grad * grad
    param = tl.load(p, mask=mask).to(tl.float32)
    param = decay * param - step_size * moment / (tl.sqrt_rn(square) * denominator + eps)
    tl.store(m, moment, mask=mask)
    tl.store(v, square, mask=mask)
    tl.store(p, param.to(PARAM), mask=mask)


@triton.jit
def adamw_chunks(table, owners, decay, beta1, rest1, beta2, rest2, eps, PARAM: tl.constexpr, BLOCK: tl.constexpr):
    """Update one chunk of BLOCK elements of one tensor per program."""
    row = table + 8 * tl.load(owners + tl.program_id(0))
    numel, first, aligned, floats = tl.load(row + 4), tl.load(row + 5), tl.load(row + 6), tl.load(row + 7)
    start = (tl.program_id(0) - first) * BLOCK
    step_size = floats.to(tl.int32).to(tl.float32, bitcast=True)
    denominator = (floats >> 32).to(tl.int32).to(tl.float32, bitcast=True)
    scalars = step_size, denominator, decay, beta1, rest1, beta2, rest2, eps
    if (aligned != 0) & (start + BLOCK <= numel):
        update(row, start, None, scalars, PARAM, BLOCK, True)
    else:
        update(row, start, tl.arange(0, BLOCK)[None, :] < numel - start, scalars, PARAM, BLOCK, False)


@lru_cache(maxsize=8)
def owners_of(chunks: tuple[int, ...], device: torch.device, stream: int) -> torch.Tensor:
    """Return the index of each chunk's tensor, on the device.

    stream: a different stream would not wait for the copy, so each stream gets its own table.
    """
    owners = np.repeat(np.arange(len(chunks), dtype=np.int32), chunks)
    return torch.from_numpy(owners).to(device, non_blocking=True)


def adamw(
    steps: list[int],
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    *tensors: torch.Tensor,
) -> None:
    count = len(steps)
    params = tensors[:count]
    table = np.zeros(count, ROW)
    for name, index in (("param", 0), ("grad", 1), ("exp_avg", 2), ("exp_avg_sq", 3)):
        table[name] = [x.data_ptr() for x in tensors[index * count : (index + 1) * count]]
    table["numel"] = [x.numel() for x in params]
    chunks = (table["numel"] + BLOCK - 1) // BLOCK
    num_chunks = int(chunks.sum())
    if not num_chunks:
        return
    table["first"] = np.cumsum(chunks) - chunks
    table["aligned"] = (table["param"] | table["grad"] | table["exp_avg"] | table["exp_avg_sq"]) % ALIGNMENT == 0
    t = np.array(steps, np.float64)
    table["step_size"] = lr / (1 - beta1**t)
    table["denominator"] = 1 / np.sqrt(1 - beta2**t)
    device = params[0].device
    stream = torch.cuda.current_stream(device).cuda_stream if device.type == "cuda" else 0
    owners = owners_of(tuple(chunks.tolist()), device, stream)
    # No wait is necessary for this copy: pageable memory is read before the call returns
    rows = torch.from_numpy(table.view(np.int64)).to(device, non_blocking=True)
    dtype = tl.bfloat16 if params[0].dtype == torch.bfloat16 else tl.float32
    grid = (num_chunks,)
    scalars = 1 - lr * weight_decay, beta1, 1 - beta1, beta2, 1 - beta2, eps
    adamw_chunks[grid](rows, owners, *scalars, dtype, BLOCK, num_warps=WARPS)
