"""Run the cases of a submission, on the device and in a second process for comparison."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from kernelpath import words
from kernelpath.course.inputs import EXTREME, PLAIN, UNORDERED, InputMode
from kernelpath.course.problem import Case
from kernelpath.grading import compare, provenance
from kernelpath.grading.context import EntryCall, GradingContext
from kernelpath.grading.cpu_shadow import FAULTS
from kernelpath.grading.graded_case import GradedCase, decides
from kernelpath.grading.graders import Grader
from kernelpath.grading.graders.kernel_on_machine import KernelOnMachine
from kernelpath.grading.ground_truth import derive_seed, placement_runs
from kernelpath.grading.job import KERNEL_VERDICTS
from kernelpath.grading.provenance import Observation
from kernelpath.verdict import CaseResult, Finding, Verdict
from kernelpath.work.runner import Runner, SubmissionFailed

# Verdicts on a GPU whose cause and line the PTX machine can determine.
_SYMPTOMS = (*KERNEL_VERDICTS, Verdict.CRASHED, Verdict.TIMED_OUT)

_STATE_VERDICTS = (Verdict.NOT_WRITTEN, Verdict.WRONG_VALUES, Verdict.UNINITIALIZED, Verdict.RACE)
_STATE_ADVICE = (
    "something is kept between calls, such as a counter that is not set back to 0 or a tensor in a cache: this call is "
    "right as the first one of a process, but not after others"
)

# Verdicts after which no other case is run.
#
# The other cases would end in the same way, or could not be trusted after TAMPERED, or could each take the whole time
# limit after TIMED_OUT.
_ENDS_GRADING = (
    Verdict.NOT_STARTED,
    Verdict.COMPILE_ERROR,
    Verdict.TIMED_OUT,
    Verdict.TAMPERED,
    Verdict.UNAVAILABLE,
)


# Replaces a case's index, so that other values are generated.
_REPEAT_INDEX = -1

# Orders of warps and blocks in which the same inputs must give the same bits; see warpcheck.runtime.schedule_order.
#
# The strided order is first, since only there a block meets others that are halfway. What a submission has kept from
# its last call is then from other inputs, and a block that takes it for a result of this call gives a wrong sum. A call
# with the same inputs before it would have left the right one.
_ORDERS = (1_000_003, 0, 1)


class CaseRunner:
    """Runs the cases of a grading."""

    def __init__(self, context: GradingContext) -> None:
        self.context = context
        self.job = context.job
        self.exercise = context.job.exercise
        self.seed = context.seed
        self.grader = context.grader
        self.runner = context.runner
        self.shadow_runner = context.shadow_runner

    def run(self) -> list[GradedCase]:
        """Run all cases, as far as another case may change the verdict or its cause."""
        graded: list[GradedCase] = []
        for index, case in enumerate(self.context.cases):
            compiles = "compiling, then " if index == 0 and self.exercise.is_kernel else ""
            self.context.progress(f"{compiles}case {index + 1} of {len(self.context.cases)}")
            all_passed = all(earlier.result.verdict.passed for earlier in graded)
            # Only the first case that fails is explained: each explanation runs the call again in a new process.
            graded.append(self.run_case(self.runner, EntryCall(case, index, label=f"case {index}"), explain=all_passed))
            if graded[-1].result.verdict in _ENDS_GRADING or self.runner.cannot_recover:
                break
            if self.context.brief and all_passed and decides(graded[-1]):
                break
            if self.shadow_runner is not None and index == 0 and not self.context.brief:
                # It starts while the other cases run. A brief grading seldom gets as far as to need it.
                self.shadow_runner.prepare()
        return graded

    def run_again(self, graded: list[GradedCase]) -> None:
        """Run the cases again in other ways, and replace the first graded case that is then wrong.

        First every case is run with edge inputs. On the PTX machine this is the shadow run: the second process must
        launch the same for these values as the first process for others. Then the small cases are run with tensors at
        any address. The smallest case is run as it was, with other values at the same addresses, and so is the smallest
        of the limits: an exercise may have a kernel of its own for what is beyond all other sizes, and what such a
        kernel keeps from call to call shows nowhere else. Last, where results must be deterministic, each case is run
        in several orders of warps and blocks.
        """
        cases = self.context.cases
        runner = self.shadow_runner or self.runner
        shadow = self.run_with_edge_inputs(graded)
        if shadow is None:
            return
        if self.shadow_runner is not None and (host_table := self._find_host_table(graded, shadow)) is not None:
            index, finding = host_table
            graded[index] = self._grade(cases[index], EXTREME, self.job.locate(finding), None, 0.0)
            return
        inputs = [case.observation.inputs if case.observation else () for case in graded]
        runs = placement_runs(self.exercise, inputs, self.seed)
        limits = self.exercise.limits
        for repeatable in ([case for case in cases if case not in limits], limits):
            # An empty case, of 0 bytes, is left out: nothing that a kernel keeps can show in it.
            sizes = {cases.index(case): self.exercise.compulsory_bytes(**case) for case in repeatable}
            runs += [(index, PLAIN) for index in sorted(filter(sizes.get, sizes), key=sizes.__getitem__)[:1]]
        for position, (index, variety) in enumerate(runs):
            self.context.progress(f"case {index + 1}, at a size seen before")
            # In strided order, the blocks of a cooperative launch run ahead where a flag of an earlier call lets them.
            observation = graded[index].observation
            cooperative = observation is not None and any(launch.cooperative for launch in observation.transcript)
            order = _ORDERS[0] if cooperative else 0
            # Another index than in all earlier calls, and with it other values.
            call = EntryCall(cases[index], 2 * len(cases) + position, variety, order, label=f"again {position}")
            repeated = self.run_case(runner, call, other_values=shadow[index])
            if not repeated.result.verdict.passed:
                graded[index] = repeated
                return
        if self.exercise.deterministic:
            self._run_in_orders(runner, graded, shadow)

    def run_with_edge_inputs(self, graded: list[GradedCase]) -> list[Observation | None] | None:
        """Run every case with edge inputs. Return the observations.

        Return None where a case is wrong, and replace the graded case.
        """
        cases = self.context.cases
        runner = self.shadow_runner or self.runner
        # The two processes get other lengths, too. Otherwise a host that reads lengths back from the device, which a
        # statement may forbid, would launch the same in both.
        edge_inputs = replace(EXTREME, redistributed=self.shadow_runner is not None)
        observations: list[Observation | None] = []
        for index, case in enumerate(cases):
            self.context.progress(f"case {index + 1} again, with extreme values")
            first_run = graded[index].observation if self.shadow_runner is not None else None
            # The index differs from the first run's, and with it the values. The label does not: a transcript names a
            # storage that was kept by the label of the call that made it, and the transcripts of both processes are
            # compared.
            call = EntryCall(case, len(cases) + index, edge_inputs, label=f"case {index}")
            repeated = self.run_case(runner, call, first_run=first_run)
            if not repeated.result.verdict.passed:
                graded[index] = repeated
                return None
            observations.append(repeated.observation)
        return observations

    def _find_host_table(
        self, graded: Sequence[GradedCase], shadow: Sequence[Observation | None]
    ) -> tuple[int, Finding] | None:
        """Return the index of the first case with a table that the host wrote, and the finding about it.

        This matters only where both runs have the same inputs, because nothing in them is random: then a comparison of
        the two runs cannot show that the host computed the table.
        """
        first_run: dict[int, Observation] = {}
        for index, (case, shadow_observation) in enumerate(zip(graded, shadow, strict=True)):
            if case.observation is None or shadow_observation is None:
                continue
            if not provenance.same_values(case.observation.inputs, shadow_observation.inputs):
                return None
            first_run[index] = case.observation
        for index, observation in first_run.items():
            if finding := provenance.check_host_tables(observation, self.exercise.entry):
                return index, finding
        return None

    def _run_in_orders(
        self,
        runner: Runner,
        graded: list[GradedCase],
        shadow: Sequence[Observation | None],
    ) -> None:
        """Run every case in several orders, with values whose sum depends on its order, until the bits differ.

        `shadow` has earlier calls of the same process with other values.
        """
        for index, case in enumerate(self.context.cases):
            self.context.progress(f"case {index + 1} once more, for the same bits")
            first: Observation | None = None
            # Plain values do not suffice: a sum in float64 rounds to the same float32 in nearly any order, so atomics
            # on doubles would pass. No precision adds unordered values alike in all orders.
            for order in _ORDERS:
                # The same index in all orders, and with it the same inputs.
                call = EntryCall(case, index, UNORDERED, order, label=f"order {order} of case {index}")
                repeated = self.run_case(runner, call, first=first, other_values=shadow[index])
                if repeated.result.verdict.passed and first is not None and repeated.observation is not None:
                    repeated = self._repeat_without_memory(call, first, repeated)
                if not repeated.result.verdict.passed:
                    graded[index] = repeated
                    return
                first = repeated.observation

    def _repeat_without_memory(self, call: EntryCall, first: Observation, repeated: GradedCase) -> GradedCase:
        """Repeat a call in a new process if it did not launch the same as an earlier call with the same inputs.

        A process may have kept what the earlier call computed. Then the bits are the same in any order.
        """
        if repeated.observation is not None and provenance.same_launches(first, repeated.observation):
            return repeated
        runner = self.context.workers.runner(self.grader.setup)
        try:
            start = time.monotonic()
            observation, finding = self._observe(self.grader, runner, replace(call, label=""), first=first)
        finally:
            runner.close()
        if finding is None:
            return repeated
        return self._grade(call.case, call.variety, finding, observation, time.monotonic() - start)

    def run_case(
        self,
        runner: Runner,
        call: EntryCall,
        *,
        explain: bool = True,
        first_run: Observation | None = None,
        first: Observation | None = None,
        other_values: Observation | None = None,
    ) -> GradedCase:
        """Make one call of the entry and compare its outputs.

        Args:
            runner: The submission.
            call: The call.
            explain: Whether other processes may determine the cause of a failure.
            first_run: The launches of another process for other values. This call must launch the same, with warps and
                blocks in reverse order.
            first: An earlier call with the same inputs, whose bits this call must repeat.
            other_values: An earlier call of this process with equal shapes; see `_check_other_values`.
        """
        start = time.monotonic()
        if first_run is not None:
            # The shadow run has another order of warps and blocks, which must not change what is launched.
            call = replace(call, order=1)
        observation, finding = self._observe(self.grader, runner, call, first_run, first)
        # A GPU reports neither the line nor the thread of a wrong access. The PTX machine repeats the call and may know
        # both.
        if explain and self.context.cpu_shadow is not None and finding is not None and finding.verdict in _SYMPTOMS:
            finding = self._find_cause(call, finding)
        # The stub's own kernel can be launched but writes nothing: then NOT_STARTED says more than a wrong value.
        if finding is not None and finding.verdict in KERNEL_VERDICTS:
            finding = self.job.check_empty_kernel() or finding
        # The first call of a process finds nothing that an earlier call has left.
        if finding is not None and explain and first is None and runner in self.context.used_runners:
            finding = self._check_state(call, finding)
        self.context.used_runners.add(runner)
        if finding is None and first_run is None and other_values is not None and observation is not None:
            finding = self._check_other_values(runner, observation, other_values)
        return self._grade(call.case, call.variety, finding, observation, time.monotonic() - start)

    def run_once_more(self, case: Case, observation: Observation) -> GradedCase:
        """Call the entry with the sizes of an earlier call of the first process, given by its observation.

        A first call may try several kernels, as autotuning does, and a later one no longer does.
        """
        other_runner = self._other_runner(self.runner)
        if other_runner is not None:
            # Both processes must have made the same calls before this one, see GradingContext.calls.
            try:
                self._repeat_calls(other_runner, self.runner)
            except SubmissionFailed as error:
                return self._grade(case, PLAIN, self.job.locate(error.finding), None, 0.0)
        call = EntryCall(case, _REPEAT_INDEX, label=f"once more {words.case(case)}")
        return self.run_case(self.runner, call, explain=False, other_values=observation)

    def run_negated(
        self, runner: Runner, case: Case, other_values: Observation | None
    ) -> tuple[Observation, Finding | None]:
        """Call the entry on the PTX machine with the results of tensor cores negated.

        `other_values` is as in `run_case`.

        Raises:
            SubmissionFailed: The call did not return.
        """
        other_runner = self._other_runner(runner)
        if other_runner is not None:
            # Both processes must have made the same calls before this one, see GradingContext.calls.
            self._repeat_calls(other_runner, runner)
        call = EntryCall(case, "negated", label="negated", negated=True)
        self.context.calls[runner].append(call)
        grader = KernelOnMachine(self.job)
        observation = grader.call(runner, case, derive_seed(self.seed, "negated"), negated=True, label="negated")
        if observation.finding is not None or self.shadow_runner is None or other_values is None:
            return observation, observation.finding
        return observation, self._check_other_values(runner, observation, other_values)

    def _check_other_values(
        self, runner: Runner, observation: Observation, other_values: Observation
    ) -> Finding | None:
        """Return a finding where the launches of the last call of a process depend on values.

        They do not where an earlier call of the same process launched the same for other values, which costs nothing to
        compare. Otherwise, as for tensors at other addresses, the other process makes the same call with other values.
        """
        other_runner = self._other_runner(runner)
        if other_runner is None or provenance.same_launches(other_values, observation):
            return None
        last_call = self.context.calls[runner][-1]
        # No reference knows these outputs, see `_observe` and `run_negated`.
        with_outputs = not (last_call.variety.unordered or last_call.negated)
        try:
            other_observation = self._repeat_calls(runner, other_runner, with_outputs=with_outputs)
        except SubmissionFailed as error:
            return self.job.locate(error.finding)
        assert other_observation is not None, "the other process has made the last call already"
        finding = other_observation.finding or provenance.compare_launches(
            observation, other_observation, self.exercise.entry, self.exercise.problem
        )
        # If the two processes share a file, the host of one can pass the bytes that it computed to the other, and both
        # launch the same. But the bytes are right for the values of one process only.
        if finding is None and with_outputs:
            finding = self.grader.check(other_observation)
        return self.job.locate(finding)

    def _other_runner(self, runner: Runner) -> Runner | None:
        """Return the other one of the two processes with different values, if there are two."""
        if self.shadow_runner is None:
            return None
        return self.runner if runner is self.shadow_runner else self.shadow_runner

    def _repeat_calls(self, runner: Runner, other_runner: Runner, *, with_outputs: bool = False) -> Observation | None:
        """Make the calls of `runner` that the other process lacks there, with other values. Return the last one.

        Args:
            runner: The process that has made the calls.
            other_runner: The other process.
            with_outputs: Whether the last observation has the outputs.

        Raises:
            SubmissionFailed: A call did not return.
        """
        grader = KernelOnMachine(self.job)
        observation: Observation | None = None
        calls = self.context.calls[other_runner]
        for call in self.context.calls[runner][len(calls) :]:
            calls.append(call)
            observation = grader.call(
                other_runner,
                call.case,
                derive_seed(self.seed, call.index, "other values"),
                # Lengths on the device are values as well, see `run_again`.
                variety=replace(call.variety, redistributed=not call.variety.redistributed),
                order=call.order,
                negated=call.negated,
                label=call.label,
                with_outputs=with_outputs and len(calls) == len(self.context.calls[runner]),
            )
        return observation

    def _grade(
        self, case: Case, variety: InputMode, finding: Finding | None, observation: Observation | None, seconds: float
    ) -> GradedCase:
        if finding is None:
            return GradedCase(CaseResult(case, Verdict.PASSED, seconds=seconds), observation)
        file = self.job.display_path(finding.file)
        cause = words.shown(finding.cause)
        result = CaseResult({**case, **variety.label}, finding.verdict, cause, file, finding.line, seconds)
        return GradedCase(result, observation)

    def _find_cause(self, call: EntryCall, finding: Finding) -> Finding:
        """Return the PTX machine's finding about a case that failed on the GPU, where it is more informative."""
        self.context.progress("looking for the cause on the PTX machine")
        grader = KernelOnMachine(self.job)
        runner = self.context.workers.runner(grader.setup)
        try:
            _, cause = self._observe(grader, runner, replace(call, order=0, label=""))
        finally:
            runner.close()
        # Any other verdict may come from the machine's own limits, such as an instruction that it lacks.
        if cause is None or cause.verdict not in (finding.verdict, Verdict.DEADLOCK, *FAULTS):
            return finding
        return cause

    def _check_state(self, call: EntryCall, finding: Finding) -> Finding:
        """Name the cause of a finding where the same call is right as the first call of a process.

        Then the submission keeps something from call to call.
        """
        if finding.verdict not in _STATE_VERDICTS or not self.grader.setup.on_machine:
            return finding
        self.context.progress("repeating the failed call in a new process")
        runner = self.context.workers.runner(self.grader.setup)
        try:
            _, first_call_finding = self._observe(self.grader, runner, replace(call, label=""))
        finally:
            runner.close()
        if first_call_finding is not None:
            return finding
        # What is kept comes first: the symptom has advice of its own, for example on a race, which is of no use here.
        return replace(finding, cause=f"{_STATE_ADVICE}; here {finding.cause}")

    def _observe(
        self,
        grader: Grader,
        runner: Runner,
        call: EntryCall,
        first_run: Observation | None = None,
        first: Observation | None = None,
    ) -> tuple[Observation | None, Finding | None]:
        """Call the entry, and return the observation of the call and a finding about it."""
        # The call is listed before it is made: a call that fails may leave something behind, too.
        self.context.calls[runner].append(call)
        try:
            observation = grader.call(
                runner,
                call.case,
                derive_seed(self.seed, call.index),
                variety=call.variety,
                order=call.order,
                label=call.label,
            )
            # Unordered values are compared with another call's bits and never with the reference, see
            # Problem.unordered.
            finding = observation.finding if call.variety.unordered else grader.check(observation)
            if finding is None:
                finding = provenance.check_language(self.exercise, self.job.item.lane, observation.transcript)
            if finding is None and first_run is not None:
                finding = provenance.compare_launches(
                    first_run, observation, self.exercise.entry, self.exercise.problem
                )
            if finding is None and first is not None:
                finding = compare.check_repeatability(first, observation)
            if finding is not None and finding.element is not None:
                finding = grader.add_writer(runner, observation, finding)
        except SubmissionFailed as error:
            return None, self.job.locate(error.finding)
        return observation, self.job.locate(finding)
