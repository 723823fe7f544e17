"""The grader's side of a measurement: asks the worker for rounds, checks every timed output, decides."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kernelpath import words
from kernelpath.course.spec import Case, Exercise, Traffic
from kernelpath.grading import compare, roofline, timing
from kernelpath.grading.truth import derive, draw_inputs, expected_outputs, output_dtype, tensor_of
from kernelpath.verdict import Complaint, Interval, LineTraffic, Measurement, Verdict

Ask = Callable[[Mapping[str, Any], float], tuple[dict[str, Any], list[bytes]]]
Conduct = Callable[[Mapping[str, Any], Sequence[Any]], Complaint | None]

THIRD_STAR = 0.9
"""The share of the reference kernel's speed, in the same run, that earns the third star."""

LAUNCH_BOUND_SECONDS = 20e-6
"""A kernel that is faster than this has a time that says little about the kernel."""

COMPUTE_BOUND = 10.0
"""Operations a byte from which arithmetic, and not memory, may bound a kernel on any GPU of the course."""

NEGLIGIBLE = 0.02
"""The share of a kernel's sectors that may be uncoalesced: the tail that fills no vector, for one."""

_ROUND_SECONDS = 30.0
_SETUP_SECONDS = 120.0
_SUBMISSION, _BASELINE, _REFERENCE = range(3)


class Contest:
    """Rounds of one exercise's bench case: submission, baseline and, unless withheld, reference kernel, interleaved."""

    def __init__(
        self, exercise: Exercise, case: Case, ask: Ask, conduct: Conduct, seed: int, device: str = "cuda"
    ) -> None:
        self.exercise, self.case = exercise, case
        self._ask, self._conduct, self._seed, self._device = ask, conduct, seed, device
        self.seconds: list[list[float]] = []
        self.telemetry: dict[str, float] = {}

    def run(self, until: Sequence[int], progress: Callable[[str], None]) -> Complaint | None:
        """Rounds until the ratios are settled, or all the looks of `until` are taken; the first complaint ends it."""
        answer, _ = self._ask({"do": "contest", "case": dict(self.case)}, _SETUP_SECONDS)
        self.seconds = [[] for _ in range(answer["contestants"])]
        for look in until:
            while len(self.seconds[_SUBMISSION]) < look:
                progress(f"measuring: round {len(self.seconds[_SUBMISSION]) + 1} of at most {until[-1]}")
                complaint = self._round(len(self.seconds[_SUBMISSION]))
                if complaint is not None:
                    return complaint
            if timing.settled(self.speedup, [self.exercise.min_speedup]):
                return None
        return None

    def _round(self, index: int) -> Complaint | None:
        seed, sample = derive(self._seed, "round", index), derive(self._seed, "sample", index)
        order = timing.order(index, len(self.seconds))
        message = {"do": "round", "seed": seed, "order": order, "sample": sample}
        answer, payloads = self._ask(message, _ROUND_SECONDS)
        inputs = draw_inputs(self.exercise, self.case, seed, self._device)
        complaint = self._conduct(answer, inputs) or self._check(answer, payloads, inputs, sample)
        for times, seconds in zip(self.seconds, answer["seconds"], strict=True):
            times.append(seconds)
        self.telemetry.update(answer["telemetry"])
        return complaint

    def _check(
        self, answer: Mapping[str, Any], payloads: Sequence[bytes], inputs: Sequence[Any], seed: int
    ) -> Complaint | None:
        """The sample of this round's outputs against the truth for this round's inputs."""
        if answer["late"]:
            cause = f"the output changed after {self.exercise.entry} had returned and the GPU was idle"
            return Complaint(Verdict.TAMPERED, cause)
        shapes = [told["shape"] for told in answer["outputs"]]
        truths = expected_outputs(self.exercise, inputs)
        if shapes != [list(truth.shape) for truth in truths]:
            return Complaint(Verdict.WRONG_SHAPE, f"in a timed call the outputs have shapes {shapes}")
        dtype, first = output_dtype(self.exercise, inputs), answer["outputs"][0]["dtype"]
        if dtype not in (None, first):
            return Complaint(Verdict.WRONG_DTYPE, f"in a timed call the output has dtype {first}, expected {dtype}")
        for told, raw, truth in zip(answer["outputs"], payloads, truths, strict=True):
            tolerance = self.exercise.tolerance.get(told["dtype"])
            if tolerance is None:
                return Complaint(Verdict.WRONG_DTYPE, f"in a timed call an output has dtype {told['dtype']}")
            places = compare.sample(truth, seed)
            sampled = tensor_of({**told, "shape": list(places.shape)}, raw, self._device)
            wrong = compare.mismatches(sampled, places, tolerance, compare.root_mean_square(truth))
            if bool(wrong.any()):
                share = float(wrong.float().mean())
                return Complaint(
                    Verdict.WRONG_VALUES, f"in a timed call {share:.1%} of the outputs looked at are wrong"
                )
        return None

    @property
    def speedup(self) -> Interval:
        return timing.ratio(self.seconds[_BASELINE], self.seconds[_SUBMISSION])

    def measurement(self, ceilings: Mapping[str, float], dtype: str | None = None) -> Measurement:
        """What the rounds amount to. dtype: of the library product whose rate bounds the operations, if any does."""
        bytes_moved = self.exercise.bytes_moved(**self.case)
        flops = self.exercise.flops(**self.case) if self.exercise.flops else 0
        medians = [statistics.median(times) for times in self.seconds]
        referred = len(self.seconds) > _REFERENCE
        return Measurement(
            case=self.case,
            seconds=medians[_SUBMISSION],
            baseline_seconds=medians[_BASELINE],
            reference_seconds=medians[_REFERENCE] if referred else None,
            speedup=self.speedup,
            of_reference=timing.ratio(self.seconds[_REFERENCE], self.seconds[_SUBMISSION]) if referred else None,
            bytes_moved=bytes_moved,
            flops=flops,
            light_seconds=roofline.light_seconds(bytes_moved, flops, ceilings, dtype),
            ceilings=ceilings,
            rounds=len(self.seconds[_SUBMISSION]),
            method="paired rounds, cold L2, medians",
            telemetry=self.telemetry,
        )


