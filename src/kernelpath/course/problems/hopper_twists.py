"""Define variants of a GEMM on Hopper: storage of the operands, times an epilogue, times a 16-bit dtype.

All of them are within reach of one kernel with TMA, mbarriers and wgmma, and of a library only in several. The baseline
is the library's GEMM alone, without the epilogue: the statement requires 0.8 of the highest rate of this GPU.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from kernelpath.course import draw
from kernelpath.course.checkpoint import DeliverableVariant
from kernelpath.course.problem import Problem, Tolerance
from kernelpath.course.problems import matmul_layouts
from kernelpath.course.spec import Exercise, Traffic

Tensor = torch.Tensor

LARGEST = {"m": 256, "n": 256, "k": 256}
SPARE = 1.2
LEAST_SHARE = 0.8
CAP = 3.0


@dataclass(frozen=True)
class HopperEpilogue:
    """The operations after the sum.

    Attributes:
        further: The shape of each further tensor, by name.
        true: Computes the result from the sums and those tensors.
    """

    name: str
    formula: str
    further: dict[str, str]
    true: Callable[..., Tensor]


EPILOGUES = (
    HopperEpilogue(
        "residual", "sum + residual[row, column]", {"residual": "mn"}, lambda sums, residual: sums + residual
    ),
    HopperEpilogue(
        "scaled_rows",
        "scale[row] * sum + bias[column]",
        {"scale": "m", "bias": "n"},
        lambda sums, scale, bias: scale[:, None] * sums + bias,
    ),
    HopperEpilogue(
        "squared_relu",
        "max(0, sum + bias[column])^2",
        {"bias": "n"},
        lambda sums, bias: (sums + bias).clamp(min=0).square(),
    ),
    HopperEpilogue("capped", f"{CAP} * tanh(sum / {CAP})", {}, lambda sums: CAP * torch.tanh(sums / CAP)),
)

# The largest bias, scale or residual: its square is a float16, and does not outweigh the tensor cores' sums.
MAX_FURTHER_VALUE = 16
STORED = {"n": "by rows", "t": "by columns, as the transpose of a contiguous matrix"}
DTYPES = ("bfloat16", "float16")


def product(a: Tensor, b: Tensor, *further: Tensor) -> Tensor:
    """Compute the baseline: the library's GEMM without an epilogue."""
    return a @ b


def twist(layout: str, epilogue: HopperEpilogue, dtype: str) -> DeliverableVariant:
    """Return the variant of these parts."""

    def inputs(rng: torch.Generator, m: int, n: int, k: int) -> tuple[Any, ...]:
        """Generate sums with a deviation near 1, so that no epilogue hides an error or overflows."""
        a, b = matmul_layouts.inputs(rng, m, n, k, dtype, layout)
        a.clamp_(-4, 4).mul_(2.0 ** -round(math.log2(2 * k) / 2))
        sizes = {"m": m, "n": n}
        further = (draw.normal(rng, *(sizes[of] for of in shape), dtype=dtype) for shape in epilogue.further.values())
        return a, b, *(tensor.clamp_(-MAX_FURTHER_VALUE, MAX_FURTHER_VALUE) for tensor in further)

    def reference(a: Tensor, b: Tensor, *further: Tensor) -> Tensor:
        return epilogue.true(a.double() @ b.double(), *(tensor.double() for tensor in further))

    def compulsory_bytes(m: int, n: int, k: int) -> int:
        sizes = {"m": m, "n": n}
        extra = sum(math.prod(sizes[of] for of in shape) for shape in epilogue.further.values())
        return 2 * (m * k + k * n + m * n + extra)

    total_bytes = compulsory_bytes(**LARGEST)
    max_bytes_ratio = SPARE * (1 + 2 * 2 * 256 * 256 / total_bytes)  # tiles of 128 x 128 read a and b twice
    rounding = 2**-8 if dtype == "bfloat16" else 2**-11
    problem = Problem(
        inputs=inputs,
        # Rows and columns that TMA can describe begin at multiples of 16 bytes: sizes are multiples of 8.
        cases=(
            {"m": 8, "n": 8, "k": 8},
            {"m": 136, "n": 264, "k": 72},
            {"m": 200, "n": 64, "k": 328},
            LARGEST,
        ),
        vary=(),
        reference=reference,
        product_dtype=dtype,
        # One rounding of the result. Float32 sums and tanh.approx are off by less than 1e-3.
        tolerance={dtype: Tolerance(rtol=1.01 * rounding, atol=2e-3)},
        limits=({"m": 2056, "n": 8, "k": 8},),
        compulsory_bytes=compulsory_bytes,
        flops=lambda m, n, k: 2 * m * n * k,
    )
    exercise = Exercise(
        entry="product",
        problem=problem,
        aligned=True,
        bench={"m": 8192, "n": 8192, "k": 8192},
        baseline=product,
        min_speedup=LEAST_SHARE,
        arch="sm_90a",
        requires=(9, 0),
        specific=True,  # wgmma
        tensor_cores=True,
        launches=1,
        traffic=Traffic(sectors=2.0, bytes=max_bytes_ratio, edges=0.5),
    )
    name = f"{layout}+{epilogue.name}+{dtype}"
    return DeliverableVariant(name, exercise, {".py": _stub(layout, epilogue, dtype, max_bytes_ratio)})


def _stub(layout: str, epilogue: HopperEpilogue, dtype: str, max_bytes_ratio: float) -> str:
    shapes = {"a": f"(m, k), {STORED[layout[0]]}", "b": f"(k, n), {STORED[layout[1]]}"}
    shapes |= {name: f"({', '.join(shape)}{',' * (len(shape) == 1)})" for name, shape in epilogue.further.items()}
    arguments = ", ".join(shapes)
    # This text is a stub: its TODO is for the learner.
    return f'''"""The deliverable: a matrix product on Hopper with a twist.

    product({arguments})

takes {dtype} tensors,

{chr(10).join(f"    {name:<9} {shape}" for name, shape in shapes.items())}

and returns a new contiguous {dtype} tensor out of shape (m, n):

    out[row, column] = {epilogue.formula}
    where sum = sum over i < k of a[row, i] * b[i, column]

with float32 sums, rounded once at the end. m, n and k are multiples of 8. Every
tensor begins at a multiple of 16 bytes.

One kernel, in CuTe DSL or in CUDA C++. On a GPU it has to reach {LEAST_SHARE:g} of the
library's product alone at 8192 x 8192 x 8192, which is the most that the GPU
does. Without one, graded are the values, every wait, fence and arrival by the
machine's asynchronous checks, that tensor cores make the product, and the bytes
that the kernel moves: at 256 x 256 x 256 at most {max_bytes_ratio:.2f} times the compulsory
ones, as tiles of 128 x 128 do.
"""

import torch

from warpcheck.frontends import cute as lane


def product({arguments}):
    # TODO: out = a.new_empty(a.shape[0], b.shape[1]), then lane.run(host, ..., out)
    raise NotImplementedError("launch the kernel, then return out")
'''


# All 32 variants.
TWISTS = tuple(
    twist(layout, epilogue, dtype) for layout in matmul_layouts.LAYOUTS for epilogue in EPILOGUES for dtype in DTYPES
)
