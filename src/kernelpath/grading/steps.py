"""The steps of a grading. Each returns a finding, or None, and keeps its results in the context.

`by_kind.py` says which steps an exercise has, in order. The first finding is the verdict.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from kernelpath import packages, words
from kernelpath.course.problem import Case, arguments
from kernelpath.course.spec import Exercise
from kernelpath.device import gpu
from kernelpath.device import messages as device
from kernelpath.grading import (
    devices,
    ground_truth,
    instructions,
    large_offsets,
    launch_recording,
    measure,
    multi_gpu,
    network,
    provenance,
    traffic,
)
from kernelpath.grading.cases import CaseRunner
from kernelpath.grading.context import GradingContext
from kernelpath.grading.cpu_shadow import CpuShadow
from kernelpath.grading.graded_case import select_finding
from kernelpath.grading.graders.machine import encode_inputs, fault_on_machine
from kernelpath.grading.graders.python_call import PythonCall
from kernelpath.grading.ground_truth import derive_seed, expected_outputs
from kernelpath.grading.provenance import Observation
from kernelpath.verdict import Finding, Verdict
from kernelpath.work import messages
from kernelpath.work.runner import Runner, SubmissionFailed

INSPECTION_SECONDS = 60.0
_INSPECTED = "; opcheck calls it here, also with the gradient of y.sum(), one element with strides of 0"

# Returns the first limit that a case exceeds.
CaseLimits = Callable[[Case, Observation], "Finding | None"]


def check_capability(context: GradingContext) -> Finding | None:
    """Return a finding where the submission cannot be copied, or this machine cannot run the exercise."""
    job = context.job
    # A pipe or a file that is too large is not copied, see work.workspace.
    if context.copy.unusable:
        return Finding(Verdict.COMPILE_ERROR, context.copy.unusable, str(job.submission))
    if missing_package := packages.lacking(job.item.lane):
        return Finding(Verdict.UNAVAILABLE, missing_package)
    reason = devices.missing_capability(job.exercise, job.device, job.target)
    next_step = "{check} --device cpu" if job.device == "cuda" else ""
    return Finding(Verdict.UNAVAILABLE, reason, then=next_step) if reason else None


def start_cpu_shadow(context: GradingContext) -> None:
    """Start to run the cases on the PTX machine, while a GPU runs them."""
    job = context.job
    if devices.missing_capability(job.exercise, "cpu", job.target):
        # The machine simulates few architectures. For example, it has no target for the GPUs of sm_89.
        stands_for = f"the PTX machine stands for {job.target.name} beside this GPU"
        context.missing_counters = f"counters: {stands_for}; kp check {job.item.name} --device cpu has them"
        return
    context.cpu_shadow = CpuShadow(job, context.workers, context.seed)
    context.cpu_shadow.start(context.largest, [case for case in job.exercise.cases if case is not context.largest])


def run_cases(context: GradingContext) -> Finding | None:
    """Run all cases, as far as another case may change the verdict or its cause."""
    context.graded = CaseRunner(context).run()
    return select_finding(context.graded)


def repeat_cases(context: GradingContext) -> Finding | None:
    """Run the cases again in other ways."""
    CaseRunner(context).run_again(context.graded)
    return select_finding(context.graded)


def run_edge_cases(context: GradingContext) -> Finding | None:
    """Run the cases with edge inputs, if the problem declares any."""
    if context.job.exercise.problem.extreme is not None:
        CaseRunner(context).run_with_edge_inputs(context.graded)
    return select_finding(context.graded)


def check_gpu_run(context: GradingContext) -> Finding | None:
    """Return a finding about the kernels and operators that the GPU ran."""
    context.progress("checking what the GPU runs")
    # A case that failed has no observation.
    operators = [operator for case in context.graded if case.observation for operator in case.observation.operators]
    exercise = context.job.exercise
    try:
        return check_gpu_kernels(exercise, context.runner, context.cpu_shadow, context.largest, operators, context.seed)
    except SubmissionFailed as error:
        return measure.memory_finding(exercise, error) or error.finding


def check_counters(context: GradingContext) -> Finding | None:
    """Return the first limit on counters that a case exceeds. The largest case is checked first."""

    def check_case(case: Case, observation: Observation) -> Finding | None:
        exercise = context.job.exercise
        finding = provenance.check_launch_count(exercise, observation.transcript)
        if finding is None and case is context.largest:
            finding = check_workspace(exercise, case, observation.workspace)
        return finding or check_case_counters(exercise, case, observation)

    if context.cpu_shadow is None:
        context.counters, finding = check_limits(context, context.observations(), check_case)
        return finding
    return wait_for_counters(context) or check_largest_case(context, check_case)


def wait_for_counters(context: GradingContext) -> Finding | None:
    """Wait for the counters of the largest case, which the PTX machine runs beside a GPU, if it can."""
    if context.cpu_shadow is None:
        return None
    context.progress("counting on the PTX machine")
    # The shadow has run beside the GPU since `start_cpu_shadow`, so most of the time there is nothing left to wait for.
    context.counters, finding = context.cpu_shadow.wait_for_counters()
    return context.job.locate(finding)


def check_largest_case(context: GradingContext, check_case: CaseLimits) -> Finding | None:
    """Return the limit on counters that the largest case exceeds, or None, also where nothing was counted."""
    context.counters, finding = check_limits(context, [(context.largest, context.counters)], check_case)
    return finding


def check_case_counters(exercise: Exercise, case: Case, observation: Observation) -> Finding | None:
    """Return the first limit on traffic and instructions that a case exceeds."""
    elements = sum(output.numel() for output in observation.outputs)
    returned = sum(output.nbytes for output in observation.outputs)
    # A vector has no rows, and must not pass for a matrix with few columns.
    columns = min((output.shape[-1] for output in observation.outputs if output.dim() > 1), default=sys.maxsize)
    return traffic.check_case(exercise, case, observation.traffic, returned, columns) or instructions.check_case(
        exercise, case, observation.traffic, observation.instructions, elements
    )


def check_limits(
    context: GradingContext, observations: Sequence[tuple[Case, Observation | None]], check_case: CaseLimits
) -> tuple[Observation | None, Finding | None]:
    """Return the observation with the counters to report, and the first limit that a case exceeds.

    Args:
        context: The grading.
        observations: The cases with their observations. The first has the counters to report.
        check_case: Checks one case.
    """
    for case, observation in observations:
        finding = check_case(case, observation) if observation is not None else None
        if finding is not None and observation is not None and context.job.device == "cpu":
            # What a first call tries out is not a cost of the kernel.
            repeated = CaseRunner(context).run_once_more(case, observation)
            if not repeated.result.verdict.passed:
                return repeated.observation, repeated.finding
            observation = repeated.observation or observation
            finding = check_case(case, observation) if observation is not None else None
        if finding is not None:
            return observation, context.job.locate(finding)
    return observations[0][1], None


def check_tensor_cores(context: GradingContext) -> Finding | None:
    """Return a finding where the results of tensor cores do not reach the output of the largest case.

    The case is run with these results negated.
    """
    exercise = context.job.exercise
    if not exercise.tensor_cores or context.counters is None:
        return None

    def check_outputs(negated: Observation) -> Finding | None:
        return provenance.check_tensor_core_output(exercise, negated, expected_outputs(exercise, negated.inputs))

    return check_negated(context, context.largest, check_outputs)


def check_negated(
    context: GradingContext, case: Case, check_outputs: Callable[[Observation], Finding | None]
) -> Finding | None:
    """Run a case with the results of tensor cores negated, and return a finding about the run or its outputs."""
    if context.machine_runner is None:
        return None
    context.progress("negating what tensor cores make")
    plain = next((graded.observation for graded in context.graded if graded.result.case is case), None)
    try:
        negated, finding = CaseRunner(context).run_negated(context.machine_runner, case, plain)
    except SubmissionFailed as error:
        return context.job.locate(error.finding)
    return context.job.locate(finding or check_outputs(negated))


def check_overlap(context: GradingContext) -> Finding | None:
    """Return a finding where the tensor cores of the largest case's heaviest kernel wait for copies."""
    if context.job.exercise.overlap is None or context.machine_runner is None:
        return None
    context.progress("recording copies and products")
    try:
        events = launch_recording.recorded_events(context, context.machine_runner)
    except SubmissionFailed as error:
        return context.job.locate(error.finding)
    return instructions.check_overlap_share(context.job.exercise, events)


