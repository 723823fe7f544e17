"""Define the context of a grading: its processes and options, and what its steps have found so far."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from kernelpath.course.inputs import PLAIN, InputMode
from kernelpath.course.problem import Case
from kernelpath.grading.cpu_shadow import CpuShadow
from kernelpath.grading.graded_case import GradedCase
from kernelpath.grading.graders import Grader
from kernelpath.grading.ground_truth import generate_cases
from kernelpath.grading.job import Job
from kernelpath.grading.provenance import Observation
from kernelpath.grading.workers import Workers
from kernelpath.verdict import Finding, Measurement
from kernelpath.work.runner import Runner

Progress = Callable[[str], None]


@dataclass(frozen=True)
class EntryCall:
    """A call of the entry, as far as two processes make the same one.

    Attributes:
        case: The case.
        index: What the seed of the inputs is derived from.
        variety: The mode of the inputs.
        order: The order of warps and blocks.
        label: See device.messages.Begin.
        negated: Whether the PTX machine negates the results of tensor cores.
    """

    case: Case
    index: object
    variety: InputMode = PLAIN
    order: int = 0
    label: str = ""
    negated: bool = False


class GradingContext:
    """One grading of a job. Its steps get this as their argument, and keep their results in it.

    On the PTX machine there is a shadow run: a second process gets the same calls with other values and another order
    of warps and blocks, and must launch the same. Where a GPU grades, the machine meanwhile runs the largest case, for
    its counters and for this comparison, then the other cases for their faults, and the first case that failed.

    Args:
        job: The job.
        grader: Calls the entry.
        workers: Starts the processes.
        seed: Generates sizes and inputs.
        progress: Called with a description of each step.
        brief: Whether to stop at the case that decides on the verdict.
        bench: Whether to take every round of a measurement.
        timed: Whether to measure the speed, on a GPU.

    Attributes:
        copy: The copy of the submission that is graded.
        runner: Runs the submission on its device.
        shadow_runner: Runs the submission again with other values, where both run on the PTX machine.
        cpu_shadow: The submission on the PTX machine, where a GPU grades.
        used_runners: The runners whose process has run a case.
        calls: The calls of each process in their order. A launch may depend on what earlier calls have left behind, so
            two calls are comparable only if the calls before them were the same.
        graded: The cases that were run.
        counters: The observation with the counters to report.
        measurement: The measured speed.
        missing_counters: Why the PTX machine cannot count beside the GPU.
        start: When the grading began, by the monotonic clock.
        speed_not_measured: Sentences about what keeps a pass from more stars.
        not_measured: Sentences about what else could not be measured.
    """

    def __init__(
        self,
        job: Job,
        grader: Grader,
        workers: Workers,
        seed: int,
        progress: Progress,
        *,
        brief: bool = False,
        bench: bool = False,
        timed: bool = True,
    ) -> None:
        self.job = job
        self.grader = grader
        self.workers = workers
        self.seed = seed
        self.progress = progress
        self.brief = brief
        self.bench = bench
        self.timed = timed
        # The runners load this copy, so it comes first. The file may be edited while it is graded.
        self.copy = workers.copy_submission()
        self.runner = workers.runner(grader.setup)
        self.shadow_runner = workers.runner(grader.setup) if grader.needs_shadow_run else None
        self.cpu_shadow: CpuShadow | None = None
        self.largest = job.exercise.largest
        self.used_runners: set[Runner] = set()
        self.calls: defaultdict[Runner, list[EntryCall]] = defaultdict(list)
        self.graded: list[GradedCase] = []
        self.counters: Observation | None = None
        self.measurement: Measurement | None = None
        self.missing_counters = ""
        self.speed_not_measured: tuple[str, ...] = ()
        self.not_measured: list[str] = []
        self.start = time.monotonic()

    @property
    def machine_runner(self) -> Runner | None:
        """The submission on the PTX machine, if it runs there."""
        if self.cpu_shadow is not None:
            return self.cpu_shadow.runner
        return self.runner if self.grader.setup.on_machine else None

    @cached_property
    def cases(self) -> list[Case]:
        """The declared cases, cases of sizes that nobody knows before, and the cases at limits."""
        exercise = self.job.exercise
        limits = [*exercise.limits, *(exercise.gpu_limits if self.job.device == "cuda" else ())]
        return [*exercise.cases, *generate_cases(exercise, self.seed), *limits]

    def observations(self) -> list[tuple[Case, Observation | None]]:
        """Return the graded cases with their observations, the largest case first."""
        observations = [(case.result.case, case.observation) for case in self.graded]
        # A sort is stable, so that the other cases stay in their order.
        return sorted(observations, key=lambda pair: pair[0] is not self.largest)

    def close(self) -> None:
        """End the processes and keep what they printed."""
        for runner in (self.runner, self.shadow_runner, self.cpu_shadow):
            if runner is not None:
                runner.close()


# A step of a grading. It returns what is wrong with the submission, and keeps its results in the context.
Step = Callable[[GradingContext], "Finding | None"]
