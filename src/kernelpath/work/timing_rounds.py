"""Time rounds in the submission's process: every implementation once, on new inputs that all of them get."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import torch

from kernelpath.course.inputs import generate_inputs
from kernelpath.course.spec import Exercise
from kernelpath.work import messages
from kernelpath.work.call import GuardedCall
from kernelpath.work.exception_findings import BaselineFailed
from kernelpath.work.tensors import fingerprints, samples

_NAMES = ("submission", "baseline", "reference kernel")
_SUBMISSION = 0


class Clock(Protocol):
    """Times calls on a device, as a `stopwatch.Stopwatch` does."""

    device: torch.device

    def round(self, calls: Sequence[Callable[[], object]]) -> tuple[list[float], list[object]]: ...

    def wait(self) -> None: ...

    def telemetry(self) -> dict[str, float]: ...


class RoundTimer:
    """Times rounds of one case.

    Args:
        implementations: The submission, the baseline and, unless it is withheld, the reference kernel.
        clock: Times the calls.
        prepare_call: Returns a call on copies of these inputs.
    """

    def __init__(
        self,
        exercise: Exercise,
        case: Mapping[str, Any],
        implementations: Sequence[Callable[..., Any]],
        clock: Clock,
        prepare_call: Callable[[Sequence[Any]], GuardedCall],
    ) -> None:
        self._exercise = exercise
        self._case = case
        self._implementations = implementations
        self._clock = clock
        self._prepare_call = prepare_call

    def time_round(self, request: messages.TimeRound, describe_tampering: Callable[[], str]) -> messages.RoundTimes:
        """Return the seconds of each implementation, and a sample of the submission's outputs.

        The sample is taken after the clock has stopped. Then the outputs are compared with themselves once more: work
        that continues after the clock would change them.
        """
        calls = self._prepare_calls(request)
        position_of = {implementation: position for position, implementation in enumerate(request.order)}
        call = calls[_SUBMISSION]
        call.collect_before_timing()
        # All implementations run within one round and in the order of the request, so a drift of the clock rates hits
        # all alike.
        seconds, results = self._clock.round(
            [self._bind(implementation, calls[implementation]) for implementation in request.order]
        )
        outputs = call.outputs(results[position_of[_SUBMISSION]])
        first_fingerprints = fingerprints(outputs)
        result = call.to_result(
            outputs, request.secret, describe_tampering(), lambda tensors: samples(tensors, request.sample)
        )
        # After this, all work of the GPU is over, on whatever stream. Outputs that have changed were still being
        # written when the clock stopped.
        self._clock.wait()
        return messages.RoundTimes(
            secret=request.secret,
            result=result,
            seconds=[seconds[position_of[implementation]] for implementation in range(len(request.order))],
            changed_after_return=first_fingerprints != fingerprints(outputs),
            telemetry=self._clock.telemetry(),
        )

    def _prepare_calls(self, request: messages.TimeRound) -> dict[int, GuardedCall]:
        """Return a call for each implementation: the same call, unless they overwrite their inputs."""
        # New values in each round: an output that was kept from an earlier round would be wrong.
        inputs = generate_inputs(self._exercise, self._case, request.seed, self._clock.device)
        if self._exercise.problem.in_place is None:
            return dict.fromkeys(request.order, self._prepare_call(inputs))
        return {implementation: self._prepare_call(inputs) for implementation in request.order}

    def _bind(self, implementation: int, call: GuardedCall) -> Callable[[], Any]:
        """Return a function that makes the call.

        The submission runs on its own thread. An exception of another implementation is not the submission's fault.
        """
        entry = self._implementations[implementation]
        if implementation == _SUBMISSION:
            return lambda: call(entry)

        def run() -> Any:
            try:
                return entry(*call.inputs)
            except Exception as error:
                raise BaselineFailed(f"the {_NAMES[implementation]} failed: {error}") from error

        return run


def can_run(reference: Callable[..., Any], exercise: Exercise, case: Mapping[str, Any], device: torch.device) -> bool:
    """Return whether the reference kernel runs on this GPU.

    It may require more shared memory than smaller GPUs have. The submission's gate then applies without it.
    """
    try:
        # A kernel that needs too much shared memory fails only when it is launched.
        reference(*generate_inputs(exercise, case, 0, device))
    except Exception:
        return False
    return True