def check_registers(context: GradingContext) -> Finding | None:
    """Return a finding about what ptxas says of the largest case's heaviest kernel."""
    if not context.job.exercise.instructions.registers_only or context.machine_runner is None:
        return None
    try:
        finding, not_measured = instructions.check_registers(
            launch_recording.heaviest_launch(context, context.machine_runner)
        )
    except SubmissionFailed as error:
        return error.finding
    if not_measured:
        context.not_measured.append(not_measured)
    return context.job.locate(finding)


def check_large_offsets(context: GradingContext) -> Finding | None:
    """Return a finding about offsets past 2**31 in the exercise's large cases."""
    context.progress("offsets past 2^31")
    graded, not_measured = large_offsets.grade_large_offsets(context.job, context.machine_runner, context.seed)
    context.graded += graded
    context.not_measured += not_measured
    return select_finding(graded)


def measure_speed(context: GradingContext) -> Finding | None:
    """Time the submission on a GPU, or note that nothing was timed."""
    exercise = context.job.exercise
    finding: Finding | None = None
    if context.timed and context.job.device == "cuda" and exercise.baseline is not None:
        finding = _measure(context)
        context.not_measured += _describe_neighbors(context)
    if finding is None:
        context.speed_not_measured = measure.not_measured(exercise, context.measurement, context.timed)
    return finding


