"""Residual addition and RMS normalization in one kernel: vertical fusion.

Week 14. h = x + residual, and y = h * weight / sqrt(mean(h^2) + eps) along each row, computed in float32.
"""

import torch

from kernelpath.course import draw
from kernelpath.course.spec import Exercise, Question, Tolerance, Traffic

BYTES = {"float32": 4, "bfloat16": 2}
EPS = 1e-6


def inputs(
    rng: torch.Generator, rows: int, columns: int, dtype: str
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """x and residual, with rows of very different size, and a weight for each column."""
    x = draw.normal(rng, rows, columns, dtype=dtype, large=rows // 8)
    residual = draw.normal(rng, rows, columns, dtype=dtype, large=rows // 8)
    return x, residual, draw.normal(rng, columns, dtype=dtype, large=0)


def reference(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    h = (x.double() + residual.double()).to(x.dtype).double()
    return h * (h.square().mean(dim=1, keepdim=True) + EPS).rsqrt() * weight.double(), h


def unfused(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """An operator for each step: the normalization reads again what the addition has just written."""
    h = x + residual
    return torch.nn.functional.rms_norm(h, (h.shape[1],), weight, EPS), h


EXERCISE = Exercise(
    entry="add_rmsnorm",
    inputs=inputs,
    cases=(
        {"rows": 1, "columns": 1, "dtype": "float32"},
        {"rows": 5, "columns": 127, "dtype": "bfloat16"},
        {"rows": 5, "columns": 128, "dtype": "bfloat16"},
        {"rows": 5, "columns": 129, "dtype": "bfloat16"},
        {"rows": 33, "columns": 1009, "dtype": "bfloat16"},
        {"rows": 3, "columns": 12_288, "dtype": "float32"},
        {"rows": 35, "columns": 2048, "dtype": "float32"},
    ),
    vary=("rows", "columns"),
    reference=reference,
    tolerance={"float32": Tolerance(rtol=2e-6, atol=1e-6), "bfloat16": Tolerance(rtol=4e-3, atol=1e-6)},
    bench={"rows": 16_384, "columns": 8192, "dtype": "bfloat16"},  # four tensors of 256 MiB
    baseline=unfused,
    min_speedup=1.0,
    bytes_moved=lambda rows, columns, dtype: BYTES[dtype] * (4 * rows * columns + columns),
    flops=lambda rows, columns, dtype: 5 * rows * columns,
    traffic=Traffic(sectors=1.3, bank_conflicts=1.0, bytes=1.4),  # reading h again makes it 1.5
    hints=(
        "Count the tensors that each version moves. The addition reads two and writes one, the normalization reads one"
        " and writes one. Which of these five does a kernel not need that still has h in its registers?",
        "One program a row, as in the softmax: load x and residual as blocks, add in float32, store h. The sum of h * h"
        " is one tl.sum; everything else is element by element, in registers.",
        "h = (x + residual).to(h_ptr.dtype.element_ty); tl.store(h_ptr + offsets, h, mask=mask); h = h.to(tl.float32);"
        " scale = tl.rsqrt(tl.sum(h * h, axis=0) / columns + eps); tl.store(y_ptr + offsets, h * scale * weight,"
        " mask=mask)."
        " Values past the end are loaded as 0, so that they add nothing to the sum; divide by columns, not by BLOCK.",
    ),
    questions=(
        Question(
            ask="By which factor does fusing the addition and the normalization reduce the bytes that are moved, if the"
            " unfused normalization reads h once?",
            answer=1.25,
            why="Unfused: x, residual and h, then h and y: 5 tensors. Fused: x, residual, h and y: 4 tensors.",
            predict=True,
        ),
        Question(
            ask="Why must h be written at all, if y is what the next layer reads?",
            choices=(
                "it is the residual that the next addition reads",
                "the sum of squares is taken from memory",
                "Triton cannot keep it in registers",
            ),
            answer="it is the residual that the next addition reads",
            why="In a transformer block the residual stream goes on past the normalization: the next block adds to h.",
        ),
        Question(
            ask="Each row also needs the weights, one a column. At 16384 x 8192 in bfloat16, how many MB (10^6 bytes)"
            " does this add to the traffic of DRAM, if they are read once and stay in the L2?",
            answer=0.0164,
            tolerance=0.02,
            why="8192 * 2 bytes are 16 KB, read from DRAM once and from the L2 16,384 times: nothing beside 1074 MB.",
        ),
        Question(
            ask="A learner sums the squares of h one by one in bfloat16, 8192 values near 1. What becomes of the sum?",
            choices=("it stops growing near 256", "it is right to 0.4 %", "it overflows"),
            answer="it stops growing near 256",
            why="bfloat16 has 8 significant bits: at 256 the next number is 258, so that adding 1 rounds back to 256."
            " This is why sums are kept in float32.",
        ),
    ),
    explain="Vertical fusion pays exactly what it saves in bytes, here 5 tensors against 4, and that can be known"
    " before a line is written. It stops paying where the fused kernel holds so much that too few programs fit on a"
    " multiprocessor, or where two kernels want different shapes: the addition does not care about rows, the reduction"
    " does. An expert looks next at the neighbours: the matrix product before can add the residual in its epilogue,"
    " and the one after could take the scale of each row as a factor of its output, so that the normalization"
    " disappears as a kernel. For the backward pass one number a row, the scale, is worth keeping.",
)
