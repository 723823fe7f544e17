"""Every way in which grading can end, and the report that says so. Plain data: JSON in and out, no torch.

`encode` and `decode` are the one codec of everything that is saved: reports, progress, certificates, grades, results.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NoReturn, TypeVar

import msgspec

from kernelpath import words
from kernelpath.line_counters import LineInstructions, LineTraffic

_T = TypeVar("_T")
_REPLAY = "fix {file}, then kp check {name} --seed {seed}"


class ValidationError(ValueError):
    """A text is not what this version of kernelpath saves. The message says what is wrong with it, and where."""


class Verdict(str, Enum):
    """One ending. `meaning` is the sentence that a learner reads beside it, `then` the one next step.

    `then` has places for {file}, {name} and {seed}.
    """

    meaning: str
    then: str

    def __new__(cls, value: str, meaning: str = "", then: str = "") -> Verdict:
        member = str.__new__(cls, value)
        member._value_ = value
        member.meaning = meaning
        member.then = then or "fix {file}, then kp check {name}"
        return member

    PASSED = "PASSED", "right on every case and within its limits", "kp next"
    NOT_STARTED = "NOT_STARTED", "the stub still raises NotImplementedError", "edit {file}, then kp check {name}"
    COMPILE_ERROR = "COMPILE_ERROR", "the submission cannot be loaded or compiled"
    CRASHED = "CRASHED", "it raised an exception, hit a device error, or its process ended early", _REPLAY
    TIMED_OUT = "TIMED_OUT", "it did not finish within the time limit"
    WRONG_TYPE = "WRONG_TYPE", "the entry function did not return plain, contiguous tensors on the right device"
    WRONG_SHAPE = "WRONG_SHAPE", "an output has the wrong shape"
    WRONG_DTYPE = "WRONG_DTYPE", "an output has the wrong dtype"
    WRONG_VALUES = "WRONG_VALUES", "an output differs from the reference", _REPLAY
    NOT_WRITTEN = "NOT_WRITTEN", "part of an output was never written", _REPLAY
    MUTATED_INPUT = "MUTATED_INPUT", "the submission changed its inputs"
    OUT_OF_BOUNDS = "OUT_OF_BOUNDS", "the kernel accessed memory outside its tensors", _REPLAY
    UNINITIALIZED = "UNINITIALIZED", "the kernel read memory that nothing had written", _REPLAY
    RACE = "RACE", "two threads accessed one address, at least one wrote, and nothing ordered them", _REPLAY
    DEADLOCK = "DEADLOCK", "threads, blocks or ranks wait for each other, or for one that does not come", _REPLAY
    BARRIER = "BARRIER", "the threads of a block did not all reach the same barrier", _REPLAY
    WRONG_OPERATOR = (
        "WRONG_OPERATOR",
        "what is registered with torch.library is not what autograd and torch.compile need",
    )
    NOT_YOUR_KERNEL = "NOT_YOUR_KERNEL", "a library or the host did the work, not your kernel"
    ACCESS_DENIED = (
        "ACCESS_DENIED",
        "the submission reached for files, processes or a network outside of what it may use",
    )
    TAMPERED = "TAMPERED", "the submission changed the process that measures it"
    NO_TENSOR_CORES = (
        "NO_TENSOR_CORES",
        "right, but tensor cores do not make its products, as the exercise asks",
        "kp hint {name}",
    )
    TOO_MUCH_TRAFFIC = (
        "TOO_MUCH_TRAFFIC",
        "right, but it asks more of the memory system than the exercise allows",
        "kp hint {name}",
    )
    TOO_MUCH_MEMORY = (
        "TOO_MUCH_MEMORY",
        "right, but it holds more device memory beside its inputs and outputs than the exercise allows",
        "kp hint {name}",
    )
    DIVERGENT = (
        "DIVERGENT",
        "right, but too few lanes are active in the average instruction of a warp",
        "kp profile {name}",
    )
    TOO_MANY_INSTRUCTIONS = (
        "TOO_MANY_INSTRUCTIONS",
        "right, but with narrow accesses, local memory or more index arithmetic than the exercise allows",
        "kp profile {name} --sass",
    )
    TOO_SLOW = "TOO_SLOW", "right, but below the required speedup", "kp hint {name}"
    TOO_FAST = (
        "TOO_FAST",
        "faster than the measured ceiling of this GPU: the measurement is wrong",
        "kp bench {name}",
    )
    INCONCLUSIVE = (
        "INCONCLUSIVE",
        "the measurement does not decide: it is too noisy, or the gate says nothing on this GPU",
        "stop whatever else uses the GPU, then kp bench {name}",
    )
    UNAVAILABLE = "UNAVAILABLE", "this machine cannot run it; the report says why", "kp doctor"

    @property
    def passed(self) -> bool:
        return self is Verdict.PASSED


@dataclass(frozen=True)
class Finding:
    """Why a case or a submission ended as it did: a verdict, the cause, and where in the learner's file.

    element: which output, and which of its elements in the order of memory, the cause is about.
    then: the next step where the cause has one of its own, in the form of Verdict.then.
    """

    verdict: Verdict
    cause: str
    file: str = ""
    line: int = 0
    element: tuple[int, int] | None = None
    then: str = ""

    @property
    def step(self) -> str:
        return self.then or self.verdict.then


@dataclass(frozen=True)
class CaseResult:
    """The end of one case. `seconds` is the time from asking the worker to its answer."""

    case: Mapping[str, Any]
    verdict: Verdict
    cause: str = ""
    file: str = ""
    line: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class NetworkTraffic:
    """What the ranks of one case exchanged.

    messages, bytes: those of the rank that sends most; a collective counts as one message. seconds: of the whole call
    on the simulated links. hidden: the share of the communication that passes behind compute; None without compute.
    """

    case: Mapping[str, Any]
    messages: int
    bytes: int
    seconds: float
    hidden: float | None = None


@dataclass(frozen=True)
class Interval:
    """A median of paired ratios with its confidence interval, as `timing.ratio` gives it."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return words.ratio(self.median, self.low, self.high)


