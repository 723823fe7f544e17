"""Grade exercises that read recordings of profilers.

The grader varies a recording, and the submission reports on it. The reference's facts are computed in the grader's
process from the same bytes. A submission has files in a folder of its own, and neither the seed nor the recording that
they were made from.
"""

from __future__ import annotations

from kernelpath.course.inputs import PLAIN, InputMode
from kernelpath.course.problem import Case
from kernelpath.course.traces import Malformed, TraceFile
from kernelpath.grading import facts, ground_truth
from kernelpath.grading.graders.results import process_finding
from kernelpath.grading.job import Job
from kernelpath.grading.provenance import Observation
from kernelpath.grading.workers import ProcessSetup
from kernelpath.verdict import Finding, Verdict
from kernelpath.work import messages
from kernelpath.work.runner import Runner, Usage


class Trace:
    """Calls an entry on files that are sent to its process. See `Grader` for its methods.

    `preload` is the module that the workers need besides.
    """

    needs_shadow_run = False

    def __init__(self, job: Job, preload: str = "") -> None:
        self.exercise = job.exercise
        self.setup = ProcessSetup(job.device, preload=preload, entry=job.exercise.entry)

    def call(
        self, runner: Runner, case: Case, seed: int, *, variety: InputMode = PLAIN, order: int = 0, label: str = ""
    ) -> Observation:
        """Call the entry on a variation of the recording, and compare its facts. See Grader.call."""
        try:
            inputs = ground_truth.generate_inputs(self.exercise, case, seed, "cpu", variety)
            expected = self.exercise.reference(*inputs)
        except Malformed as error:
            # The file is the course's or the learner's recording, so the submission is not to blame.
            raise Usage(str(error)) from error
        files = [value for value in inputs if isinstance(value, TraceFile)]
        arguments = [value for value in inputs if not isinstance(value, TraceFile)]
        report = runner.request(messages.ReadFiles(files=files, arguments=arguments), messages.ReportedFacts)
        if report.tampered:
            finding: Finding | None = Finding(Verdict.TAMPERED, report.tampered)
        else:
            (tolerance,) = self.exercise.tolerance.values()
            finding = facts.check_facts(self.exercise.entry, report.facts, expected, tolerance)
        return Observation(inputs=inputs, outputs=(), finding=finding)

    def check(self, observation: Observation) -> Finding | None:
        return observation.finding

    def check_process(self, result: messages.CallResult, inputs: tuple[object, ...]) -> Finding | None:
        return process_finding(result, inputs)

    def add_writer(self, runner: Runner, observation: Observation, finding: Finding) -> Finding:
        """Return the finding as it is: there is no kernel whose thread wrote the wrong element."""
        return finding
