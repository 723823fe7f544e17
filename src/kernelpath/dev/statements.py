"""Check the statement of an exercise, which is its stub's docstring, against its declaration."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import torch

from kernelpath.course import registry
from kernelpath.course.inputs import EXTREME, generate_inputs
from kernelpath.course.problem import ANY_FINITE, BEYOND_A_BLOCK
from kernelpath.course.registry import ExerciseRef
from kernelpath.grading.ground_truth import derive_seed

_ANY_FINITE_VALUE = "finite values of any size"
"""The words of a statement that allow the whole domain of finite floats."""

_SEEDS = 4
"""The number of samples of each case with extreme values. A row gets one kind of values in each sample."""

_MIN_SHARE_OF_END = 0.5
"""The share of an end of a domain that some value has to reach."""


def statement(item: ExerciseRef) -> str:
    """Return the stub's docstring with its line breaks as spaces."""
    docstring = ast.get_docstring(ast.parse(item.stub.read_text(encoding="utf-8"))) or ""
    return " ".join(docstring.split())


def open_extents_have_thin_cases(item: ExerciseRef) -> Iterator[str]:
    """Require that every extent without a bound has a case beyond any block, with compared values."""
    exercise = registry.load(item)
    if not exercise.is_kernel:
        return
    sizes = {**dict.fromkeys(exercise.vary, BEYOND_A_BLOCK), **exercise.problem.must_reach}
    for extent, size in sizes.items():
        largest = max(case[extent] for case in (*exercise.cases, *exercise.limits))
        if largest < size:
            yield f"{item.name} has no case whose {extent} reaches {size:,}, only {largest:,}; add a thin one to limits"


def domains_are_drawn_to_both_ends(item: ExerciseRef) -> Iterator[str]:
    """Require that the extreme values of every dtype include both ends of a stated domain."""
    exercise = registry.load(item)
    if not exercise.is_kernel:
        return
    domain = exercise.problem.domain
    if _ANY_FINITE_VALUE in statement(item) and domain != ANY_FINITE:
        yield f"{item.name} states {_ANY_FINITE_VALUE!r}, and its problem has another domain; declare ANY_FINITE"
    if domain is None:
        return
    extremes: dict[torch.dtype, tuple[float, float]] = {}
    for case in exercise.cases:
        for seed in range(_SEEDS):
            x = generate_inputs(exercise, case, derive_seed(seed, "ends"), "cpu", EXTREME)[0]
            values = x[x.isfinite()]
            if not values.numel():
                continue
            lowest, highest = extremes.get(x.dtype, (0.0, 0.0))
            extremes[x.dtype] = min(lowest, float(values.min())), max(highest, float(values.max()))
    for dtype, (lowest, highest) in extremes.items():
        if lowest > _MIN_SHARE_OF_END * domain[0] or highest < _MIN_SHARE_OF_END * domain[1]:
            yield (
                f"{item.name} allows values from {domain[0]:g} to {domain[1]:g}, and in {dtype} its extreme values go "
                f"from {lowest:g} to {highest:g}; draw both ends"
            )


def limits_are_stated(item: ExerciseRef) -> Iterator[str]:
    """Require that every limit of a declaration is in the statement, with its number."""
    limits = registry.load(item).describe_limits()
    if limits and " ".join(limits.split()) not in statement(item):
        stub = item.stub.relative_to(item.root)
        yield f"the docstring of {stub} lacks this paragraph; add it there and in the solution:\n{limits}"