@dataclass(frozen=True)
class Measurement:
    """A timed run: seconds are medians of cold-L2 calls, ratios are paired within each round.

    speedup: baseline's time over the submission's; of_reference: reference kernel's time over the submission's.
    light_seconds: the measured ceiling of the case on this machine, from ceilings measured in the same process.
    ceilings: bytes or operations per second by name ("copy", "read", ...).
    telemetry: clocks in MHz, power in W and temperature in degrees Celsius, as seen.
    """

    case: Mapping[str, Any]
    seconds: float
    baseline_seconds: float
    reference_seconds: float | None
    speedup: Interval
    of_reference: Interval | None
    compulsory_bytes: int
    flops: int
    light_seconds: float
    ceilings: Mapping[str, float]
    rounds: int
    method: str
    telemetry: Mapping[str, float] = field(default_factory=dict)

    @property
    def bytes_per_second(self) -> float:
        return self.compulsory_bytes / self.seconds

    @property
    def share_of_light(self) -> float:
        return self.light_seconds / self.seconds


@dataclass(frozen=True)
class Report:
    """All that is known after grading one submission.

    stars: 0 to 3. not_measured: what this machine could not say, in words. next_step: one command or one sentence.
    graded: the SHA-256 of each file that was graded, by its name. compile_seconds: of `seconds`, what the lane's
    compiler took in the process that ran the cases.
    """

    exercise: str
    title: str
    submission: str
    device: str
    seed: int
    verdict: Verdict
    cause: str = ""
    file: str = ""
    line: int = 0
    stars: int = 0
    next_step: str = ""
    not_measured: tuple[str, ...] = ()
    cases: tuple[CaseResult, ...] = ()
    traffic: tuple[LineTraffic, ...] = ()
    instructions: tuple[LineInstructions, ...] = ()
    network: tuple[NetworkTraffic, ...] = ()
    measurement: Measurement | None = None
    printed: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    graded: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    compile_seconds: float = 0.0

    def to_json(self, indent: int | None = None) -> str:
        return encode(self, indent)

    @classmethod
    def from_json(cls, text: str | bytes) -> Report:
        """The inverse of `to_json`. Raises ValidationError on anything else."""
        return decode(text, cls)


def encode(value: object, indent: int | None = None) -> str:
    """The JSON of a dataclass, or of lists and dictionaries of them. Raises ValueError for a NaN or an infinity."""
    return json.dumps(msgspec.to_builtins(value), indent=indent, allow_nan=False)  # msgspec would write them as null


def decode(text: str | bytes, kind: type[_T]) -> _T:
    """The inverse of `encode`: every field has the type that `kind` declares, and there is no other field.

    A field that is left out takes its default, so that what an older version saved is still read where it can be.
    Raises ValidationError on anything else.
    """
    try:
        data = json.loads(text, parse_constant=_refuse)
        value = msgspec.convert(data, kind)
    except (ValueError, RecursionError) as error:
        raise ValidationError(str(error)) from error
    unknown = next(_unknown(data, msgspec.to_builtins(value), "$"), None)
    if unknown is not None:
        raise ValidationError(f"Object contains unknown field `{unknown}`")
    return value


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _unknown(data: Any, known: Any, path: str) -> Iterator[str]:
    """The paths of all that was left out when `data` became `known`."""
    if isinstance(data, dict):
        for key, value in data.items():
            below = f"{path}.{key}"
            yield from _unknown(value, known[key], below) if key in known else (below,)
    elif isinstance(data, list):
        for index, (value, other) in enumerate(zip(data, known, strict=True)):
            yield from _unknown(value, other, f"{path}[{index}]")
