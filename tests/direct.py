"""Call planted submissions directly: in one process beside the tests, on the PTX machine, one case each.

A grading starts processes, runs every case and then runs them again in another process. A submission whose verdict
states a fact of one call (a race, a wrong value, too many sectors) needs none of that: the entry is called here as a
notebook calls it, with the checks of `frontends.check`, and the grader's own functions judge what it returns. A section
of tests/rejects says by its option `case` in which case the fault shows; this module finds the first of them:

    python -m tests.direct [--write] [w04b_matmul_tiled ...]

An honest submission whose case is `few` is called in few cases (few_cases.py), with every kind of inputs that the
grader makes for them. `--honest` proposes those for which that will do.

A fault that only offsets past 2^31 show has the case `large offsets`. Tensors of that size have no memory, so the
grader's own processes run these cases, and no others.

The calls share one process of their own, because they replace functions of torch there, and because what the compilers
import and set up costs more than a kernel does.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import linecache
import math
import os
import re
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
import torch

from kernelpath import words
from kernelpath.course import registry
from kernelpath.course.inputs import EXTREME, PLAIN, InputMode
from kernelpath.course.problem import Case
from kernelpath.course.registry import ExerciseRef
from kernelpath.device.case import sum_accesses, sum_instructions
from kernelpath.grading import compare, devices, grade, ground_truth, large_offsets
from kernelpath.grading.graded_case import select_finding
from kernelpath.grading.provenance import MUTATED, Observation
from kernelpath.grading.steps import check_case_counters
from kernelpath.verdict import Finding, Verdict
from kernelpath.work import entries, no_gpu
from kernelpath.work.call import check_outputs
from kernelpath.work.exception_findings import classify_exception
from kernelpath.work.tensors import fingerprints, storage_bytes
from tests import fresh_process, planted, selection
from tests.few_cases import in_few_cases, with_addresses
from tests.planted import Planted
from warpcheck import frontends, simulated_gpu
from warpcheck.frontends import Launched

SEED = 1
# The option `case` of a fault that shows where offsets exceed 31 or 32 bits; see grading/large_offsets.py.
LARGE_OFFSETS = "large offsets"

# The option `case` of an honest submission, which is right in few cases as in all.
FEW = "few"

# What the calls of one submission may take before their process is ended; seconds of a clock depend on the load.
PROCESSOR_SECONDS = 60.0

# The verdicts that can state a fact of one call.
VERDICTS = (
    Verdict.RACE,
    Verdict.OUT_OF_BOUNDS,
    Verdict.UNINITIALIZED,
    Verdict.BARRIER,
    Verdict.DEADLOCK,
    Verdict.NOT_WRITTEN,
    Verdict.WRONG_VALUES,
    Verdict.WRONG_SHAPE,
    Verdict.WRONG_DTYPE,
    Verdict.WRONG_TYPE,
    Verdict.MUTATED_INPUT,
    Verdict.CRASHED,
    Verdict.TOO_MUCH_TRAFFIC,
    Verdict.DIVERGENT,
    Verdict.TOO_MANY_INSTRUCTIONS,
)


# The rows of test_rejects.ROWS whose submissions attack nothing but the values: what is wrong shows in one call.
ROWS = ("An accident", "C1", "C3", "C4", "C5", "C6", "C7", "C8", "C10")


@dataclass(frozen=True)
class Call:
    """A call that the grader makes, too. index: it makes the seed of the inputs."""

    index: int
    case: Case
    variety: InputMode = PLAIN

    @property
    def label(self) -> str:
        """The arguments of the case and what is special about the inputs, as the option `case` has them."""
        return words.case({**self.case, **self.variety.label})


class Session:
    """One exercise in the process that calls: the calls that there are, and a submission's end in them.

    few: whether to call in few of the exercise's cases.
    """

    def __init__(self, item: ExerciseRef, *, few: bool = False) -> None:
        exercise = registry.load(item)
        target = devices.choose_target(exercise, "cpu", None)
        adapted, _ = devices.adapt_exercise(exercise, "cpu", target)
        self.exercise = in_few_cases(adapted) if few else adapted
        self._item = item
        self._target = target.name
        self.calls = list(self._calls())

    def prepare(self) -> None:
        """Let the process be what the exercise declares, whatever it was before."""
        count = self.exercise.multiprocessors
        simulated_gpu.show({"multi_processor_count": count} if count else {}, self._target)
        entries.import_lane(self._item.lane, "cpu")

    def _calls(self) -> Iterator[Call]:
        """Yield the calls of a grading in its order, each once."""
        exercise = self.exercise
        cases = [*exercise.cases, *ground_truth.generate_cases(exercise, SEED), *exercise.limits]
        for index, case in enumerate(cases):
            yield Call(index, case)
        for index, case in enumerate(cases):
            yield Call(len(cases) + index, case, EXTREME)
        inputs_of_cases = [self._inputs(Call(index, case)) for index, case in enumerate(exercise.cases)]
        for position, (index, variety) in enumerate(ground_truth.placement_runs(exercise, inputs_of_cases)):
            if variety is not PLAIN:
                yield Call(2 * len(cases) + position, cases[index], variety)

    def finding(self, file: Path, call: Call) -> Finding | None:
        """Return what is wrong with a submission in one call."""
        launches: list[Launched] = []
        printed = io.StringIO()
        try:
            with frontends.observe(launches.append), contextlib.redirect_stdout(printed), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # an order that matters is a fault, or shows in the values
                linecache.clearcache()  # the file may have been another program a moment ago
                module = registry.import_file(file, "submission")
                entry = entries.adapt_entry(
                    entries.find_entry(module, self.exercise.entry), self.exercise, self._item.lane
                )
                finding = self._judged(entry, call, launches)
                if finding is not None and finding.verdict in _LIMITS:
                    finding = self._judged(entry, call, launches)  # what a first call tries out is no cost
                return finding
        except BaseException as error:
            return classify_exception(error, file)

    def _judged(self, entry: Any, call: Call, launches: list[Launched]) -> Finding | None:
        exercise, inputs = self.exercise, self._inputs(call)
        entries.check_signature(entry, inputs)
        launches.clear()
        result = entry(*inputs)
        input_addresses = {value.untyped_storage().data_ptr() for value in inputs if isinstance(value, torch.Tensor)}
        overwritten = exercise.overwritten(inputs)
        outputs = list(overwritten) or check_outputs(
            result,
            exercise.entry,
            torch.device("cpu"),
            lambda output: output.untyped_storage().data_ptr() in input_addresses,
        )
        launch_counts = [launched.counted for launched in launches if launched.counted is not None]
        observation = Observation(
            inputs=self._inputs(call),
            outputs=outputs,
            finding=self._mutated(inputs, overwritten, call),
            traffic=tuple(sum_accesses(launch_counts)),
            instructions=tuple(sum_instructions(launch_counts)),
        )
        return compare.check_observation(exercise, observation) or self._beyond(call, observation)

    def _inputs(self, call: Call) -> tuple[Any, ...]:
        return ground_truth.generate_inputs(
            self.exercise, call.case, ground_truth.derive_seed(SEED, call.index), "cpu", call.variety
        )

    def _mutated(self, inputs: tuple[Any, ...], overwritten: Any, call: Call) -> Finding | None:
        own = {id(value) for value in overwritten}
        pairs = zip(inputs, self._inputs(call), strict=True)
        read_only_pairs = [pair for pair in pairs if isinstance(pair[0], torch.Tensor) and id(pair[0]) not in own]
        now, expected = (fingerprints([storage_bytes(pair[place]) for pair in read_only_pairs]) for place in (0, 1))
        return None if now == expected else MUTATED

    def _beyond(self, call: Call, observation: Observation) -> Finding | None:
        """Return the first limit on counters that the call breaks, which holds for plain inputs."""
        return check_case_counters(self.exercise, call.case, observation) if call.variety is PLAIN else None


_LIMITS = (Verdict.TOO_MUCH_TRAFFIC, Verdict.DIVERGENT, Verdict.TOO_MANY_INSTRUCTIONS)


@dataclass(frozen=True)
class Outcome:
    """How the calls of a submission ended: in the first that is wrong, or in none. label: that call's."""

    verdict: Verdict = Verdict.PASSED
    cause: str = ""
    label: str = ""


