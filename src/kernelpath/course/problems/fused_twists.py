"""Define variants of a fused operator: an operator of the recorded step, times a layout, times a row statistic.

The recorded block spells GELU and its norms as formulas, a kernel for each operation. A variant fuses one such chain
into one kernel: every matrix is read once and written once. Its baseline is the formula, an operator at a time. Its
scalars follow from the sizes of a case: two runs of one case share them, and other cases have others.
"""

from __future__ import annotations

from typing import Any

import torch

from kernelpath.course import draw
from kernelpath.course.checkpoint import DeliverableVariant
from kernelpath.course.condition import sensitivity
from kernelpath.course.problem import Problem, Tolerance
from kernelpath.course.problems.fused_parts import (
    LAYOUTS,
    OPERATORS,
    STATISTICS,
    OperandLayout,
    Operator,
    Scalars,
    Statistic,
)
from kernelpath.course.spec import Exercise, Traffic

Tensor = torch.Tensor

MOST_COLUMNS = 1024
LARGEST = {"rows": 64, "columns": 960}  # whole warps and whole sectors in every layout
SPARE = 1.1


def twist(operator: Operator, layout: OperandLayout, statistic: Statistic) -> DeliverableVariant:
    """Return the variant of these parts."""
    scalars = {**operator.scalars, **layout.scalars, **statistic.scalars}
    tensor_count = len(layout.shapes)

    def inputs(rng: torch.Generator, rows: int, columns: int) -> tuple[Any, ...]:
        numbers = {name: of(rows, columns) for name, of in scalars.items()}
        tensors = layout.generate(rng, rows, columns, *(numbers[name] for name in layout.scalars))
        return *tensors, *(draw.normal(rng, columns, large=0) for _ in operator.vectors), *numbers.values()

    def views(*arguments: Any) -> tuple[tuple[Tensor, Tensor], dict[str, Any]]:
        """Return x and other, and the further arguments by name."""
        named = dict(zip((*operator.vectors, *scalars), arguments[tensor_count:], strict=True))
        return layout.views(*arguments[:tensor_count], *(named[name] for name in layout.scalars)), named

    def unfused(*arguments: Any) -> tuple[Tensor, Tensor]:
        """Compute the formula, an operator at a time, as in the recorded step."""
        (x, other), named = views(*arguments)
        y = operator.true(x, other, *(named[name] for name in (*operator.vectors, *operator.scalars)))
        out, per_row = statistic.true(y, *(named[name] for name in statistic.scalars))
        return (out.T if layout.transposed else out).contiguous(), per_row

    def reference(*arguments: Any) -> tuple[Tensor, Tensor]:
        return unfused(*(value.double() if isinstance(value, Tensor) else value for value in arguments))

    def extreme(rng: torch.Generator, *arguments: Any) -> None:
        """Set the rows, in turn: zeros, one that eps decides, one far from 0, a large one, a plain one."""
        pair, _ = views(*arguments)
        kinds = torch.arange(len(pair[0]), device=pair[0].device)
        kinds = (kinds + int(torch.randint(5, (), generator=rng, device=kinds.device))) % 5
        for tensor in pair:
            tensor[kinds == 0] = 0
            tensor[kinds == 1] *= 1e-4
            tensor[kinds == 2] += 50
            tensor[kinds == 3] *= 1e12

    def compulsory_bytes(rows: int, columns: int) -> int:
        return 4 * (3 * rows * columns + len(operator.vectors) * columns + rows)

    rows, columns = LARGEST.values()
    reread_bytes = 4 * len(operator.vectors) * (rows - 1) * columns  # a row reads the values of its columns once
    max_bytes_ratio = SPARE * (1 + reread_bytes / compulsory_bytes(rows, columns))
    problem = Problem(
        inputs=inputs,
        cases=(
            {"rows": 1, "columns": 1},
            {"rows": 33, "columns": 31},
            {"rows": 5, "columns": 127},
            {"rows": 2, "columns": 257},
            {"rows": 40, "columns": 24},
            LARGEST,
        ),
        vary=("rows", "columns"),
        limits=({"rows": 5, "columns": MOST_COLUMNS},),
        gpu_limits=({"rows": 65_537, "columns": 1},),
        far=({"rows": (1 << 22) + 3, "columns": MOST_COLUMNS},),
        reference=reference,
        outputs=("out", statistic.name),
        # The formula in float32 is off by 1e-6 at most in plain rows and by 4e-5 in rows far from 0, where a variance
        # of one pass, the mean of h^2 minus the square of the mean, is off by more than 1e-3. tanh.approx is by 5e-4.
        # A single element, and the sums of one or two rows, may cancel: mtol.
        tolerance={"float32": Tolerance(rtol=1e-4, atol=1e-4, mtol=32 * 2**-24)},
        magnitudes=sensitivity(reference),
        extreme=extreme,
        compulsory_bytes=compulsory_bytes,
        flops=lambda rows, columns: 5 * rows * columns,
    )
    exercise = Exercise(
        entry="fused",
        problem=problem,
        bench={"rows": 65_536, "columns": MOST_COLUMNS},  # three matrices of 256 MiB
        baseline=unfused,
        min_speedup=1.5,  # on an H200 one kernel is 2.2× to 5.4× faster than the formula
        traffic=Traffic(sectors=1.5, bank_conflicts=1.0, bytes=max_bytes_ratio, edges=0.5),
    )
    name = f"{operator.name}+{layout.name}+{statistic.name}"
    return DeliverableVariant(name, exercise, _stub(operator, layout, statistic, scalars, max_bytes_ratio))


