"""Softmax: one read and one write, with the row kept on the chip.

Week 7. out[i, :] = exp(x[i, :] - max) / sum for a contiguous float32 or bfloat16 matrix, computed in float32.
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
    """Softmax as its formula reads: an operator for each step, eight passes over memory where two would do."""
    e = torch.exp(x - x.amax(dim=1, keepdim=True))
    return e / e.sum(dim=1, keepdim=True)


EXERCISE = Exercise(
    entry="softmax",
    inputs=inputs,
    cases=(
        {"rows": 1, "columns": 1, "dtype": "float32"},
        {"rows": 33, "columns": 31, "dtype": "float32"},
        {"rows": 5, "columns": 255, "dtype": "bfloat16"},
        {"rows": 5, "columns": 256, "dtype": "bfloat16"},
        {"rows": 5, "columns": 257, "dtype": "bfloat16"},
        {"rows": 17, "columns": 1009, "dtype": "float32"},
        {"rows": 2, "columns": 32_771, "dtype": "bfloat16"},
        {"rows": 1, "columns": 262_144, "dtype": "bfloat16"},
        {"rows": 128, "columns": 2048, "dtype": "float32"},
    ),
    vary=("rows", "columns"),
    reference=reference,
    tolerance={
        # float32 inside is off by 5e-6 at most (where exp is exp2 of a rounded product); TF32 inside by 5e-4 in the
        # median, and nine in ten elements fail. Rounding the result to bfloat16 alone costs 2^-8 = 3.9e-3; bfloat16
        # inside costs up to 3e-2, and a third of the elements fail.
        "float32": Tolerance(rtol=2e-5, atol=1e-6),
        "bfloat16": Tolerance(rtol=4e-3, atol=1e-6),
    },
    bench={"rows": 16_384, "columns": 8192, "dtype": "bfloat16"},  # 512 MiB in and out, 9 times the L2 of an H200
    # Not torch.softmax: on one H200 it moves 2261 GB/s at 1024 columns and 1072 at 8192. A gate that hangs on one
    # shape of one library does not carry to the next GPU; a ratio of bytes does. The formula moves 8 tensors for 2.
    baseline=unfused,
    min_speedup=5.5,  # on an H200 the baseline moves 513 GB/s of compulsory bytes, the reference kernel 4088
    bytes_moved=lambda rows, columns, dtype: 2 * BYTES[dtype] * rows * columns,
    flops=lambda rows, columns, dtype: 5 * rows * columns,
    traffic=Traffic(sectors=1.3, bank_conflicts=1.0, bytes=1.2),
    hints=(
        "Count passes over memory. The formula reads x for the maximum, again for the sum and a third time for the"
        " result. How much of a row fits into the registers of one block?",
        "Give each row one block (or one warp, if it is short). Every thread loads its share of the row once and keeps"
        " it in registers; a maximum and then a sum over the block need only two reductions: shuffles inside a warp,"
        " one value a warp through shared memory. Then each thread scales what it holds and writes it.",
        "for (int step = 16; step > 0; step /= 2) m = fmaxf(m, __shfl_xor_sync(0xffffffff, m, step)); gives every lane"
        " the maximum of its warp. Do the same with + for the sum of expf(v[k] - m), after lane 0 of each warp has"
        " put its maximum into shared memory and all have read them behind a __syncthreads(). Start m at -INFINITY and"
        " leave out lanes past the end of the row. Rows too long for the registers wait in dynamic shared memory.",
    ),
    questions=(
        Question(
            ask="`e = exp(x - x.amax(1))`, then `e / e.sum(1)`, as five operators on a large matrix. How many times the"
            " bytes of a fused kernel do they move?",
            answer=4.0,
            why="amax reads 1 tensor, the difference reads 1 and writes 1, exp reads 1 and writes 1, the sum reads 1,"
            " the quotient reads 1 and writes 1: 8 tensors. Fused: one read and one write.",
            predict=True,
        ),
        Question(
            ask="Above which x does exp(x) overflow in float32?",
            answer=88.7,
            tolerance=0.01,
            why="The largest float32 is 3.4e38, and ln(3.4e38) = 88.7. bfloat16 has the same exponent, so the same"
            " limit. With the maximum subtracted no argument is above 0, and the sum is at least 1.",
        ),
        Question(
            ask="An online softmax has seen a maximum of 1 and a sum of 5. The next value is 3. What is the sum then?",
            answer=1.677,
            tolerance=0.01,
            why="The old sum was taken relative to 1; relative to 3 it is 5 * exp(1 - 3) = 0.677. The new value adds"
            " exp(3 - 3) = 1.",
        ),
        Question(
            ask="A row of 32,768 bfloat16 values is held by one block of 1024 threads, as float32 in registers. How"
            " many registers a thread does the row take?",
            answer=32.0,
            why="32,768 values over 1024 threads are 32 each, one register a value. A block of 1024 threads may use"
            " 64 registers a thread, so this fits and twice the row does not: it has to stay packed, or wait in shared"
            " memory.",
        ),
    ),
    explain="Once the row is read once, what remains is to keep memory busy while a block thinks. A block alternates"
    " between loading, two reductions with barriers, and storing, so an SM needs several blocks in different phases, or"
    " loads of the next row started early (cp.async, or a bulk copy on Hopper). An expert picks threads per row by its"
    " length (a warp for 1024 columns, a block for 8192), keeps bfloat16 packed to save registers, and for"
    " rows beyond the shared memory of one SM splits the row over a cluster of blocks that exchange maximum and sum."
    " The online form (one pass that rescales its sum) is not needed where the row fits the chip; it is what makes"
    " attention possible where it does not (week 12).",
)