def measure(
    exercise: Exercise, ask: Ask, conduct: Conduct, seed: int, progress: Callable[[str], None], bench: bool
) -> tuple[Measurement | None, Complaint | None]:
    """Time the bench case. bench: take every look, for the narrowest interval. Needs a GPU."""
    assert exercise.bench is not None
    dtype = _product_dtype(exercise)
    answer, _ = ask({"do": "ceilings", "dtype": dtype}, _SETUP_SECONDS)
    contest = Contest(exercise, exercise.bench, ask, conduct, seed)
    looks = timing.LOOKS[-1:] if bench else timing.LOOKS
    complaint = contest.run(looks, progress)
    if complaint is not None:
        return None, complaint
    measured = contest.measurement(answer["ceilings"], dtype)
    return measured, time_complaint(measured, exercise.min_speedup)


def _product_dtype(exercise: Exercise) -> str | None:
    """The dtype to compare matrix products in, where the bench case has more operations a byte than memory can feed."""
    assert exercise.bench is not None
    flops = exercise.flops(**exercise.bench) if exercise.flops else 0
    if flops < COMPUTE_BOUND * exercise.bytes_moved(**exercise.bench):
        return None
    return str(exercise.bench.get("dtype", next(iter(exercise.tolerance))))


def time_complaint(measured: Measurement, min_speedup: float) -> Complaint | None:
    """TOO_FAST, TOO_SLOW or INCONCLUSIVE, with the numbers; None when the gate is passed."""
    if roofline.too_fast(measured.seconds, measured.light_seconds):
        cause = (
            f"{measured.seconds * 1e6:.1f} µs, but {measured.bytes_moved / 1e6:,.1f} MB take"
            f" {measured.light_seconds * 1e6:.1f} µs at this machine's ceiling"
        )
        return Complaint(Verdict.TOO_FAST, cause)
    if measured.seconds < LAUNCH_BOUND_SECONDS:
        took = f"{measured.seconds * 1e6:.1f} µs is launch overhead more than anything else"
        return Complaint(Verdict.INCONCLUSIVE, f"{took}; the declaration needs a larger bench case for this GPU")
    side = timing.judge(measured.speedup, min_speedup)
    if side == "above":
        return None
    found = f"{measured.speedup.median:.2f} times the baseline's speed, {min_speedup:.2f} asked for"
    if side == "below":
        return Complaint(Verdict.TOO_SLOW, found)
    interval = f"between {measured.speedup.low:.2f} and {measured.speedup.high:.2f}"
    return Complaint(Verdict.INCONCLUSIVE, f"{found}; after {measured.rounds} rounds it lies {interval}")


def stars(measured: Measurement | None, verdict: Verdict) -> int:
    """One for a right result within the traffic limits, two for the minimum speedup, three for THIRD_STAR."""
    if verdict in (Verdict.TOO_SLOW, Verdict.INCONCLUSIVE):
        return 1
    if not verdict.passed:
        return 0
    if measured is None:
        return 1
    return 2 + int(measured.of_reference is not None and measured.of_reference.median >= THIRD_STAR)


def not_measured(exercise: Exercise, measured: Measurement | None, verdict: Verdict) -> tuple[str, ...]:
    """What keeps a pass from its second or third star, in words."""
    if not verdict.passed or exercise.baseline is None:
        return ()
    if measured is None:
        return ("speed: no GPU was used",)
    return () if measured.of_reference else ("the third star: there is no reference kernel in solutions/",)


def traffic_complaint(lines: Sequence[LineTraffic], limits: Traffic, compulsory: int, case: Case) -> Complaint | None:
    """The first limit broken, with the worst access and what it costs there. compulsory: bytes of the case."""
    sectors = sum(line.sectors for line in lines)
    if not sectors:
        return None
    if limits.sectors is not None:
        scattered = [line for line in lines if line.sectors_over_ideal > limits.sectors]
        if sum(line.sectors for line in scattered) > NEGLIGIBLE * sectors:
            worst = max(scattered, key=lambda line: line.sectors - line.ideal_sectors)
            return _traffic(worst, f"{worst.place}: {worst.cost}")
    if limits.bank_conflicts is not None:
        worst = max(lines, key=lambda line: line.bank_conflicts_per_request)
        if worst.bank_conflicts_per_request > limits.bank_conflicts:
            return _traffic(worst, f"{worst.place}: {worst.cost}")
    if limits.bytes is not None and 32 * sectors > limits.bytes * compulsory:
        worst = max(lines, key=lambda line: line.sectors)
        allowed = f"at most {int(limits.bytes * compulsory):,} are allowed"
        ideal = f"{compulsory:,} would do if nothing were moved twice"
        found = f"at {words.case(case)}: {32 * sectors:,} bytes moved, {allowed} ({ideal})"
        return _traffic(worst, f"{found}; most in {worst.place}")
    return None


def _traffic(line: LineTraffic, cause: str) -> Complaint:
    return Complaint(Verdict.TOO_MUCH_TRAFFIC, cause, line.file, line.line)