def _serve(connection: Connection) -> None:
    """Answer requests until the other end closes.

    A request has an exercise, a submission's file, the label of a call, None for all calls, or FEW for those of few
    cases, and the verdict that is looked for, or None for any.
    """
    torch.set_num_threads(1)
    sys.dont_write_bytecode = True  # a submission replaces another one at its path, within the second of its date
    no_gpu.patch_torch_cuda()
    frontends.check(reverse=True)
    sessions: dict[tuple[str, bool], Session] = {}
    with contextlib.suppress(EOFError):
        while True:
            exercise, file, label, target_verdict = connection.recv()
            few = label == FEW
            if (exercise, few) not in sessions:
                sessions[exercise, few] = Session(registry.find(exercise), few=few)
            session = sessions[exercise, few]
            session.prepare()
            outcome = _find_outcome(session, Path(file), None if few else label, target_verdict)
            with contextlib.suppress(BrokenPipeError):
                connection.send(outcome)


def _find_outcome(session: Session, file: Path, label: str | None, target_verdict: Verdict | None) -> Outcome:
    """Return the first call that ends with the target verdict, else the first call that fails."""
    calls = [call for call in session.calls if label in (None, call.label)]
    if not calls:
        return Outcome(Verdict.UNAVAILABLE, f"there is no case {label}; python -m tests.direct --write finds another")
    first = Outcome()
    for call in calls:
        finding = session.finding(file, call)
        if finding is None:
            continue
        outcome = Outcome(finding.verdict, finding.cause, call.label)
        if target_verdict in (None, finding.verdict):
            return outcome
        # The grader looks at limits after all cases, and of several faults of a kernel it tells the most telling.
        if first.verdict is Verdict.PASSED:
            first = outcome
    return first


