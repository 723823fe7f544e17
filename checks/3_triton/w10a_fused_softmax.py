"""Fused softmax: the row as one block of values, read once and written once.

Week 10. out[i, :] = exp(x[i, :] - max) / sum for a contiguous float32 or bfloat16 matrix, computed in float32.
"""

import torch

from kernelpath.course import draw
from kernelpath.course.spec import Exercise, Question, Tolerance, Traffic

BYTES = {"float32": 4, "bfloat16": 2}


def inputs(rng: torch.Generator, rows: int, columns: int, dtype: str) -> tuple[torch.Tensor]:
    """Every second row lies near 100, where exp overflows; one row in eight is decided by a single value."""
    x = draw.normal(rng, rows, columns, dtype=dtype, large=rows // 8)
    x[::2] += 100
    return (x,)


def reference(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x.double(), dim=1)


def unfused(x: torch.Tensor) -> torch.Tensor:
    """Softmax as its formula reads: five operators that move eight tensors where two would do."""
    numerator = torch.exp(x - x.amax(dim=1, keepdim=True))
    return numerator / numerator.sum(dim=1, keepdim=True)


EXERCISE = Exercise(
    entry="fused_softmax",
    inputs=inputs,
    cases=(
        {"rows": 1, "columns": 1, "dtype": "float32"},
        {"rows": 5, "columns": 127, "dtype": "bfloat16"},
        {"rows": 5, "columns": 128, "dtype": "bfloat16"},
        {"rows": 5, "columns": 129, "dtype": "bfloat16"},
        {"rows": 33, "columns": 1009, "dtype": "float32"},
        {"rows": 3, "columns": 20_480, "dtype": "bfloat16"},
        {"rows": 1, "columns": 40_960, "dtype": "bfloat16"},
        {"rows": 67, "columns": 2048, "dtype": "float32"},
    ),
    vary=("rows", "columns"),
    reference=reference,
    tolerance={
        # Rounding the result to bfloat16 alone costs 2^-8 = 3.9e-3; rounding anything on the way there costs more.
        "float32": Tolerance(rtol=2e-5, atol=1e-6),
        "bfloat16": Tolerance(rtol=4e-3, atol=1e-6),
    },
    bench={"rows": 16_384, "columns": 8192, "dtype": "bfloat16"},  # 512 MiB in and out, 9 times the L2 of an H200
    baseline=unfused,
    min_speedup=5.5,  # on an H200 the baseline moves 513 GB/s of compulsory bytes, the reference kernel 4089
    bytes_moved=lambda rows, columns, dtype: 2 * BYTES[dtype] * rows * columns,
    flops=lambda rows, columns, dtype: 5 * rows * columns,
    traffic=Traffic(sectors=1.3, bank_conflicts=1.0, bytes=1.2),
    hints=(
        "In Triton a program works on a block of values, not on one. Let a program hold a whole row: which block size,"
        " known when the kernel is compiled, holds any row of `columns` values?",
        "triton.next_power_of_2(columns) values, with a mask for those past the end. Load them with other=-inf, so that"
        " they change neither the maximum nor the sum. tl.max and tl.sum reduce a block to one number.",
        "x = tl.load(x_ptr + row * columns + tl.arange(0, BLOCK), mask=..., other=-float('inf')).to(tl.float32);"
        " e = tl.exp(x - tl.max(x, axis=0)); tl.store(..., e / tl.sum(e, axis=0), mask=...). Launch one program a row"
        " and choose num_warps so that a thread holds 8 to 32 values. Rows beyond about 32,768 values no longer fit"
        " into the registers of a block: walk over those in chunks.",
    ),
    questions=(
        Question(
            ask="A row has 1000 columns and BLOCK is 1024. What must the 24 values past the end be, so that the result"
            " is right whatever the row holds?",
            choices=("0", "-inf", "1", "the row's first value"),
            answer="-inf",
            why="-inf never is the maximum, and exp(-inf - max) is 0, so that nothing is added to the sum. A 0 would be"
            " the maximum of a row of negative numbers, and would add 24 * exp(-max) to the sum.",
        ),
        Question(
            ask="A row of 8192 values is held in float32 by 16 warps. How many values does a thread hold?",
            answer=16.0,
            why="16 warps are 512 threads, and 8192 / 512 = 16. Triton deals them out so that each thread loads 8"
            " bfloat16 values with one 16-byte access.",
        ),
        Question(
            ask="The fused kernel reads and writes 16384 x 8192 bfloat16 values. How many milliseconds does it take at"
            " 4.1 TB/s?",
            answer=0.131,
            tolerance=0.02,
            predict=True,
            why="2 * 16384 * 8192 * 2 bytes are 537 MB; 537e6 / 4.1e12 is 0.131 ms. The arithmetic, 5 operations a"
            " value, would take a tenth of that.",
        ),
        Question(
            ask="Why does a kernel that holds 32,768 columns a program reach a smaller share of the bandwidth than one"
            " that holds 8192?",
            choices=(
                "fewer programs fit on a multiprocessor, so that memory idles while they reduce",
                "the sum of 32,768 values takes longer than their transfer",
                "its loads are no longer coalesced",
            ),
            answer="fewer programs fit on a multiprocessor, so that memory idles while they reduce",
            why="32,768 float32 values take half of the register file. A single program is resident, and it loads, then"
            " reduces, then stores: nothing is in flight while it reduces. Two or more programs fill each other's"
            " gaps.",
        ),
    ),
    explain="An expert asks what keeps memory busy while a program reduces. Short rows: many small programs. Long"
    " rows: too few fit, so the loads of the next row are started before this one is done, with num_stages on a loop"
    " over rows, which Triton turns into cp.async and a ring in shared memory. Rows longer than the registers go in"
    " chunks, with a maximum and a sum that are rescaled as they grow (the online softmax, which attention needs in"
    " week 12). On Hopper a cluster of blocks can hold one row together and exchange two numbers. What Triton decided"
    " for you: which thread holds which value, the width of each access, and the shuffles and barriers of every"
    " reduction; the PTX shows them.",
)
