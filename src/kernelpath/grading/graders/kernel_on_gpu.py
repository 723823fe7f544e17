"""Grade kernels on a GPU, which the submission's process launches by itself."""

from __future__ import annotations

from kernelpath.course.inputs import PLAIN, InputMode
from kernelpath.course.problem import Case
from kernelpath.grading import compare, ground_truth
from kernelpath.grading.graders.results import decode_output, kernel_process_finding
from kernelpath.grading.job import Job
from kernelpath.grading.provenance import Observation
from kernelpath.grading.workers import SLOW_IMPORTS, ProcessSetup
from kernelpath.verdict import Finding
from kernelpath.work import messages
from kernelpath.work.runner import Runner


class KernelOnGpu:
    """Calls an entry whose kernels run on a GPU. See `Grader` for its methods."""

    needs_shadow_run = False

    def __init__(self, job: Job, preload: str = "") -> None:
        self.exercise = job.exercise
        self.setup = ProcessSetup(job.device, preload=preload or SLOW_IMPORTS.get(job.item.lane, ""))

    def call(
        self, runner: Runner, case: Case, seed: int, *, variety: InputMode = PLAIN, order: int = 0, label: str = ""
    ) -> Observation:
        """Call the entry. The submission's process generates the inputs, so that gigabytes need not be sent."""
        inputs = ground_truth.generate_inputs(self.exercise, case, seed, self.setup.device, variety)
        request = messages.Run(case=dict(case), seed=seed, variety=variety)
        result = runner.request(request, messages.CallResult)
        return Observation(
            inputs=inputs,
            outputs=[decode_output(output, self.setup.device) for output in result.outputs],
            finding=self.check_process(result, inputs),
            operators=result.operators,
        )

    def check_process(self, result: messages.CallResult, inputs: tuple[object, ...]) -> Finding | None:
        return kernel_process_finding(self.exercise, result, inputs)

    def check(self, observation: Observation) -> Finding | None:
        return compare.check_observation(self.exercise, observation)

    def add_writer(self, runner: Runner, observation: Observation, finding: Finding) -> Finding:
        """Return the finding as it is: nothing records which thread of a GPU wrote an element."""
        return finding
