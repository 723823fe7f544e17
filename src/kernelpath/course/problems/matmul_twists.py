"""Define variants of the tiled GEMM: how the operands are given, times an epilogue, times an odd tile.

Each is a problem of its own with its own reference in float64. Its scalars follow from the sizes of a case: two runs of
one case share them, and other cases have others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from kernelpath.course import draw
from kernelpath.course.checkpoint import DeliverableVariant
from kernelpath.course.condition import sensitivity
from kernelpath.course.problem import Problem
from kernelpath.course.problems import matmul
from kernelpath.course.spec import Exercise, Traffic

Tensor = torch.Tensor


@dataclass(frozen=True)
class Argument:
    """A further argument: a tensor with a shape in the letters m and n, or a number, `scalar(m, n, k)`."""

    name: str
    shape: str = ""
    scalar: Callable[[int, int, int], float | int] | None = None

    def generate(self, rng: torch.Generator, **sizes: int) -> Any:
        if self.scalar is not None:
            return self.scalar(sizes["m"], sizes["n"], sizes["k"])
        return draw.normal(rng, *(sizes[of] for of in self.shape))

    def bytes(self, **sizes: int) -> int:
        return 4 * torch.Size([sizes[of] for of in self.shape]).numel() if self.shape else 0

    @property
    def declaration(self) -> str:
        """Return the declaration as a parameter of a kernel."""
        if self.scalar is None:
            return f"const float* {self.name}"
        return f"{'int' if isinstance(self.scalar(1, 1, 1), int) else 'float'} {self.name}"

    @property
    def description(self) -> str:
        if self.shape:
            return f"({', '.join(self.shape)}{',' * (len(self.shape) == 1)})"
        return "an int from 0 to k" if self.name == "shift" else "a float"


@dataclass(frozen=True)
class Operands:
    """How a and b are given.

    Attributes:
        a: The shape of a.
        b: The shape of b.
        term: The summand over i, in the words of the statement.
        true: Returns both factors, from a, b and the further arguments.
        where: An explanation of the term.
    """

    name: str
    a: str
    b: str
    term: str
    true: Callable[..., tuple[Tensor, Tensor]]
    further: tuple[Argument, ...] = ()
    where: str = ""


@dataclass(frozen=True)
class Epilogue:
    """The operations on a sum.

    Attributes:
        formula: The formula, with {sum} instead of the sum.
        true: Computes the result from the product and the further arguments.
    """

    name: str
    formula: str
    true: Callable[..., Tensor]
    further: tuple[Argument, ...]


def _shifted(a: Tensor, b: Tensor, shift: int) -> tuple[Tensor, Tensor]:
    return a, b.roll(-shift, 0)


def _padded(a: Tensor, b: Tensor, shift: int, pad: float) -> tuple[Tensor, Tensor]:
    beyond = b.new_full((shift, b.shape[1]), pad)
    return a, torch.cat([b, beyond])[shift : shift + len(b)]


SHIFT = Argument("shift", scalar=lambda m, n, k: (k + 2) // 3)
PAD = Argument("pad", scalar=lambda m, n, k: 0.25 + (m + k) % 5)
OPERANDS = (
    Operands("a_transposed", "km", "kn", "a[i, row] * b[i, column]", lambda a, b: (a.T, b)),
    Operands("b_transposed", "mk", "nk", "a[row, i] * b[column, i]", lambda a, b: (a, b.T)),
    Operands("wrapped", "mk", "kn", "a[row, i] * b[(i + shift) % k, column]", _shifted, (SHIFT,)),
    Operands(
        *("padded", "mk", "kn", "a[row, i] * B(i + shift, column)", _padded, (SHIFT, PAD)),
        where="B(j, column) is b[j, column] for j < k, and pad for every j from k on.",
    ),
)
EPILOGUES = (
    Epilogue(
        "scaled",
        "alpha * {sum} + beta * c[row, column]",
        lambda x, c, alpha, beta: alpha * x + beta * c,
        (
            Argument("c", "mn"),
            Argument("alpha", scalar=lambda m, n, k: 0.5 + (m + 2 * n) % 7 / 4),
            Argument("beta", scalar=lambda m, n, k: -0.25 - (n + k) % 5 / 2),
        ),
    ),
    Epilogue("bias_rows", "{sum} + bias[row]", lambda x, bias: x + bias[:, None], (Argument("bias", "m"),)),
    Epilogue(
        "relu_columns",
        "max(0, {sum} + bias[column])",
        lambda x, bias: (x + bias).clamp(min=0),
        (Argument("bias", "n"),),
    ),
    Epilogue("scaled_rows", "scale[row] * {sum}", lambda x, scale: scale[:, None] * x, (Argument("scale", "m"),)),
)

# Rows and columns of out per block. Rows of 96 and 160 bytes fill whole sectors.
TILES = ((24, 24), (20, 24), (12, 40))

# Twice the minimum of sectors: if a step along k is as odd as the tile, rows begin in the middle of a sector.
LIMITS = Traffic(sectors=2.0, bank_conflicts=1.5, edges=0.5)

LARGEST = {"m": 120, "n": 120, "k": 120}  # whole tiles of each kind, and whole sectors


def _bytes_over_compulsory(rows: int, columns: int, further: tuple[Argument, ...]) -> float:
    """Return the bytes of a tiled GEMM at LARGEST over the compulsory ones.

    a is read once per column of tiles, b once per row.
    """
    extra = sum(argument.bytes(**LARGEST) for argument in further) / (4 * 120 * 120)
    return (120 / columns + 120 / rows + 1 + extra) / (3 + extra)


def twist(operands: Operands, epilogue: Epilogue, tile: tuple[int, int]) -> DeliverableVariant:
    """Return the variant of these parts."""
    further = (*epilogue.further, *operands.further)
    rows, columns = tile

    def inputs(rng: torch.Generator, **sizes: int) -> tuple[Any, ...]:
        a = draw.normal(rng, *(sizes[of] for of in operands.a))
        b = draw.normal(rng, *(sizes[of] for of in operands.b)).sub_(1)
        return a, b, *(argument.generate(rng, **sizes) for argument in further)

    def reference(a: Tensor, b: Tensor, *further_inputs: Any) -> Tensor:
        values = [value.double() if isinstance(value, Tensor) else value for value in further_inputs]
        of_epilogue = values[: len(epilogue.further)]
        of_operands = values[len(epilogue.further) :]
        left_factor, right = operands.true(a.double(), b.double(), *of_operands)
        return epilogue.true(left_factor @ right, *of_epilogue)

    def extreme(rng: torch.Generator, a: Tensor, b: Tensor, *further_inputs: Any) -> None:
        """Set the last element of a to infinity, which reaches one row of the product only."""
        # Only a kernel that reads or multiplies elements of other rows spreads it further.
        a[-1, -1] = float("inf")

    problem = Problem(
        inputs=inputs,
        cases=(
            {"m": 1, "n": 1, "k": 1},
            {"m": 23, "n": 25, "k": 24},
            {"m": 48, "n": 40, "k": 31},
            {"m": 13, "n": 121, "k": 65},
            {"m": 121, "n": 4, "k": 8},
            {"m": 1, "n": 129, "k": 61},
            LARGEST,
        ),
        vary=("m", "n", "k"),
        far=matmul.PROBLEM.far,
        reference=reference,
        # One more rounding, or two, does not show beside those of the sum, except where a single element is a
        # difference of its sum and another term.
        tolerance={"float32": replace(matmul.PROBLEM.tolerance["float32"], mtol=16 * 2**-24)},
        magnitudes=sensitivity(reference),
        extreme=extreme,
        compulsory_bytes=lambda m, n, k: (
            4 * (m * k + k * n + m * n) + sum(argument.bytes(m=m, n=n, k=k) for argument in further)
        ),
        flops=matmul.PROBLEM.flops,
    )
    max_bytes_ratio = 1.3 * _bytes_over_compulsory(rows, columns, further)
    exercise = Exercise(
        entry="matmul",
        problem=problem,
        block=(columns, rows, 1),
        traffic=replace(LIMITS, bytes=max_bytes_ratio),
    )
    name = f"{operands.name}+{epilogue.name}+{rows}x{columns}"
    return DeliverableVariant(name, exercise, _stub(operands, epilogue, further, tile, max_bytes_ratio))


def _stub(
    operands: Operands, epilogue: Epilogue, further: tuple[Argument, ...], tile: tuple[int, int], max_bytes_ratio: float
) -> dict[str, str]:
    rows, columns = tile
    names = ["a", "b", *(argument.name for argument in further)]
    shapes = {"a": f"({', '.join(operands.a)})", "b": f"({', '.join(operands.b)})"}
    shapes |= {argument.name: argument.description for argument in further}
    parameters = ["const float* a", "const float* b", *(argument.declaration for argument in further)]
    formula = epilogue.formula.format(sum="sum")
    # This text is a stub: its TODO is for the learner.
    python = f'''"""The deliverable: a tiled matrix product with a twist.

    matmul({", ".join(names)})

