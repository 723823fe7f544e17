"""A race on a GPU: rounds of submission, baseline and reference kernel, every timed output checked."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch

from kernelpath.course.problem import Case
from kernelpath.course.spec import Exercise
from kernelpath.grading import compare, roofline, timing
from kernelpath.grading.ground_truth import (
    NoTensor,
    derive,
    expected_outputs,
    generate_inputs,
    magnitudes_of,
    output_dtype,
    tensors_of_one_dtype,
)
from kernelpath.verdict import Finding, Interval, Measurement, Verdict
from kernelpath.work import messages
from kernelpath.work.tensors import samples

_Answer = TypeVar("_Answer", bound=messages.WorkerResponse)
Conduct = Callable[[messages.CallResult, tuple[object, ...]], Finding | None]

_ROUND_SECONDS = 30.0
_SETUP_SECONDS = 120.0
FORGED = Finding(Verdict.TAMPERED, "the submission answered in place of the worker")

_SUBMISSION, _BASELINE, _REFERENCE = range(3)


class RequestSender(Protocol):
    """What asks a worker: a `work.runner.Runner`."""

    def request(self, message: messages.WorkerRequest, expected: type[_Answer], seconds: float) -> _Answer: ...


class Contest:
    """Rounds of one exercise's bench case: submission, baseline and reference kernel, interleaved.

    reference: its files, unless it is withheld.
    """

    def __init__(
        self,
        exercise: Exercise,
        case: Case,
        runner: RequestSender,
        conduct: Conduct,
        seed: int,
        reference: Sequence[Path] = (),
        device: str = "cuda",
    ) -> None:
        self.exercise, self.case, self.reference = exercise, case, reference
        self._runner, self._conduct, self._seed, self._device = runner, conduct, seed, device
        self.seconds: list[list[float]] = []
        self.telemetry: dict[str, float] = {}

    def run(self, until: Sequence[int], progress: Callable[[str], None]) -> Finding | None:
        """Rounds until the ratios are settled, or all the looks of `until` are taken; the first finding ends it."""
        reference = {file.name: file.read_text(encoding="utf-8") for file in self.reference}
        ready = self._runner.request(
            messages.StartTiming(case=dict(self.case), reference=reference), messages.TimingReady, _SETUP_SECONDS
        )
        if ready.implementations not in (2, 3):
            return FORGED
        self.seconds = [[] for _ in range(ready.implementations)]
        for look in until:
            while len(self.seconds[_SUBMISSION]) < look:
                progress(f"measuring: round {len(self.seconds[_SUBMISSION]) + 1} of at most {until[-1]}")
                finding = self._round(len(self.seconds[_SUBMISSION]))
                if finding is not None:
                    return finding
            if timing.settled(self.speedup, [self.exercise.min_speedup]):
                return None
        return None

    def _round(self, index: int) -> Finding | None:
        seed, sample = derive(self._seed, "round", index), derive(self._seed, "sample", index)
        order = timing.order(index, len(self.seconds))
        timed = self._runner.request(
            messages.TimeRound(seed=seed, order=order, sample=sample), messages.RoundTimes, _ROUND_SECONDS
        )
        inputs = generate_inputs(self.exercise, self.case, seed, self._device)
        finding = self._conduct(timed.result, inputs) or self._check(timed, inputs, sample)
        if len(timed.seconds) != len(self.seconds) or not all(map(math.isfinite, timed.seconds)):
            return FORGED
        for times, seconds in zip(self.seconds, timed.seconds, strict=True):
            times.append(seconds)
        self.telemetry.update(timed.telemetry)
        return finding

    def _check(self, timed: messages.RoundTimes, inputs: Sequence[Any], seed: int) -> Finding | None:
        """The sample of this round's outputs against the truth for this round's inputs."""
        if timed.changed_after_return:
            cause = f"the output changed after {self.exercise.entry} had returned and the GPU was idle"
            return Finding(Verdict.TAMPERED, cause)
        outputs = timed.result.outputs
        shapes = [list(told.shape) for told in outputs]
        truths = expected_outputs(self.exercise, inputs)
        if shapes != [list(truth.shape) for truth in truths]:
            return Finding(Verdict.WRONG_SHAPE, f"in a timed call the outputs have shapes {shapes}")
        dtype, first = output_dtype(self.exercise, inputs), outputs[0].dtype
        if dtype not in (None, first):
            return Finding(Verdict.WRONG_DTYPE, f"in a timed call the output has dtype {first}, expected {dtype}")
        if wide := next((told.dtype for told in outputs if told.dtype not in self.exercise.tolerance), None):
            return Finding(Verdict.WRONG_DTYPE, f"in a timed call an output has dtype {wide}")
        places = samples(truths, seed)
        try:
            sampled = _samples_told(outputs, places)
        except NoTensor:
            return FORGED
        places = compare.settled(self.exercise, places, sampled)
        rms = compare.root_mean_squares(truths)
        wrong = compare.wrong_sample(sampled, places, self.exercise.tolerance, rms)
        magnitudes = magnitudes_of(self.exercise, inputs)
        if wrong is not None and magnitudes is not None:
            sampled_magnitudes = samples(magnitudes(), seed)
            wrong = compare.wrong_sample(sampled, places, self.exercise.tolerance, rms, sampled_magnitudes)
        if wrong is None:
            return None
        share = float(wrong.float().mean())
        return Finding(Verdict.WRONG_VALUES, f"in a timed call {share:.1%} of the sampled outputs are wrong")

    @property
    def speedup(self) -> Interval:
        return timing.ratio(self.seconds[_BASELINE], self.seconds[_SUBMISSION])

    def measurement(self, ceilings: Mapping[str, float], dtype: str | None = None) -> Measurement:
        """What the rounds amount to. dtype: of the library product whose rate bounds the operations, if any does."""
        compulsory_bytes = self.exercise.compulsory_bytes(**self.case)
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
            compulsory_bytes=compulsory_bytes,
            flops=flops,
            light_seconds=roofline.light_seconds(compulsory_bytes, flops, ceilings, dtype),
            ceilings=ceilings,
            rounds=len(self.seconds[_SUBMISSION]),
            method="paired rounds, cold L2, medians",
            telemetry=self.telemetry,
        )


def _samples_told(outputs: Sequence[messages.TensorData], places: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """What the worker told of its outputs, beside the samples of the truths. Raises NoTensor if it cannot be that."""
    found: dict[int, torch.Tensor] = {}
    for dtype in dict.fromkeys(told.dtype for told in outputs):
        chosen = [index for index, told in enumerate(outputs) if told.dtype == dtype]
        shapes, contents = [places[index].shape for index in chosen], [outputs[index].content for index in chosen]
        found.update(zip(chosen, tensors_of_one_dtype(dtype, shapes, contents, str(places[0].device)), strict=True))
    return [found[index] for index in range(len(outputs))]
