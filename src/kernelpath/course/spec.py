"""What an exercise is: one frozen `Exercise` in each file of checks/, read by everything else.

Tensors are torch tensors; this module does not import torch, so that reading a declaration's types costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import torch

Case = Mapping[str, Any]
"""The arguments of one case by name, such as `{"rows": 33, "columns": 1000, "dtype": "bfloat16"}`."""


Kind = Literal["kernel", "python", "distributed", "trace", "written"]


class DeclarationError(Exception):
    """A file in checks/ does not declare a valid exercise. The message names the field and the rule it breaks."""


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise DeclarationError(message)


@dataclass(frozen=True)
class Tolerance:
    """How far an output may lie from the float64 reference: `|out - ref| <= rtol * |ref| + atol * rms(ref)`.

    `atol` is in units of the reference's root mean square, so that no tolerance admits an output of zeros.
    Calibrate it so that the same computation in the next lower precision fails.
    """

    rtol: float
    atol: float

    def __post_init__(self) -> None:
        _require(self.rtol >= 0 and self.atol >= 0, f"tolerance: rtol={self.rtol} or atol={self.atol} is negative")
        _require(self.rtol + self.atol < 1, f"tolerance: rtol + atol = {self.rtol + self.atol} >= 1: zeros would pass")


EXACT = Tolerance(0.0, 0.0)
"""For integers, copies and permutations."""


@dataclass(frozen=True)
class Traffic:
    """Limits on what a kernel may ask of the memory system, counted without a GPU on the largest case.

    sectors: 32-byte sectors moved over the least that the bytes asked for need, for any line's loads from one tensor
        or stores to it; what exceeds it may move 2 % of all.
        1.0 is perfectly coalesced at every access width; a column of float32 reaches 8.0.
    bank_conflicts: shared-memory wavefronts beyond the least, per request, for any line's loads or stores.
    bytes: global bytes moved (sectors times 32, loads and stores) over the compulsory bytes of the case.
    """

    sectors: float | None = None
    bank_conflicts: float | None = None
    bytes: float | None = None

    @property
    def limited(self) -> bool:
        """Whether anything is limited at all."""
        return (self.sectors, self.bank_conflicts, self.bytes) != (None, None, None)

    def __post_init__(self) -> None:
        for name, least in (("sectors", 1.0), ("bank_conflicts", 0.0), ("bytes", 1.0)):
            limit = getattr(self, name)
            _require(limit is None or limit >= least, f"traffic: {name}={limit} is below {least}, out of reach")


@dataclass(frozen=True)
class Question:
    """A checkpoint question: a choice where `choices` are given, a number otherwise.

    answer: the right choice, or the right number (in the unit that `ask` names).
    why: shown after the answer, right or wrong.
    tolerance: relative, for numbers.
    predict: the question is asked before a measurement and held against it.
    """

    ask: str
    answer: str | float
    why: str
    choices: tuple[str, ...] = ()
    tolerance: float = 0.0
    predict: bool = False

    def __post_init__(self) -> None:
        _require(bool(self.ask.strip() and self.why.strip()), "questions: ask and why must not be empty")
        if self.choices:
            _require(self.answer in self.choices, f"questions: the answer {self.answer!r} is none of the choices")
            _require(len(set(self.choices)) == len(self.choices) >= 2, "questions: two or more different choices")
        else:
            number = isinstance(self.answer, (int, float)) and math.isfinite(self.answer)
            _require(number, f"questions: without choices the answer must be a finite number, not {self.answer!r}")

    def accepts(self, given: str | float) -> bool:
        """Whether an answer is right: the choice itself, or a number within the tolerance."""
        if isinstance(given, str) or isinstance(self.answer, str):
            return given == self.answer
        return abs(given - self.answer) <= max(self.tolerance, 1e-9) * abs(self.answer)


@dataclass(frozen=True)
class Checkpoint:
    """A phase's exam, declared by the file checkpoint.py beside the declarations of its exercises.

    deliverable: the name of the exercise that has to pass at any size; it is graded again on `draws` further sizes.
    questions: on the phase as a whole, by the week whose notebook prepares them.
    pass_mark: the share of all questions that has to be answered rightly.
    """

    deliverable: str
    questions: Mapping[int, tuple[Question, ...]]
    draws: int = 3
    pass_mark: float = 0.8

    def __post_init__(self) -> None:
        _require(any(self.questions.values()), "questions: there is none")
        _require(self.draws > 0, f"draws: {self.draws} sizes are not any size")
        _require(0 < self.pass_mark <= 1, f"pass_mark: {self.pass_mark} is no share")


@dataclass(frozen=True)
class Exercise:
    """One exercise. The submission's function `entry` takes the tensors of `inputs` and returns new tensors.

    entry: name of the function that the submission defines.
    inputs: `inputs(rng, **case)` gives the arguments, drawn from the seeded `torch.Generator` rng, on its device.
    cases: what is checked: 1, tile - 1, tile, tile + 1, a prime, non-contiguous where the entry accepts it.
    vary: names of case arguments that may take any size; a further case is drawn from them when graded.
    reference: `reference(*inputs)` gives the truth in float64, or exactly, as a tensor or a tuple of tensors.
    tolerance: by the name of the output's dtype, such as "bfloat16".
    bench: the case that is timed; its working set is well past L2.
    baseline: `baseline(*inputs)`, what the submission races; None where time is not graded.
    min_speedup: the least ratio of the baseline's time to the submission's.
    bytes_moved: `bytes_moved(**case)`, compulsory traffic in bytes, inputs read once and outputs written once.
    flops: `flops(**case)`, arithmetic operations; with bytes_moved it gives the speed of light.
    traffic: limits that hold on every device.
    requires: least compute capability such as (9, 0), or None.
    kind: how it is graded: "kernel" launches kernels of its own, of "python" the result alone is graded.
    hints: three, from a nudge to nearly the answer.
    questions: asked at the checkpoint.
    explain: shown after a pass: what an expert would do next, and why.
    check: `check(inputs, outputs)` gives None or a complaint in the words of the exercise. It is asked where shapes and
        dtypes are right, of right values too; a complaint stands in place of the list of wrong elements.
    """

    entry: str
    inputs: Callable[..., tuple[Any, ...]]
    cases: Sequence[Case]
    reference: Callable[..., torch.Tensor | tuple[torch.Tensor, ...]]
    tolerance: Mapping[str, Tolerance]
    hints: tuple[str, str, str]
    questions: tuple[Question, ...]
    explain: str
    bytes_moved: Callable[..., int]
    flops: Callable[..., int] | None = None
    vary: tuple[str, ...] = ()
    bench: Case | None = None
    baseline: Callable[..., Any] | None = None
    min_speedup: float = 1.0
    traffic: Traffic = field(default_factory=Traffic)
    requires: tuple[int, int] | None = None
    kind: Kind = "kernel"
    check: Callable[[Sequence[Any], Sequence[torch.Tensor]], str | None] | None = None

    def __post_init__(self) -> None:
        _require(self.entry.isidentifier(), f"entry: {self.entry!r} is not the name of a function")
        _require(len(self.cases) > 0, "cases: there is none")
        sizes = [value for case in self.cases for value in case.values() if isinstance(value, int)]
        _require(any(size & (size - 1) for size in sizes), "cases: every size is a power of two; add one that is not")
        missing = [name for name in self.vary if any(name not in case for case in self.cases)]
        _require(not missing, f"vary: {missing} are not arguments of every case")
        _require(bool(self.tolerance), "tolerance: there is none")
        _require(len(self.hints) == 3 and all(hint.strip() for hint in self.hints), "hints: there must be three")
        _require(bool(self.questions), "questions: there is none")
        _require(bool(self.explain.strip()), "explain: it is empty")
        _require((self.bench is None) == (self.baseline is None), "bench and baseline: one goes with the other")
        _require(self.min_speedup > 0, f"min_speedup: {self.min_speedup} is not positive")

    @property
    def is_kernel(self) -> bool:
        return self.kind == "kernel"
