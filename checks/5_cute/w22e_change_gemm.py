"""Change requests: a GEMM that somebody else wrote, changed in three places.

Week 22. Another order of the tiles, a fused epilogue, and another storage of an operand, with few changed statements.
"""

from dataclasses import replace

import torch

from kernelpath.course import draw
from kernelpath.course.problem import EXACT, Problem
from kernelpath.course.problems import matmul_half
from kernelpath.course.problems.broken import broken_kernels
from kernelpath.course.problems.matmul_layouts import stored
from kernelpath.course.spec import BrokenKernel, Exercise

TILE = 64
GROUP = 4
TOLERANCE = {"bfloat16": matmul_half.PROBLEM.tolerance["bfloat16"], "int32": EXACT}

CHANGES = {
    # The kernel as it was given is right, but does something else.
    "order": BrokenKernel(("WrongValues",), changes=6),
    "epilogue": BrokenKernel(("WrongValues",), changes=8),
    "major": BrokenKernel(("WrongValues",), changes=4),
}


def inputs(rng: torch.Generator, m: int, n: int, k: int, layout: str) -> tuple[torch.Tensor, ...]:
    """Return a, stored by rows ("n") or by columns ("t"), and b by rows."""
    a, b = matmul_half.inputs(rng, m, n, k, "bfloat16")
    return stored(a, layout), b.T.contiguous()


def inputs_with_bias(rng: torch.Generator, m: int, n: int, k: int, layout: str) -> tuple[torch.Tensor, ...]:
    return (*inputs(rng, m, n, k, layout), draw.normal(rng, n, dtype="bfloat16", large=0))


def order_of_tiles(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Number the tiles in groups of GROUP rows, each group column by column."""
    down, across = -(-len(a) // TILE), -(-len(b) // TILE)
    order = torch.empty(down, across, dtype=torch.int32)
    block = 0
    for first in range(0, down, GROUP):
        for column in range(across):
            for row in range(first, min(first + GROUP, down)):
                order[row, column] = block
                block += 1
    return order


def product(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return matmul_half.reference(a, b.T), order_of_tiles(a, b)


def product_with_epilogue(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    out, order = product(a, b)
    return (out + bias.double()).clamp(min=0), order


def operator(generate: object, reference: object) -> Problem:
    return Problem(
        inputs=generate,  # type: ignore[arg-type]
        cases=({"m": 136, "n": 65, "k": 200, "layout": "n"},),
        reference=reference,  # type: ignore[arg-type]
        tolerance=TOLERANCE,
        compulsory_bytes=lambda m, n, k, layout: 2 * (m * k + k * n + m * n),
    )


EXERCISE = Exercise(
    entry="run",
    kind="repair",
    problem=replace(
        broken_kernels(
            {
                "order": operator(inputs, product),
                "epilogue": operator(inputs_with_bias, product_with_epilogue),
                "major": operator(inputs, product),
            },
            cases=[
                {"kernel": kernel, "m": m, "n": n, "k": k, "layout": layout}
                for kernel, m, n, k, layout in (
                    ("order", 136, 200, 8, "n"),  # three rows of tiles: less than a group
                    ("order", 392, 135, 8, "n"),  # seven: the second group has three
                    # One row or one column of tiles has the same order before and after the first change.
                    ("epilogue", 64, 65, 136, "n"),
                    ("epilogue", 72, 1, 8, "n"),
                    ("major", 136, 33, 200, "t"),
                    ("major", 136, 33, 200, "n"),
                )
            ],
            tolerance=TOLERANCE,
        ),
        outputs=("out", "order"),
    ),
    repairs=CHANGES,
    aligned=True,
    requires=(9, 0),
    specific=True,  # wgmma
    arch="sm_90a",
)
