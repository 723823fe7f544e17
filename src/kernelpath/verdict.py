"""Every way in which grading can end, and the report that carries it. Plain data: JSON in and out, no torch."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

_REPLAY = "mend {file}, then kp check {name} --seed {seed}"


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
        member.then = then or "mend {file}, then kp check {name}"
        return member

    PASSED = "PASSED", "right on every case, within its limits", "kp next"
    NOT_STARTED = "NOT_STARTED", "the stub still raises NotImplementedError", "edit {file}, then kp check {name}"
    COMPILE_ERROR = "COMPILE_ERROR", "the submission cannot be loaded or compiled"
    CRASHED = "CRASHED", "an exception, a device error or the end of the process", _REPLAY
    TIMED_OUT = "TIMED_OUT", "no answer within the time allowed"
    WRONG_TYPE = "WRONG_TYPE", "the entry returned something else than plain, contiguous tensors on the right device"
    WRONG_SHAPE = "WRONG_SHAPE", "an output has the wrong shape"
    WRONG_DTYPE = "WRONG_DTYPE", "an output has the wrong dtype"
    WRONG_VALUES = "WRONG_VALUES", "an output differs from the reference", _REPLAY
    NOT_WRITTEN = "NOT_WRITTEN", "part of an output was never written", _REPLAY
    MUTATED_INPUT = "MUTATED_INPUT", "the submission changed its inputs"
    OUT_OF_BOUNDS = "OUT_OF_BOUNDS", "the kernel touched memory outside its tensors", _REPLAY
    UNINITIALIZED = "UNINITIALIZED", "the kernel read memory that nothing had written", _REPLAY
    RACE = "RACE", "two threads touched one address without an order between them", _REPLAY
    BARRIER = "BARRIER", "the threads of a block did not all reach the same barrier", _REPLAY
    NOT_YOUR_KERNEL = "NOT_YOUR_KERNEL", "a library did the work"
    TAMPERED = "TAMPERED", "the submission changed the process that measures it"
    TOO_MUCH_TRAFFIC = (
        "TOO_MUCH_TRAFFIC",
        "right, but asks more of the memory system than the exercise allows",
        "kp hint {name}",
    )
    TOO_SLOW = "TOO_SLOW", "right, but below the speedup asked for", "kp hint {name}"
    TOO_FAST = (
        "TOO_FAST",
        "faster than the speed of light of this machine: the measurement is broken",
        "kp bench {name}",
    )
    INCONCLUSIVE = (
        "INCONCLUSIVE",
        "the noise is wider than the margin",
        "close what else uses the GPU, then kp bench {name}",
    )
    UNAVAILABLE = "UNAVAILABLE", "this machine cannot run it; the reason is given", "kp doctor"

    @property
    def passed(self) -> bool:
        return self is Verdict.PASSED


@dataclass(frozen=True)
class Complaint:
    """Why a case or a submission ended as it did: a verdict, the cause, and where in the learner's file.

    element: which output, and which of its elements in the order of memory, the cause is about.
    """

    verdict: Verdict
    cause: str
    file: str = ""
    line: int = 0
    element: tuple[int, int] | None = None


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
class LineTraffic:
    """What one source line's loads, stores or atomics asked of one tensor, summed over all launches of one case.

    access: "load from", "store to" or "atomic on". memory: the name of the tensor, or of the variable in shared memory.
    requests: accesses of whole warps. Global memory is counted in sectors, shared memory in wavefronts; the ideal is
    the least that the bytes asked for need.
    """

    file: str
    line: int
    access: str
    memory: str
    requests: int
    sectors: int = 0
    ideal_sectors: int = 0
    wavefronts: int = 0
    ideal_wavefronts: int = 0

    @property
    def sectors_over_ideal(self) -> float:
        return self.sectors / self.ideal_sectors if self.ideal_sectors else 1.0

    @property
    def bank_conflicts_per_request(self) -> float:
        return (self.wavefronts - self.ideal_wavefronts) / self.requests if self.requests else 0.0

    @property
    def place(self) -> str:
        return f"line {self.line}, {self.access} {self.memory}"

    @property
    def cost(self) -> str:
        """What a request costs and what would do: "32 sectors a request, 4 would do"."""
        if self.ideal_sectors and self.ideal_sectors < self.requests:  # few lanes: no request needs less than a sector
            asked, moved = (32 * sectors / self.requests for sectors in (self.ideal_sectors, self.sectors))
            return f"a request moves {moved:.3g} bytes for the {asked:.3g} that its lanes ask for"
        shared = bool(self.wavefronts)
        unit, had = ("wavefronts", self.wavefronts) if shared else ("sectors", self.sectors)
        ideal = self.ideal_wavefronts if shared else self.ideal_sectors
        return f"{had / self.requests:.3g} {unit} a request, {ideal / self.requests:.3g} would do"


@dataclass(frozen=True)
class Interval:
    """A median of paired ratios with its confidence interval, as `timing.ratio` gives it."""

    median: float
    low: float
    high: float


@dataclass(frozen=True)
class Measurement:
    """A timed run: seconds are medians of cold-L2 calls, ratios are paired within each round.

    speedup: baseline's time over the submission's; of_reference: reference kernel's time over the submission's.
    light_seconds: the speed of light of the case on this machine, from ceilings measured in the same process.
    ceilings: bytes or operations per second by name ("copy", "read", ...).
    telemetry: clocks in MHz, power in W and temperature in degrees Celsius, as seen.
    """

    case: Mapping[str, Any]
    seconds: float
    baseline_seconds: float
    reference_seconds: float | None
    speedup: Interval
    of_reference: Interval | None
    bytes_moved: int
    flops: int
    light_seconds: float
    ceilings: Mapping[str, float]
    rounds: int
    method: str
    telemetry: Mapping[str, float] = field(default_factory=dict)

    @property
    def bytes_per_second(self) -> float:
        return self.bytes_moved / self.seconds

    @property
    def share_of_light(self) -> float:
        return self.light_seconds / self.seconds


@dataclass(frozen=True)
class Report:
    """All that is known after grading one submission.

    stars: 0 to 3. not_measured: what this machine could not say, in words. next_step: one command or one sentence.
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
    measurement: Measurement | None = None
    printed: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0

    def to_json(self, indent: int | None = None) -> str:
        return json.dumps(dataclasses.asdict(self), indent=indent, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Report:
        """The inverse of `to_json`. Raises KeyError, TypeError or ValueError on anything else."""
        data = json.loads(text)
        data["verdict"] = Verdict(data["verdict"])
        data["cases"] = tuple(CaseResult(**{**case, "verdict": Verdict(case["verdict"])}) for case in data["cases"])
        data["traffic"] = tuple(LineTraffic(**line) for line in data["traffic"])
        data["not_measured"] = tuple(data["not_measured"])
        if data["measurement"] is not None:
            measured = data["measurement"]
            measured["speedup"] = Interval(**measured["speedup"])
            if measured["of_reference"] is not None:
                measured["of_reference"] = Interval(**measured["of_reference"])
            data["measurement"] = Measurement(**measured)
        return cls(**data)