def call_large_offsets(exercise: str, file: Path) -> Outcome:
    """Return how a submission ends in the exercise's cases past 2^31, in a worker and a PTX machine of their own."""
    job = grade.Job.create(registry.find(exercise), file, device="cpu", keep=False)
    with grade.Session(job) as session:
        session.workers.copy_submission()
        runner = session.workers.runner(session.plan.grader.setup)
        try:
            cases, _ = large_offsets.grade_large_offsets(job, runner, SEED)
        finally:
            runner.close()
    finding = select_finding(cases)
    return Outcome() if finding is None else Outcome(finding.verdict, finding.cause, LARGE_OFFSETS)


class Caller:
    """The process that calls. It is started when it is first needed, and again after it was ended."""

    def __init__(self) -> None:
        self._process: Any = None

    def call(
        self,
        exercise: str,
        file: Path,
        label: str | None,
        seconds: float = math.inf,
        *,
        target_verdict: Verdict | None = None,
    ) -> Outcome:
        """Return how the calls of a submission end.

        Args:
            label: The call; None for those of all cases, FEW for those of few cases.
            seconds: The time by the clock after which the process of the calls is ended.
            target_verdict: The verdict to look for, past other failures.
        """
        if label == LARGE_OFFSETS:
            return call_large_offsets(exercise, file)
        if self._process is None:
            context = fresh_process.context()
            self._connection, theirs = context.Pipe()
            self._process = context.Process(target=_serve, args=(theirs,), daemon=True)
            self._process.start()
            theirs.close()
        self._connection.send((exercise, str(file), label, target_verdict))
        begun = self._processor_seconds()
        while not self._connection.poll(min(seconds, 1.0)):
            seconds -= 1.0
            if seconds <= 0 or self._processor_seconds() > begun + PROCESSOR_SECONDS:
                self.close()
                return Outcome(Verdict.TIMED_OUT, "no answer in time")
        try:
            outcome: Outcome = self._connection.recv()
            return outcome
        except EOFError:
            self._process.join()
            status = self._process.exitcode
            self.close()
            return Outcome(Verdict.CRASHED, f"the process ended with status {status}")

    def _processor_seconds(self) -> float:
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._connection.close()
            self._process.kill()
            self._process.join()
            self._process = None


