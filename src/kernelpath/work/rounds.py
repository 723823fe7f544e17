"""Rounds of a race in the submission's process: every contestant once, on new inputs that all of them are given."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import torch

from kernelpath.course.inputs import generate_inputs
from kernelpath.course.spec import Exercise
from kernelpath.work import messages
from kernelpath.work.blame import NotTheSubmission
from kernelpath.work.call import Call
from kernelpath.work.tensors import fingerprints, samples


class Clock(Protocol):
    """What times calls on a device: a `stopwatch.Stopwatch`."""

    device: torch.device

    def round(self, calls: Sequence[Callable[[], object]]) -> tuple[list[float], list[object]]: ...

    def wait(self) -> None: ...

    def telemetry(self) -> dict[str, float]: ...


class Rounds:
    """The contestants of one case: submission, baseline and, unless it is withheld, the reference kernel.

    prepared: a call on copies of these inputs.
    """

    def __init__(
        self,
        exercise: Exercise,
        case: Mapping[str, Any],
        contestants: Sequence[Callable[..., Any]],
        clock: Clock,
        prepared: Callable[[Sequence[Any]], Call],
    ) -> None:
        self._exercise, self._case, self._contestants = exercise, case, contestants
        self._clock, self._prepared = clock, prepared

    def answer(self, asked: messages.Round, tampered: Callable[[], str]) -> messages.Timed:
        """Seconds of each contestant, and a sample of the submission's outputs, which is taken after the clock."""
        calls = self._calls(asked)
        turn, call = {contestant: position for position, contestant in enumerate(asked.order)}, calls[0]
        call.ahead_of_the_clock()
        seconds, results = self._clock.round([self._timed(one, calls[one]) for one in asked.order])
        outputs = call.outputs(results[turn[0]])
        early = fingerprints(outputs)
        returned = call.returned(outputs, asked.secret, tampered(), lambda told: samples(told, asked.sample))
        self._clock.wait()
        return messages.Timed(
            secret=asked.secret,
            returned=returned,
            seconds=[seconds[turn[contestant]] for contestant in range(len(asked.order))],
            late=early != fingerprints(outputs),
            telemetry=self._clock.telemetry(),
        )

    def _calls(self, asked: messages.Round) -> dict[int, Call]:
        """A call for each contestant; one for all of them, unless they overwrite what they are given."""
        drawn = generate_inputs(self._exercise, self._case, asked.seed, self._clock.device)
        if self._exercise.problem.in_place is None:
            return dict.fromkeys(asked.order, self._prepared(drawn))
        return {contestant: self._prepared(drawn) for contestant in asked.order}

    def _timed(self, contestant: int, call: Call) -> Callable[[], Any]:
        """Contestant 0 is the submission, which runs on its own thread; what the others raise is not its fault."""
        entry, name = self._contestants[contestant], ("submission", "baseline", "reference kernel")[contestant]
        if contestant == 0:
            return lambda: call(entry)

        def ours() -> Any:
            try:
                return entry(*call.inputs)
            except Exception as error:
                raise NotTheSubmission(f"the {name} failed: {error}") from error

        return ours


def runs(reference: Callable[..., Any], exercise: Exercise, case: Mapping[str, Any], device: torch.device) -> bool:
    """Whether the reference kernel runs on this GPU: it may ask for more shared memory than smaller ones have.

    A submission is held to its gate without it.
    """
    try:
        reference(*generate_inputs(exercise, case, 0, device))
    except Exception:
        return False
    return True