takes contiguous float32 tensors of any size, and numbers where it says so:

{chr(10).join(f"    {name:<6} {shape}" for name, shape in shapes.items())}

and returns a new contiguous float32 tensor out of shape (m, n):

    out[row, column] = {formula}
    where sum = sum over i < k of {operands.term}
{f"{chr(10)}{operands.where}{chr(10)}" if operands.where else ""}
The sums are strict float32: no TF32. Tensors are not always aligned to 16
bytes. They may have more than 2**32 elements: offsets need 64 bits.

Launch blocks of {columns} x {rows} threads (x along the columns of out). A block
makes {rows} rows and {columns} columns of out, from tiles of a and b in shared
memory; how deep they are along k is up to you.

Write the kernel in deliverable.cu and launch it here. Graded are the values,
the block, the bytes that the kernel moves (at 120 x 120 x 120 at most {max_bytes_ratio:.1f}
times the compulsory bytes), its sectors (at most {LIMITS.sectors:g} times the least that the
bytes of a line need) and its bank conflicts (at most {LIMITS.bank_conflicts:g} extra wavefronts
per request).
"""

import torch

from warpcheck.frontends import cuda


def matmul({", ".join(names)}):
    # TODO: allocate out, then launch cuda.kernel("deliverable.cu", "matmul")
    raise NotImplementedError("launch the kernel, then return out")
'''
    kernel = f"""__global__ void matmul({", ".join(parameters[:2])},
                       {"".join(f"{argument}, " for argument in parameters[2:])}
                       float* out, int m, int n, int k) {{
    // TODO: deliverable.py says what it computes
}}
"""
    return {".py": python, ".cu": kernel.replace(", \n", ",\n")}


# All 48 variants.
TWISTS = tuple(twist(operands, epilogue, tile) for operands in OPERANDS for epilogue in EPILOGUES for tile in TILES)