def find_cases(submissions: Sequence[Planted], write: bool) -> None:
    """Print for each submission without a case how its calls end, and the case where its section may name one.

    For a wrong submission this is the first call that fails as the verdict says, else `large offsets`; for an honest
    one `few`, where no call of few cases fails. write: put the cases into the sections, too.
    """
    caller = Caller()
    with tempfile.TemporaryDirectory() as folder:
        for submission in submissions:
            if "case" in planted.reread(submission).options:  # another of these programs may have found it
                continue
            begun = time.monotonic()
            expected_verdict = Verdict.PASSED if submission.is_honest else submission.verdict
            file = submission.submission(Path(folder))
            label, verdict = (FEW, None) if submission.is_honest else (None, expected_verdict)
            outcome = caller.call(submission.exercise, file, label, target_verdict=verdict)
            if outcome.verdict is not expected_verdict and not submission.is_honest:
                with_large_offsets = caller.call(submission.exercise, file, LARGE_OFFSETS)
                outcome = with_large_offsets if with_large_offsets.verdict is expected_verdict else outcome
            case = "" if outcome.verdict is not expected_verdict else outcome.label or FEW
            missed = (
                f"no case written: it ends as {outcome.verdict.value}, not as {expected_verdict.value}: {outcome.cause}"
            )
            print(f"{submission.name}: {case or missed} ({time.monotonic() - begun:.1f} s)", flush=True)
            if write and case:
                planted.set_option(submission, "case", case)
    caller.close()


def is_direct(submission: Planted) -> bool:
    """Return whether a submission may be called directly: it states a fact of one call, and attacks nothing.

    An honest submission may not where its text names what the host does: a grading watches the host, and a call does
    not. The exercises of week 1 have honest submissions for this alone.
    """
    if registry.load(registry.find(submission.exercise)).kind != "kernel":
        return False
    if submission.is_honest:
        return not submission.exercise.startswith("w01") and _HOST.search(submission.why) is None
    return row(submission) in ROWS and submission.verdict in VERDICTS


# Words for what the host does beside a launch, or for what outlives a call.
_HOST = re.compile(
    r"torch|host|\btables?\b|workspace|counter|queue|autotun|buffer|autograd|operator|sent |kept|copied|cache|\block\b"
    r"|address|numpy|descriptor|\bstreams?\b|class|set-up|module|launch",
    re.IGNORECASE,
)


def row(reject: Planted) -> str:
    """Return the row of test_rejects.ROWS that a wrong submission stands for, or "An accident"."""
    return re.split("[:,]| that", reject.why)[0]


@cache
def graded(root: Path) -> frozenset[Planted]:
    """Return the submissions that go through the whole grader on the PTX machine, wrong and honest ones.

    Of the wrong ones with a case these are the first of each lane and verdict, of each lane and row, and of each lane
    whose offsets overflow.
    """
    chosen = [honest for honest in planted.accepts(root) if "case" not in honest.options]
    first: set[tuple[str, str]] = set()
    for reject in planted.rejects(root, "cpu"):
        lane = lane_of(reject.exercise)
        case = reject.options.get("case")
        kinds = {(lane, reject.verdict.value), (lane, row(reject))}
        if case == LARGE_OFFSETS:
            kinds.add((lane, LARGE_OFFSETS))
        if case is None or kinds - first:
            chosen.append(reject)
            first |= kinds
    return frozenset(chosen)


