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
from kernelpath.grading.kinds.python import Python
from kernelpath.grading.provenance import Observation
from kernelpath.verdict import Finding, Verdict
from kernelpath.work import messages
from kernelpath.work.runner import Runner, Usage


class Trace(Python):
    """Calls an entry on files that are sent to its process."""

    def call(
        self, runner: Runner, case: Case, seed: int, *, variety: InputMode = PLAIN, order: int = 0, label: str = ""
    ) -> Observation:
        """Call the entry on a variation of the recording, and compare its facts. See Kind.call."""
        try:
            inputs = ground_truth.generate_inputs(self.exercise, case, seed, "cpu", variety)
            expected = self.exercise.reference(*inputs)
        except Malformed as error:
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
