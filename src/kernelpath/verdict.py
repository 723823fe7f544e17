"""Define the verdicts of a grading and the report that has them. Plain data: JSON in and out, no torch.

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
_REPLAY = "fix {file}, then {check} --seed {seed}"


class ValidationError(ValueError):
    """A text is not a report that this version of kernelpath saves. The message says what is wrong with it, and
    where.
    """


class Verdict(str, Enum):
    """The result of grading a submission.

    Attributes:
        meaning: The sentence that a learner reads beside it.
        then: The next step, with the placeholders {file}, {name}, {seed}, and {check}, the command that grades again.
    """

    meaning: str
    then: str

    def __new__(cls, value: str, meaning: str = "", then: str = "") -> Verdict:
        # A member of a str enumeration is its value; meaning and next step become attributes.
        member = str.__new__(cls, value)
        member._value_ = value
        member.meaning = meaning
        member.then = then or "fix {file}, then {check}"
        return member

    # Nothing ran, or it did not end.
    PASSED = "PASSED", "right on every case and within its limits", "kp next"
    NOT_STARTED = "NOT_STARTED", "the stub still raises NotImplementedError", "edit {file}, then {check}"
    COMPILE_ERROR = "COMPILE_ERROR", "the submission cannot be loaded or compiled"
    CRASHED = "CRASHED", "it raised an exception, hit a device error, or its process ended early", _REPLAY
    TIMED_OUT = "TIMED_OUT", "it did not finish within the time limit"
    # The result is not what the reference computes.
    WRONG_TYPE = "WRONG_TYPE", "the entry function did not return plain, contiguous tensors on the right device"
    WRONG_SHAPE = "WRONG_SHAPE", "an output has the wrong shape"
    WRONG_DTYPE = "WRONG_DTYPE", "an output has the wrong dtype"
    WRONG_VALUES = "WRONG_VALUES", "an output differs from the reference", _REPLAY
    NOT_WRITTEN = "NOT_WRITTEN", "part of an output was never written", _REPLAY
    MUTATED_INPUT = "MUTATED_INPUT", "the submission changed its inputs"
    # Faults that the PTX machine finds, even where the result is right by chance.
    OUT_OF_BOUNDS = "OUT_OF_BOUNDS", "the kernel accessed memory outside its tensors", _REPLAY
    UNINITIALIZED = "UNINITIALIZED", "the kernel read memory that nothing had written", _REPLAY
    RACE = "RACE", "two threads accessed one address, at least one wrote, and nothing ordered them", _REPLAY
    DEADLOCK = "DEADLOCK", "threads, blocks or ranks wait for each other, or for one that never arrives", _REPLAY
    BARRIER = "BARRIER", "the threads of a block did not all reach the same barrier", _REPLAY
    # The result did not come about as the statement requires.
    WRONG_OPERATOR = (
        "WRONG_OPERATOR",
        "the registration with torch.library does not meet the requirements of autograd and torch.compile",
    )
    NOT_YOUR_KERNEL = "NOT_YOUR_KERNEL", "a library or the host did the work, not your kernel"
    ACCESS_DENIED = (
        "ACCESS_DENIED",
        "the submission accessed files, processes or a network outside its permissions",
    )
    TAMPERED = "TAMPERED", "the submission changed the process that measures it"
    # The result is right, and counters exceed a limit of the statement.
    NO_TENSOR_CORES = (
        "NO_TENSOR_CORES",
        "right, but tensor cores do not compute its products, as the exercise requires",
        "kp hint {name}",
    )
    NO_OVERLAP = (
        "NO_OVERLAP",
        "right, but units of the GPU are idle that the exercise requires to work at the same time",
        "kp profile {name} --pipeline",
    )
    TOO_MUCH_TRAFFIC = (
        "TOO_MUCH_TRAFFIC",
        "right, but with more memory traffic than the exercise allows",
        "kp hint {name}",
    )
    TOO_MUCH_MEMORY = (
        "TOO_MUCH_MEMORY",
        "right, but with more device memory besides inputs and outputs than the exercise allows",
        "kp hint {name}",
    )
    DIVERGENT = (
        "DIVERGENT",
        "right, but too few lanes are active in the average instruction of a warp",
        "kp profile {name}",
    )
    TOO_MANY_INSTRUCTIONS = (
        "TOO_MANY_INSTRUCTIONS",
        "right, but with narrow accesses, local memory or more arithmetic than the exercise allows",
        "kp profile {name} --sass",
    )
    # Exercises that repair kernels.
    WRONG_DIAGNOSIS = (
        "WRONG_DIAGNOSIS",
        "the repaired kernels are right, but the fault that one of them had is not named or not shown, or is another one",
        "kp hint {name}",
    )
    TOO_MANY_CHANGES = (
        "TOO_MANY_CHANGES",
        "the repaired kernels are right, but the repair changes more statements than the exercise allows",
        "kp hint {name}",
    )
    # Only a GPU decides these.
    TOO_SLOW = "TOO_SLOW", "right, but below the required speedup", "kp hint {name}"
    TOO_FAST = (
        "TOO_FAST",
        "faster than the measured ceiling of this GPU: the measurement is wrong",
        "kp bench {name}",
    )
    INCONCLUSIVE = (
        "INCONCLUSIVE",
        "the measurement does not decide: it is too noisy, or the gate says nothing on this GPU",
        "stop other programs that use the GPU, then kp bench {name}",
    )
    # The submission is not to blame.
    UNAVAILABLE = "UNAVAILABLE", "this machine cannot run it; the report says why", "kp doctor"

    @property
    def passed(self) -> bool:
        return self is Verdict.PASSED


@dataclass(frozen=True)
class Finding:
    """The reason why a case or a submission failed: a verdict, the cause, and the line in the learner's file.

    Attributes:
        element: The number of an output, and of one of its elements in the order of memory, that the cause is about.
        then: The next step, where the cause has its own, in the format of Verdict.then.
    """

    verdict: Verdict
    cause: str
    file: str = ""
    line: int = 0
    element: tuple[int, int] | None = None
    then: str = ""

    @property
    def step(self) -> str:
        """The next step, with placeholders."""
        return self.then or self.verdict.then


@dataclass(frozen=True)
class CaseResult:
    """The result of one case. `seconds` is the time from the request to the worker's response."""

    case: Mapping[str, Any]
    verdict: Verdict
    cause: str = ""
    file: str = ""
    line: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class NetworkTraffic:
    """The traffic between the ranks of one case.

    Attributes:
        messages: The messages of the rank that sends most. A collective counts as one message.
        bytes: The bytes of the rank that sends most.
        seconds: The time of the whole call on the simulated links.
        hidden: The share of the communication that overlaps with compute; None without compute.
    """

    case: Mapping[str, Any]
    messages: int
    bytes: int
    seconds: float
    hidden: float | None = None