def _measure(context: GradingContext) -> Finding | None:
    exercise = context.job.exercise
    on_machine = context.cpu_shadow.operators if context.cpu_shadow else ()

    def check_process(result: messages.CallResult, inputs: tuple[object, ...]) -> Finding | None:
        operators = provenance.check_gpu_operators(result.operators, on_machine, exercise.entry)
        return operators or context.grader.check_process(result, inputs)

    reference = context.job.item.files("expert")
    try:
        context.measurement, finding = measure.measure(
            exercise, context.runner, check_process, context.seed, context.progress, context.bench, reference=reference
        )
    except SubmissionFailed as error:
        return error.finding
    return finding


def _describe_neighbors(context: GradingContext) -> tuple[str, ...]:
    """Name other processes on the GPU, which disturb the time."""
    neighbors = list(gpu.neighbors(context.runner.pids, gpu.gpu_id()))
    return (f"an undisturbed time: {gpu.noise(neighbors)}",) if neighbors else ()


def check_network(context: GradingContext) -> Finding | None:
    """Return the first limit of the network that a case exceeds. The largest case is checked first."""
    exercise = context.job.exercise

    def check_case(case: Case, observation: Observation) -> Finding | None:
        assert observation.log is not None
        return network.check_case(exercise, case, observation.log)

    _, finding = check_limits(context, context.observations(), check_case)
    return finding


def measure_on_gpus(context: GradingContext) -> Finding | None:
    """Time the submission on ranks with a GPU each, where `kp bench` asks for it, or note that nothing was timed."""
    job = context.job
    finding: Finding | None = None
    if context.timed and job.device == "cuda" and job.exercise.baseline is not None:
        if context.bench:
            context.measurement, finding, not_measured = multi_gpu.measure(
                job, context.workers, context.seed, context.progress
            )
            context.not_measured += not_measured
        context.not_measured += _describe_neighbors(context)
    if finding is None and context.measurement is None:
        context.speed_not_measured = multi_gpu.not_measured(job.exercise)
    return finding


def run_program_on_gpu(context: GradingContext) -> Finding | None:
    """Return a finding where the program's results on a GPU are wrong. nvcc compiles it again, for this GPU.

    The PTX machine has already checked the calls of the runtime, and that kernels did the work.
    """
    job = context.job
    if job.device == "cpu":
        return None
    grader = PythonCall(job)
    runner = context.workers.runner(grader.setup)
    try:
        for index, case in enumerate(job.exercise.cases):
            context.progress(f"running {words.case(case)} on the GPU")
            finding = grader.check(grader.call(runner, case, context.seed + index))
            if finding is not None:
                return job.locate(finding)
    except SubmissionFailed as error:
        return job.locate(error.finding)
    finally:
        runner.close()
    return None