def _stub(
    operator: Operator, layout: OperandLayout, statistic: Statistic, scalars: Scalars, max_bytes_ratio: float
) -> dict[str, str]:
    shapes = dict(layout.shapes) | dict.fromkeys(operator.vectors, "(columns,)")
    tensors = ", ".join(shapes)
    shapes |= {name: "an int" if isinstance(scalar(1, 1), int) else "a float" for name, scalar in scalars.items()}
    arguments = ", ".join(shapes)
    x, other, out = layout.place
    shape = "(columns, rows)" if layout.transposed else "(rows, columns)"
    lines = "\n".join(f"    {line}" for line in (*operator.lines, *statistic.lines))
    # This text is a stub: its TODO is for the learner.
    python = f'''"""The deliverable: what the report on the recorded step recommends.

The step spells such a chain as formulas, and PyTorch launches a kernel for each
operation. Make it one kernel:

    fused({arguments})

takes contiguous float32 tensors, and numbers where it says so:

{chr(10).join(f"    {name:<6} {shape}" for name, shape in shapes.items())}

and returns two new contiguous float32 tensors: out of shape {shape},
and {statistic.name} of shape (rows,). For each row and column,

{lines}

where x stands for {x}, other for {other},
and out for {out}.

There are 1 to {MOST_COLUMNS} columns and any number of rows. Tensors are not always
aligned to 16 bytes, and may have more than 2**32 elements: offsets need 64
bits. The arithmetic is float32.

Write the kernel in deliverable.cu and launch it here. Graded are the values,
the bytes that the kernel moves (at 64 x 960 at most {max_bytes_ratio:.2f} times the compulsory
bytes: every matrix once{", and a vector once for each row" if operator.vectors else ""}), its sectors and its
bank conflicts. On a GPU it races the formula, an operator at a time.
"""

import torch

from warpcheck.frontends import cuda


def fused({arguments}):
    # TODO: allocate both, then launch cuda.kernel("deliverable.cu", "fused")
    raise NotImplementedError("launch the kernel, then return out and {statistic.name}")
'''
    numbers = "".join(f"{'int' if shapes[name] == 'an int' else 'float'} {name}, " for name in scalars)
    kernel = f"""__global__ void fused({", ".join(f"const float* {name}" for name in tensors.split(", "))},
                      {numbers}float* out, float* {statistic.name}, int rows, int columns) {{
    // TODO: deliverable.py says what it computes
}}
"""
    return {".py": python, ".cu": kernel}


# All 36 variants.
TWISTS = tuple(
    twist(operator, layout, statistic) for operator in OPERATORS for layout in LAYOUTS for statistic in STATISTICS
)