@dataclass(frozen=True)
class Interval:
    """A median of paired ratios with its confidence interval, as `timing.paired_ratio` computes it."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return words.ratio(self.median, self.low, self.high)


@dataclass(frozen=True)
class Measurement:
    """A timed run. Seconds are medians of calls with a cold L2, ratios are paired within each round.

    Attributes:
        speedup: The baseline's time over the submission's.
        of_reference: The reference kernel's time over the submission's.
        light_seconds: The least time of the case on this machine, from ceilings measured in the same process.
        ceilings: Bytes or operations per second by name ("copy", "read", ...).
        telemetry: Clocks in MHz, power in W and temperature in degrees Celsius, as NVML reports them.
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
    """The result of grading one submission.

    Attributes:
        stars: 0 to 3.
        not_measured: Sentences about what this machine could not measure.
        next_step: A command or a sentence.
        graded: The SHA-256 of each file that was graded, by its name.
        compile_seconds: The part of `seconds` that the lane's compiler took in the process that ran the cases.
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
        """Return the report that `to_json` has written. Raise ValidationError for anything else."""
        return decode(text, cls)


def encode(value: object, indent: int | None = None) -> str:
    """Return the JSON of a dataclass, or of lists and dictionaries of them. Raise ValueError for a NaN or an
    infinity.
    """
    return json.dumps(msgspec.to_builtins(value), indent=indent, allow_nan=False)  # msgspec would write them as null


def decode(text: str | bytes, expected: type[_T]) -> _T:
    """Return the value that `encode` has written as the type `expected`.

    Every field must have its declared type, and there must be no other field. A field that is missing gets its default,
    so that reports of older versions can be read where possible.

    Raises:
        ValidationError: The text is anything else.
    """
    try:
        data = json.loads(text, parse_constant=_reject_constant)
        value = msgspec.convert(data, expected)
    except (ValueError, RecursionError) as error:
        raise ValidationError(str(error)) from error
    # msgspec ignores unknown fields of a dataclass. A misspelled one would silently get its default.
    unknown = next(_unknown_fields(data, msgspec.to_builtins(value), "$"), None)
    if unknown is not None:
        raise ValidationError(f"Object contains unknown field `{unknown}`")
    return value


def _reject_constant(constant: str) -> NoReturn:
    """Raise ValueError for NaN and infinities, which Python's parser accepts though JSON has none."""
    raise ValueError(f"{constant} is not JSON")


def _unknown_fields(data: Any, known: Any, path: str) -> Iterator[str]:
    """Yield the paths of the fields of `data` that are missing in `known`, the data that was converted and back."""
    if isinstance(data, dict):
        for key, value in data.items():
            field_path = f"{path}.{key}"
            yield from _unknown_fields(value, known[key], field_path) if key in known else (field_path,)
    elif isinstance(data, list):
        for index, (value, known_value) in enumerate(zip(data, known, strict=True)):
            yield from _unknown_fields(value, known_value, f"{path}[{index}]")
