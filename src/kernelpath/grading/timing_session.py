"""Time rounds of submission, baseline and reference kernel, and check every timed output."""

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
    InvalidTensor,
    decode_tensors,
    derive_seed,
    expected_outputs,
    generate_inputs,
    magnitudes_of,
    output_dtype,
)
from kernelpath.verdict import Finding, Interval, Measurement, Verdict
from kernelpath.work import messages
from kernelpath.work.runner import UNEXPECTED_RESPONSE
from kernelpath.work.tensors import samples

_Response = TypeVar("_Response", bound=messages.WorkerResponse)
CheckProcess = Callable[[messages.CallResult, tuple[object, ...]], Finding | None]

_ROUND_SECONDS = 30.0
_SETUP_SECONDS = 120.0

_SUBMISSION, _BASELINE, _REFERENCE = range(3)


class RequestSender(Protocol):
    """Sends requests to a worker, as a `work.runner.Runner` does."""

    def request(self, message: messages.WorkerRequest, expected: type[_Response], seconds: float) -> _Response: ...


class TimingSession:
    """Rounds of an exercise's bench case, in which submission, baseline and reference kernel take turns.

    Args:
        exercise: The exercise.
        case: The timed case.
        runner: Sends requests to the submission's process.
        check_process: Returns a finding about what the submission did in its process.
        seed: Generates the inputs of each round.
        reference: The reference kernel's files, unless it is withheld.
        device: Where the grader generates the inputs again.
    """

    def __init__(
        self,
        exercise: Exercise,
        case: Case,
        runner: RequestSender,
        check_process: CheckProcess,
        seed: int,
        reference: Sequence[Path] = (),
        device: str = "cuda",
    ) -> None:
        self.exercise = exercise
        self.case = case
        self.reference = reference
        self._runner = runner
        self._check_process = check_process
        self._seed = seed
        self._device = device
        self.seconds: list[list[float]] = []
        self.telemetry: dict[str, float] = {}

    def run(self, looks: Sequence[int], progress: Callable[[str], None]) -> Finding | None:
        """Time rounds until the ratios are settled, or all looks are taken. The first finding ends the session.

        `looks` has the numbers of rounds after which the ratios are looked at.
        """
        # The submission's process cannot read these files, and gets them only after all cases have been graded.
        reference = {file.name: file.read_text(encoding="utf-8") for file in self.reference}
        ready = self._runner.request(
            messages.StartTiming(case=dict(self.case), reference=reference), messages.TimingReady, _SETUP_SECONDS
        )
        # The reference kernel is timed as well if its files were sent and it runs on this GPU.
        if ready.implementations not in (2, 3):
            return UNEXPECTED_RESPONSE
        self.seconds = [[] for _ in range(ready.implementations)]
        for look in looks:
            while len(self.seconds[_SUBMISSION]) < look:
                progress(f"measuring: round {len(self.seconds[_SUBMISSION]) + 1} of at most {looks[-1]}")
                finding = self._time_round(len(self.seconds[_SUBMISSION]))
                if finding is not None:
                    return finding
            if timing.is_settled(self.speedup, [self.exercise.min_speedup]):
                return None
        return None

    def _time_round(self, index: int) -> Finding | None:
        # New values in each round, so that the results of an earlier round are wrong (T7 in docs/attacks.md).
        seed = derive_seed(self._seed, "round", index)
        sample_seed = derive_seed(self._seed, "sample", index)
        order = timing.implementation_order(index, len(self.seconds))
        request = messages.TimeRound(seed=seed, order=order, sample=sample_seed)
        times = self._runner.request(request, messages.RoundTimes, _ROUND_SECONDS)
        # The truth follows from inputs that are generated again here. The worker's copies may have been changed (C2 in
        # docs/attacks.md).
        inputs = generate_inputs(self.exercise, self.case, seed, self._device)
        finding = self._check_process(times.result, inputs) or self._check_outputs(times, inputs, sample_seed)
        # The worker's own code sends a positive finite time for each implementation. If something else has answered, a
        # finding about the outputs means nothing.
        if len(times.seconds) != len(self.seconds) or not all(0 < seconds < math.inf for seconds in times.seconds):
            return UNEXPECTED_RESPONSE
        for earlier_seconds, seconds in zip(self.seconds, times.seconds, strict=True):
            earlier_seconds.append(seconds)
        self.telemetry.update(times.telemetry)
        return finding

    def _check_outputs(self, times: messages.RoundTimes, inputs: Sequence[Any], sample_seed: int) -> Finding | None:
        """Compare the sample of this round's outputs with the truth for this round's inputs."""
        # The worker compares the outputs again once the GPU is idle. Work on a thread or a stream that the clock missed
        # changes them (T1 and T2 in docs/attacks.md).
        if times.changed_after_return:
            cause = f"the output changed after {self.exercise.entry} had returned and the GPU was idle"
            return Finding(Verdict.TAMPERED, cause)
        outputs = times.result.outputs
        shapes = [list(output.shape) for output in outputs]
        truths = expected_outputs(self.exercise, inputs)
        if shapes != [list(truth.shape) for truth in truths]:
            return Finding(Verdict.WRONG_SHAPE, f"in a timed call the outputs have shapes {shapes}")
        expected_dtype = output_dtype(self.exercise, inputs)
        dtype = outputs[0].dtype
        if expected_dtype not in (None, dtype):
            cause = f"in a timed call the output has dtype {dtype}, expected {expected_dtype}"
            return Finding(Verdict.WRONG_DTYPE, cause)
        dtypes = (output.dtype for output in outputs)
        if wrong_dtype := next((dtype for dtype in dtypes if dtype not in self.exercise.tolerance), None):
            return Finding(Verdict.WRONG_DTYPE, f"in a timed call an output has dtype {wrong_dtype}")
        sampled_truths = samples(truths, sample_seed)
        try:
            sampled = _decode_samples(outputs, sampled_truths)
        except InvalidTensor:
            return UNEXPECTED_RESPONSE
        sampled_truths = compare.resolve_choices(self.exercise, sampled_truths, sampled)
        rms = compare.root_mean_squares(truths)
        tolerance = self.exercise.tolerance
        wrong = compare.find_wrong_sample(sampled, sampled_truths, tolerance, rms)
        magnitudes = magnitudes_of(self.exercise, inputs)
        if wrong is not None and magnitudes is not None:
            sampled_magnitudes = samples(magnitudes(), sample_seed)
            wrong = compare.find_wrong_sample(sampled, sampled_truths, tolerance, rms, sampled_magnitudes)
        if wrong is None:
            return None
        share = float(wrong.float().mean())
        return Finding(Verdict.WRONG_VALUES, f"in a timed call {share:.1%} of the sampled outputs are wrong")

    @property
    def speedup(self) -> Interval:
        """The baseline's time over the submission's."""
        return timing.paired_ratio(self.seconds[_BASELINE], self.seconds[_SUBMISSION])

    def measurement(self, ceilings: Mapping[str, float], dtype: str | None = None) -> Measurement:
        """Return the measurement of all rounds.

        Args:
            ceilings: The measured ceilings of this machine.
            dtype: The dtype of the library's product whose rate bounds the operations; None where no rate does.
        """
        compulsory_bytes = self.exercise.compulsory_bytes(**self.case)
        flops = self.exercise.flops(**self.case) if self.exercise.flops else 0
        medians = [statistics.median(seconds) for seconds in self.seconds]
        reference_seconds: float | None = None
        of_reference: Interval | None = None
        if len(self.seconds) > _REFERENCE:
            reference_seconds = medians[_REFERENCE]
            of_reference = timing.paired_ratio(self.seconds[_REFERENCE], self.seconds[_SUBMISSION])
        return Measurement(
            case=self.case,
            seconds=medians[_SUBMISSION],
            baseline_seconds=medians[_BASELINE],
            reference_seconds=reference_seconds,
            speedup=self.speedup,
            of_reference=of_reference,
            compulsory_bytes=compulsory_bytes,
            flops=flops,
            light_seconds=roofline.light_seconds(compulsory_bytes, flops, ceilings, dtype),
            ceilings=ceilings,
            rounds=len(self.seconds[_SUBMISSION]),
            method="paired rounds, cold L2, medians",
            telemetry=self.telemetry,
        )


def _decode_samples(
    outputs: Sequence[messages.TensorData], sampled_truths: Sequence[torch.Tensor]
) -> list[torch.Tensor]:
    """Return the worker's samples as tensors of the shapes of the truths' samples.

    Outputs of one dtype are transferred to the device together.

    Raises:
        InvalidTensor: The worker's code cannot have sent these.
    """
    sample_by_index: dict[int, torch.Tensor] = {}
    for dtype in dict.fromkeys(output.dtype for output in outputs):
        indices = [index for index, output in enumerate(outputs) if output.dtype == dtype]
        shapes = [sampled_truths[index].shape for index in indices]
        contents = [outputs[index].content for index in indices]
        tensors = decode_tensors(dtype, shapes, contents, str(sampled_truths[0].device))
        sample_by_index.update(zip(indices, tensors, strict=True))
    return [sample_by_index[index] for index in range(len(outputs))]
