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

Case = Mapping[str, Any]
"""The arguments of one case by name, such as `{"rows": 33, "columns": 1000, "dtype": "bfloat16"}`."""

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
"""Bytes per element, by the name of the dtype."""


BEYOND_A_BLOCK = 65_536
"""An extent that no thread block covers with registers: 64 elements for each of 1,024 threads."""

ANY_FINITE = (-2.99e38, 2.99e38)
"""The domain of "finite values of any size", except for the last bits: float32 and bfloat16 end at 3.4e38.

Rounded to bfloat16, too, it stays within 3e38: many right kernels begin a maximum at -3e38f.
"""


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


EXACT = Tolerance(0.0, 0.0)
"""The tolerance for integers, copies and permutations.

A reference that only moves values returns them in their own dtype. Then bits are compared: the sign of a zero, the
payload of a NaN. A reference that computes returns float64, and any NaN equals any other.
"""


@dataclass(frozen=True)
class Problem:
    """One operator: what goes in, what must come out, and the least that it costs.

    Attributes:
        inputs: `inputs(rng, **case)` gives the arguments, drawn from the seeded `torch.Generator` rng, on its device.
        cases: what is checked: 1, tile - 1, tile, tile + 1, a prime, non-contiguous where the operator accepts it.
        limits: further cases, at the limits that the statement gives and past 65,535 rows, kept thin to be cheap.
            How many bytes are moved is not limited there: what fits on the chip elsewhere may not fit here.
        gpu_limits: as limits, but so much work for honest kernels that the PTX machine leaves them to a GPU.
        extreme: `extreme(rng, *inputs)` gives drawn inputs, in place, the values that the operator must handle. Every
            case is run with them, too. An operator that only moves values need not declare it: it gets
            `draw.any_bits_`.
        unordered: `unordered(rng, *inputs)` gives drawn inputs, in place, values whose sum depends on the order of the
            additions in every precision. An operator needs it whose exercises promise the same bits; no value is
            compared.
        faults: by name, references with a fault that shows for extreme inputs alone; `kp dev check` holds that it does.
        reference: `reference(*inputs)` gives the truth in float64, or exactly, as a tensor or a tuple of tensors. Where
            the inputs are traces.TraceFile, it gives facts by name.
        magnitudes: `magnitudes(*inputs)` gives, for each output, what the rounding errors of its elements are measured
            against: the sum of the magnitudes of the terms, such as |x| + |y| for x + y, or, for a chain of operations,
            `course.condition.sensitivity(reference)`. A tolerance with mtol needs it. It is computed only for outputs
            that are not within rtol and atol.
        settled: `settled(expected, outputs)` gives the truth where the statement leaves a choice, from the outputs of
            the reference and of the submission, or the same places of both. The reference of dropout keeps every
            element; which ones a submission drops is its choice. `Exercise.check` judges the choice itself.
        outputs: what the statement calls them, in their order. A reference may return only the first of them.
        redistributed: `redistributed(rng, **case)` gives arguments as `inputs` does, of the same shapes, but with other
            lengths of the same number and total, where lengths lie on the device: what a host reads of them, such as
            the longest, differs then. None where `inputs` draws all that lies there.
        in_place: `in_place(*inputs)` gives the inputs that the operator overwrites, in the order of the reference's
            outputs, which they become. Nothing is returned then. None where the operator returns new tensors.
        first_dtype: the dtype of the first output, where it is not that of the first input.
        tolerance: by the name of the output's dtype, such as "bfloat16". The reason for the numbers stands beside them.
        compulsory_bytes: `compulsory_bytes(**case)`, the inputs read once and the outputs written once.
        flops: `flops(**case)`, arithmetic operations; with compulsory_bytes it gives the measured ceiling.
        vary: names of case arguments that may take any size; a further case is drawn from them when graded.
        must_reach: for an extent that the statement leaves open, the size that a case has to reach, where that is not
            BEYOND_A_BLOCK: the limit that the statement gives, or less where each row takes a whole block and each case
            has its price. `kp dev check` holds it for these extents and for those of `vary`; values are compared there.
        domain: the least and the greatest value that the statement allows in the first input, where it tells them or
            says "finite values of any size"; `extreme` draws values near both.
        far: cases with tensors of a little more than 2**32 elements, where offsets need 64 bits; each matrix is as
            large in one of them. They need no memory, as only a sample of the blocks is run. None where kernels are
            promised smaller sizes.

    Raises DeclarationError for a field that breaks a rule.
    """

    inputs: Callable[..., tuple[Any, ...]]
    cases: Sequence[Case]
    reference: Callable[..., torch.Tensor | tuple[torch.Tensor, ...] | Facts]
    tolerance: Mapping[str, Tolerance]
    compulsory_bytes: Callable[..., int]
    flops: Callable[..., int] | None = None
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