def inspect_operator(context: GradingContext) -> Finding | None:
    """Return what opcheck, autograd or torch.compile reports about the operator, on the first case.

    Kernels behind an operator of torch.library are graded like any others, since the inputs and outputs of the problem
    include those of the gradient. The registered operator is in the submission's own process, and is inspected there.
    """
    context.progress("inspecting the operator")
    case = context.job.exercise.cases[0]
    runner = context.runner
    try:
        runner.ready()
        if context.grader.setup.on_machine:
            inputs = ground_truth.generate_inputs(context.job.exercise, case, context.seed, "cpu")
            encoded = encode_inputs(inputs, runner.storage_numbers)
            runner.request_machine(device.Begin(runner.client, encoded, 0), device.Acknowledged)
        runner.request(messages.Inspect(case=dict(case), seed=context.seed), messages.Done, INSPECTION_SECONDS)
        finding = _inspection_fault(context)
    except SubmissionFailed as error:
        finding = _inspection_fault(context) or error.finding
    return context.job.locate(finding)


def _inspection_fault(context: GradingContext) -> Finding | None:
    """Return a kernel's fault during the inspection, and say with which new arguments the kernel was called."""
    if not context.grader.setup.on_machine:
        return None
    return fault_on_machine(context.runner, context.job.submission, _INSPECTED)


# The time limit for loading a profiler and for two calls.
PROFILE_SECONDS = 60.0


def check_gpu_kernels(
    exercise: Exercise,
    runner: Runner,
    cpu_shadow: CpuShadow | None,
    largest: Case,
    operators: Sequence[messages.OperatorCall],
    seed: int,
) -> Finding | None:
    """Return a finding about the kernels and the memory of two calls on the GPU.

    The calls are at the size that is timed, where there is one, and at the size that the PTX machine has run. At the
    former size the memory that the call holds is checked as well.

    Args:
        exercise: The exercise.
        runner: The submission on the GPU.
        cpu_shadow: The submission on the PTX machine.
        largest: The case that the PTX machine has run.
        operators: The operators that the submission called on the GPU.
        seed: Generates the inputs.

    Raises:
        SubmissionFailed: A call did not return.
    """
    on_machine = cpu_shadow.operators if cpu_shadow else ()
    if finding := provenance.check_gpu_operators(operators, on_machine, exercise.entry):
        return finding
    timed_case = exercise.bench or largest
    timed_profile = _profile(runner, timed_case, seed)
    if cpu_shadow is not None and (finding := cpu_shadow.check_gpu_launches(_profile(runner, largest, seed))):
        return finding
    own_kernels = (*timed_profile.launches, *timed_profile.library)
    library_share = provenance.check_library_share(timed_profile.kernels, own_kernels)
    return library_share or check_workspace(exercise, timed_case, timed_profile.workspace)


def _profile(runner: Runner, case: Case, seed: int) -> messages.ProfileResult:
    request = messages.Profile(case=dict(case), seed=derive_seed(seed, "profile"))
    return runner.request(request, messages.ProfileResult, PROFILE_SECONDS)


def check_workspace(exercise: Exercise, case: Case, workspace: int) -> Finding | None:
    """Return a finding where a call of this case held more than the exercise allows. `workspace` is its peak in
    bytes.
    """
    if exercise.workspace is None:
        return None
    compulsory = exercise.compulsory_bytes(**case)
    allowed = int(exercise.workspace * compulsory)
    if workspace <= allowed:
        return None
    symptom = f"at {arguments(case)}: {workspace:,} bytes are held beside inputs and outputs"
    return Finding(
        Verdict.TOO_MUCH_MEMORY, f"{symptom}, at most {allowed:,} are allowed ({compulsory:,} bytes are compulsory)"
    )
