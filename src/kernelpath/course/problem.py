"""Declare an operator: one frozen `Problem`, shared by the CUDA, Triton and CuTe exercises of the same operator.

A problem knows no process, device or terminal. Tensors are torch tensors; this module does not import torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kernelpath.course.errors import require

if TYPE_CHECKING:
    import torch

    from kernelpath.course.traces import Facts

# The arguments of one case by name, such as `{"rows": 33, "columns": 1000, "dtype": "bfloat16"}`.
Case = Mapping[str, Any]

# Bytes per element, by the name of the dtype.
BYTES: Mapping[str, int] = {
    "float64": 8,
    "float32": 4,
    "bfloat16": 2,
    "float16": 2,
    "float8_e4m3fn": 1,
    "int64": 8,
    "int32": 4,
    "int8": 1,
    "uint8": 1,
}


# An extent that no thread block covers with registers: 64 elements for each of 1,024 threads.
BEYOND_A_BLOCK = 65_536

# The domain of "finite values of any size", except for the last bits: float32 and bfloat16 end at 3.4e38.
#
# Rounded to bfloat16, too, it stays within 3e38: many right kernels begin a maximum at -3e38f.
ANY_FINITE = (-2.99e38, 2.99e38)


def arguments(case: Case) -> str:
    """Format a case as text: "rows=33 columns=1000"."""
    return " ".join(f"{name}={value}" for name, value in case.items())


@dataclass(frozen=True)
class Tolerance:
    """The permitted error of an output relative to the float64 reference:

        |out - ref| <= rtol * |ref| + max(atol * rms(ref), mtol * magnitude)

    `rtol` covers rounding relative to the result, such as the conversion to the dtype of the output. `atol` is in units
    of the reference's root mean square, so that no tolerance admits an output of zeros. `mtol` is in units of
    `Problem.magnitudes`, element by element: if terms cancel, a right result is off by a multiple of the unit roundoff
    of its terms, however small the result is (Higham, Accuracy and Stability of Numerical Algorithms, 4.2). Calibrate
    all of them so that the same computation in the next lower precision fails.
    """

    rtol: float
    atol: float
    mtol: float = 0.0

    def __post_init__(self) -> None:
        negative = f"tolerance: rtol={self.rtol}, atol={self.atol} or mtol={self.mtol} is negative"
        require(min(self.rtol, self.atol, self.mtol) >= 0, negative)
        require(self.mtol < 1, f"tolerance: mtol = {self.mtol} >= 1: zeros would pass")
        require(self.rtol + self.atol < 1, f"tolerance: rtol + atol = {self.rtol + self.atol} >= 1: zeros would pass")


# The tolerance for integers, copies and permutations.
#
# A reference that only moves values returns them in their own dtype. Then bits are compared: the sign of a zero, the
# payload of a NaN. A reference that computes returns float64, and any NaN equals any other.
EXACT = Tolerance(0.0, 0.0)


@dataclass(frozen=True)
class Problem:
    """One operator: its inputs, its required outputs, and its minimum cost.

    Attributes:
        inputs: `inputs(rng, **case)` returns the arguments, generated from the seeded `torch.Generator` rng, on its
            device.
        cases: The cases to check: 1, tile - 1, tile, tile + 1, a prime, non-contiguous if the operator accepts it.
        limits: Further cases, at the limits of the statement and past 65,535 rows, kept thin to be cheap. Their traffic
            is not limited: data that fits on the chip elsewhere may not fit here.
        gpu_limits: Further cases at limits that need so much work of right kernels that only a GPU runs them.
        extreme: `extreme(rng, *inputs)` sets, in place, values that the operator must handle. Every case is run with
            them, too. An operator that only moves values gets `draw.any_bits_` by default.
        unordered: `unordered(rng, *inputs)` sets, in place, values whose sum depends on the order of the additions in
            every precision. Exercises that promise the same bits need it; no value is compared with the reference.
        faults: References with a fault that only extreme inputs show, by name. `kp dev check` requires that they show
            it.
        reference: `reference(*inputs)` returns the right outputs in float64, or exactly, as a tensor or a tuple of
            tensors. If the inputs are traces.TraceFile, it returns facts by name.
        magnitudes: `magnitudes(*inputs)` returns, for each output, the scale of the rounding errors of its elements:
            the sum of the magnitudes of the terms, such as |x| + |y| for x + y, or, for a chain of operations,
            `course.condition.sensitivity(reference)`. A tolerance with mtol needs it. It is computed only for outputs
            that are not within rtol and atol.
        settled: `settled(expected, outputs)` returns the right outputs if the statement leaves a choice, given the
            outputs of the reference and of the submission, or the same places of both. The reference of dropout keeps
            every element; a submission chooses which ones it drops. `Exercise.check` judges the choice itself.
        outputs: The names of the outputs in the statement, in order. A reference may return only the first of them.
        redistributed: `redistributed(rng, **case)` returns arguments like `inputs`, of the same shapes, but with other
            lengths of the same number and total, if lengths are on the device. A value that a host computes from them,
            such as the longest length, then differs. None if there are no such lengths.
        in_place: `in_place(*inputs)` returns the inputs that the operator overwrites, in the order of the reference's
            outputs. The operator then returns nothing. None if it returns new tensors.
        first_dtype: The dtype of the first output, if it is not the first input's.
        tolerance: The tolerance by the name of the output's dtype, such as "bfloat16", with the reason for the numbers
            beside it.
        compulsory_bytes: `compulsory_bytes(**case)`, the bytes of the inputs read once and the outputs written once.
        flops: `flops(**case)`, arithmetic operations, which determine the measured ceiling with `compulsory_bytes`.
        product_dtype: The dtype of the factors of the operator's matrix products, such as "bfloat16", which may differ
            from the dtype of its outputs. `Exercise.ceiling_dtype` needs it, unless the cases have an argument dtype.
        vary: The names of case arguments that may have any size. Grading generates a further case from them.
        must_reach: The size that a case has to reach, for an extent without a bound in the statement, if it is not
            BEYOND_A_BLOCK: the limit of the statement, or less if each row takes a whole block and cases are expensive.
            `kp dev check` requires it for these extents and for those of `vary`; values are compared there.
        domain: The least and the greatest value that the statement allows in the first input, if it names them or says
            "finite values of any size". `extreme` generates values near both.
        far: Cases with tensors of a little more than 2**32 elements, whose offsets need 64 bits; each matrix is that
            large in one of them. They need no memory, as only a sample of the blocks is run. Empty if kernels are
            promised smaller sizes.

    Raises DeclarationError for a field that breaks a rule.
    """

    inputs: Callable[..., tuple[Any, ...]]
    cases: Sequence[Case]
    reference: Callable[..., torch.Tensor | tuple[torch.Tensor, ...] | Facts]
    tolerance: Mapping[str, Tolerance]
    compulsory_bytes: Callable[..., int]
    flops: Callable[..., int] | None = None
    product_dtype: str | None = None
    vary: tuple[str, ...] = ()
    limits: Sequence[Case] = ()
    gpu_limits: Sequence[Case] = ()
    extreme: Callable[..., None] | None = None
    unordered: Callable[..., None] | None = None
    faults: Mapping[str, Callable[..., torch.Tensor | tuple[torch.Tensor, ...]]] = field(default_factory=dict)
    magnitudes: Callable[..., torch.Tensor | tuple[torch.Tensor, ...]] | None = None
    settled: Callable[[Sequence[torch.Tensor], Sequence[torch.Tensor]], list[torch.Tensor]] | None = None
    outputs: tuple[str, ...] = ("out",)
    redistributed: Callable[..., tuple[Any, ...]] | None = None
    in_place: Callable[..., tuple[Any, ...]] | None = None
    first_dtype: str | None = None
    must_reach: Mapping[str, int] = field(default_factory=dict)
    domain: tuple[float, float] | None = None
    far: Sequence[Case] = ()

    def __post_init__(self) -> None:
        require(bool(self.tolerance), "tolerance: none is declared")
        in_magnitudes = any(tolerance.mtol > 0 for tolerance in self.tolerance.values())
        require(in_magnitudes == (self.magnitudes is not None), "mtol: it goes with the problem's magnitudes")
        require(self.magnitudes is None or self.settled is None, "magnitudes: a truth that is settled has none")
        check_cases(self.cases, self.vary)
        check_same_arguments("far", self.far, self.cases[0])
        check_same_arguments("limits", self.limits, self.cases[0])
        check_same_arguments("gpu_limits", self.gpu_limits, self.cases[0])
        require(not self.faults or self.extreme is not None, "faults: only extreme inputs show them; declare extreme")


def check_cases(cases: Sequence[Case], vary: Sequence[str]) -> None:
    """Raise DeclarationError unless there are cases that can show a wrong kernel, each with every name of `vary`."""
    require(len(cases) > 0, "cases: none is declared")
    sizes = [value for case in cases for value in case.values() if isinstance(value, int)]
    require(any(size & (size - 1) for size in sizes), "cases: every size is a power of two; add one that is not")
    missing = [name for name in vary if any(name not in case for case in cases)]
    require(not missing, f"vary: {missing} are not arguments of every case")


def check_same_arguments(name: str, cases: Sequence[Case], first: Case) -> None:
    """Raise DeclarationError unless these cases have the arguments of the first one."""
    for case in cases:
        message = f"{name}: {arguments(case)} does not have the arguments {', '.join(first)}"
        require(case.keys() == first.keys(), message)