@cache
def sentinels(root: Path) -> frozenset[Planted]:
    """Return the submissions that every run tests: cheap ones that are of all kinds. `make weekly` tests the others.

    Of the wrong ones that are graded, a kind is a lane with a verdict, with a row of test_rejects.ROWS, or with offsets
    that overflow. Of the wrong ones that are called directly, which test the PTX machine alone, it is a lane or a
    verdict. Honest ones are of a kind if they share a lane and are tested in the same way.
    """
    seconds = _cost_function()
    submissions = (*planted.rejects(root, "cpu"), *planted.accepts(root))
    kinds = {submission: _kinds(submission, root) for submission in submissions}
    uncovered = set().union(*kinds.values())
    chosen: list[Planted] = []
    while uncovered:  # the usual approximation of a cover of least cost: the most new kinds per second
        best = max(kinds, key=lambda submission: len(kinds[submission] & uncovered) / seconds(submission))
        chosen.append(best)
        uncovered -= kinds[best]
    # What was chosen early may be of no kind that the others lack.
    for submission in sorted(chosen, key=seconds, reverse=True):
        remaining = [candidate for candidate in chosen if candidate is not submission]
        if kinds[submission] <= set().union(*(kinds[candidate] for candidate in remaining)):
            chosen = remaining
    return frozenset(chosen)


def _cost_function() -> Callable[[Planted], float]:
    """Return a function that estimates the worker-seconds of a submission.

    The estimate is the measured value, else the mean of the submissions to the same exercise, else the mean of all
    exercises.
    """
    measured = json.loads(selection.SECONDS.read_text())
    unmeasured = statistics.mean(seconds for name, seconds in measured.items() if "/" not in name)

    def estimate_seconds(submission: Planted) -> float:
        measured_seconds = measured.get(submission.name, measured.get(submission.exercise, unmeasured))
        return max(0.1, float(measured_seconds))

    return estimate_seconds


def _kinds(submission: Planted, root: Path) -> set[tuple[object, ...]]:
    lane = lane_of(submission.exercise)
    is_graded = submission in graded(root)
    if submission.is_honest:
        return {(lane, "honest", is_graded, is_graded and submission in with_addresses(root))}
    if not is_graded:
        return {(lane, "called"), (submission.verdict, "called")}
    kinds: set[tuple[object, ...]] = {(lane, submission.verdict), (lane, row(submission))}
    if submission.options.get("case") == LARGE_OFFSETS:
        kinds.add((lane, LARGE_OFFSETS))
    return kinds


def parametrize(name: str, submissions: Iterable[Planted], root: Path) -> pytest.MarkDecorator:
    """Return the decorator that calls a test with each submission; all but the sentinels are marked `weekly`."""
    parameters = [
        pytest.param(
            submission, id=submission.name, marks=[] if submission in sentinels(root) else [pytest.mark.weekly]
        )
        for submission in submissions
    ]
    return pytest.mark.parametrize(name, parameters)


@cache
def lane_of(exercise: str) -> str:
    return registry.find(exercise).lane


def main() -> None:
    parser = argparse.ArgumentParser(description="Find the case in which each planted wrong submission fails first.")
    parser.add_argument(
        "names",
        nargs="*",
        default=["w"],
        help="the beginnings of names, such as w04; a whole one, such as w04b_matmul_tiled/plain, is called anyway",
    )
    parser.add_argument("--honest", action="store_true", help="call honest submissions in few cases instead")
    parser.add_argument("--write", action="store_true", help="put the cases into the sections")
    arguments = parser.parse_args()
    root, names = Path(__file__).parents[1], tuple(arguments.names)
    corpus = planted.accepts(root) if arguments.honest else planted.rejects(root, "cpu")
    chosen = [
        submission
        for submission in corpus
        if submission.name in names or (submission.name.startswith(names) and is_direct(submission))
    ]
    find_cases(chosen, arguments.write)


if __name__ == "__main__":
    main()
