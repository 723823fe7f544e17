"""Grade exercises without kernels, such as layouts and formulas, by their results alone.

The submission's process is sent the inputs, since the code that generates them is beside the code that knows the right
results.
"""

from __future__ import annotations

from kernelpath.course.inputs import PLAIN, InputMode
from kernelpath.course.problem import Case
from kernelpath.grading import compare, ground_truth
from kernelpath.grading.graders.results import call_request, decode_output, dense, process_finding
from kernelpath.grading.job import Job
from kernelpath.grading.provenance import Observation
from kernelpath.grading.workers import SLOW_IMPORTS, ProcessSetup
from kernelpath.verdict import Finding
from kernelpath.work import messages
from kernelpath.work.runner import Runner


class PythonCall:
    """Calls an entry in the submission's process. See `Grader` for its methods."""

    needs_shadow_run = False

    def __init__(self, job: Job) -> None:
        self.exercise = job.exercise
        self.setup = ProcessSetup(job.device, preload=SLOW_IMPORTS.get(job.item.lane, ""), entry=job.exercise.entry)

    def call(
        self, runner: Runner, case: Case, seed: int, *, variety: InputMode = PLAIN, order: int = 0, label: str = ""
    ) -> Observation:
        inputs = dense(ground_truth.generate_inputs(self.exercise, case, seed, self.setup.device, variety))
        result = runner.request(call_request(inputs), messages.CallResult)
        return Observation(
            inputs=inputs,
            outputs=[decode_output(output, self.setup.device) for output in result.outputs],
            finding=self.check_process(result, inputs),
            operators=result.operators,
        )

    def check_process(self, result: messages.CallResult, inputs: tuple[object, ...]) -> Finding | None:
        return process_finding(result, inputs, self.exercise.overwritten(inputs))

    def check(self, observation: Observation) -> Finding | None:
        return compare.check_observation(self.exercise, observation)

    def add_writer(self, runner: Runner, observation: Observation, finding: Finding) -> Finding:
        """Return the finding as it is: there is no kernel whose thread wrote the wrong element."""
        return finding
