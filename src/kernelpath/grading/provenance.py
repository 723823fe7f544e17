"""Check who did the work of a call: the submission's kernels, or a library, the host, or another language."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from msgspec.structs import replace

from kernelpath import words
from kernelpath.course.labs.fabric import Log
from kernelpath.course.problem import Problem
from kernelpath.course.registry import Lane
from kernelpath.course.spec import Exercise
from kernelpath.device.messages import GridOverlap, LaunchEntry, TensorRef
from kernelpath.line_counters import LineInstructions, LineTraffic
from kernelpath.verdict import Finding, Verdict
from kernelpath.work import messages
from kernelpath.work.tensors import raw_bytes
from warpcheck.machine import NEGATED
from warpcheck.runtime.symbols import demangle, source_name

# The share of GPU time that kernels which are not the submission's own may take.
LIBRARY_SHARE = 0.1

_MAX_ARGUMENT_CHARACTERS = 100

# Parts of the names of kernels that torch.zeros and torch.full run, and that copy a table to the GPU: no computation.
_FILLS = ("Memset", "FillFunctor", "Memcpy HtoD")

MUTATED = Finding(Verdict.MUTATED_INPUT, "an input was written to during the call")


# The share of a case's operations that tensor cores must do.
#
# Threads may do the rest at the edges, and a small case is all edges.
LEAST_BY_TENSOR_CORES = 0.25


@dataclass(frozen=True)
class Observation:
    """The result of a call, and what was observed of it.

    Attributes:
        inputs: The arguments, as the grader generated them.
        outputs: The tensors that the call returned.
        finding: What is wrong, except for the outputs' values.
        traffic: The PTX machine's memory counters by line.
        instructions: The PTX machine's instruction counters by line.
        transcript: The PTX machine's records of the launches.
        tensor_core_operations: The operations that tensor cores can have done on the PTX machine, at most.
        workspace: The most bytes besides inputs and outputs that a launch found on the PTX machine.
        overlaps: The overlap that programmatic dependent launch allows each launch on the PTX machine.
        most_read: For each input storage, the most bytes of it that one block of each launch read on the PTX machine,
            for the largest case of an exercise that measures reads.
        flops: The operations of the case.
        operators: The operators that the submission called on the host.
        places: Where the outputs are in the PTX machine's memory.
        log: The steps of the ranks, for a group of ranks.
        ignored_messages: A finding about ranks with right results that do not depend on their messages.
    """

    inputs: Sequence[object]
    outputs: Sequence[torch.Tensor]
    finding: Finding | None = None
    traffic: tuple[LineTraffic, ...] = ()
    instructions: tuple[LineInstructions, ...] = ()
    transcript: Sequence[LaunchEntry] = ()
    tensor_core_operations: int = 0
    workspace: int = 0
    overlaps: Sequence[GridOverlap] = ()
    most_read: Sequence[Sequence[int]] = ()
    flops: int = 0
    operators: Sequence[messages.OperatorCall] = ()
    places: Sequence[TensorRef] = field(default=(), repr=False)
    log: Log | None = None
    ignored_messages: Finding | None = None


def check_gpu_operators(
    on_gpu: Sequence[messages.OperatorCall], on_machine: Sequence[messages.OperatorCall], entry: str
) -> Finding | None:
    """Return a finding about operators that the entry called on a GPU but not on the PTX machine.

    On the PTX machine the transcript shows whether an operator did a kernel's work.

    Args:
        on_gpu: The operators that were called on the GPU.
        on_machine: The operators that were called on the PTX machine for the same case; none where the machine could
            not run the submission.
        entry: The name of the entry.
    """
    names = {operator.name for operator in on_machine}
    return operators_finding([operator for operator in on_gpu if operator.name not in names], entry)


def check_launches(
    operators: Sequence[messages.OperatorCall], launches: Sequence[object], entry: str
) -> Finding | None:
    """Return a finding where no kernel was launched."""
    return None if launches else operators_finding(operators, entry) or no_launch_finding(launches, entry)


# PyTorch's operator behind item(), int(), float(), and bool() of a tensor.
_HOST_READ = "_local_scalar_dense"

# How a submission's code spells a call of an operator whose name it does not contain.
_SPELLINGS = {
    "clone": "clone() or contiguous()",
    "_to_copy": "to()",
    "copy_": "copy_()",
    _HOST_READ: "item() or int()",
}


def operators_finding(operators: Sequence[messages.OperatorCall], entry: str) -> Finding | None:
    """Return a finding about the operators that the entry called; None without any."""
    if not operators:
        return None
    names = ", ".join(dict.fromkeys(_SPELLINGS.get(call.name, f"torch.{call.name}") for call in operators))
    cause = f"{entry} calls {names}; your kernel has to do the work"
    return Finding(Verdict.NOT_YOUR_KERNEL, cause, line=operators[0].line)


def check_language(exercise: Exercise, lane: Lane, transcript: Sequence[LaunchEntry]) -> Finding | None:
    """Return a finding about a launched kernel that was not compiled from the language of the exercise.

    The submission's host code may lie about its kernels, but the device has the text of each kernel.
    """
    language = words.LANES[lane]
    if exercise.kind != "kernel" or lane not in ("cuda", "triton", "cute"):
        return None
    for launch in transcript:
        # The grader's own kernel for torch.mm is in CUDA C++, whatever the lane.
        if exercise.products and launch.kernel == messages.PRODUCT:
            continue
        if not launch.compiler:
            cause = f"{launch.kernel} is PTX that no compiler made: solve this exercise in {language}"
            return Finding(Verdict.NOT_YOUR_KERNEL, cause)
        if lane != "cuda" and launch.compiler != language:
            cause = f"{launch.kernel} is a kernel in {launch.compiler}: solve this exercise in {language}"
            return Finding(Verdict.NOT_YOUR_KERNEL, cause)
    return None


def check_block_size(exercise: Exercise, transcript: Sequence[LaunchEntry]) -> Finding | None:
    """Return a finding about a launch with another block size than the statement requires."""
    for launch in transcript:
        if exercise.block not in (None, tuple(launch.block)):
            cause = f"{exercise.entry} launches blocks of {tuple(launch.block)} threads, {exercise.block} are required"
            return Finding(Verdict.WRONG_VALUES, cause)
    return None


def check_launch_count(exercise: Exercise, transcript: Sequence[LaunchEntry]) -> Finding | None:
    """Return a finding where there are more launches than the statement allows."""
    if exercise.launches is None or len(transcript) <= exercise.launches:
        return None
    cause = (
        f"{exercise.entry} launches {len(transcript)} kernels for this call; at most {exercise.launches} are allowed"
    )
    return Finding(Verdict.WRONG_VALUES, cause)


def check_refused_launches(observation: Observation) -> Finding | None:
    """Return a finding where the machine refused a launch, and the submission caught the exception.

    Such a launch is in the transcript alone. Nothing is known of it that is known of a launch that ran.
    """
    if len(observation.transcript) == len(observation.overlaps):
        return None
    refused = len(observation.transcript) - len(observation.overlaps)
    return Finding(
        Verdict.CRASHED, f"a GPU refuses {refused:,} of the {len(observation.transcript):,} launches of a call"
    )


# PyTorch's operators that multiply matrices: where one is called, a library does the work of the tensor cores.
_MATMUL_OPERATORS = frozenset(("mm", "addmm", "bmm", "baddbmm", "mv", "addmv", "_int_mm", "_scaled_mm", "convolution"))


def check_tensor_cores(exercise: Exercise, observation: Observation) -> Finding | None:
    """Return a finding where a call on the PTX machine did not use the tensor cores that the statement requires."""
    if not exercise.tensor_cores or not observation.transcript:
        return None
    operations = observation.tensor_core_operations
    if operations and operations >= LEAST_BY_TENSOR_CORES * observation.flops:
        return None
    matmul_calls = [operator for operator in observation.operators if operator.name in _MATMUL_OPERATORS]
    if library := operators_finding(matmul_calls, exercise.entry):
        return library
    cause = f"{exercise.entry} executes no mma instruction: its products must be computed by tensor cores"
    if operations:
        share = f"at most {operations / observation.flops:.0%} of its multiply-adds"
        cause = f"the mma instructions of {exercise.entry} make {share}; the others are to be made there, too"
    return Finding(Verdict.NO_TENSOR_CORES, cause)


def check_tensor_core_output(
    exercise: Exercise, negated: Observation, expected: Sequence[torch.Tensor]
) -> Finding | None:
    """Return a finding where tensor cores compute too little of the output.

    In the call `negated` the machine negated the results of every mma instruction. With the plain output p + t, where t
    comes from tensor cores, that call returns p - t. So half of the difference is t.

    Args:
        negated: The call with negated results.
        expected: The right outputs.
    """
    # Counting mma instructions does not suffice: a kernel may execute them and ignore their results.
    pairs = [(out.double(), truth.double()) for out, truth in zip(negated.outputs, expected, strict=True)]
    by_tensor_cores = sum(float((truth - out).abs().sum()) for out, truth in pairs) / 2
    # Sums of magnitudes, because differences of both signs would cancel.
    share = by_tensor_cores / sum(float(truth.abs().sum()) for _, truth in pairs)
    if share >= LEAST_BY_TENSOR_CORES:
        return None
    symptom = f"{share:.0%} of what {exercise.entry} returns was made by its mma instructions"
    cause = f"{symptom}: their results have to reach the output"
    return Finding(Verdict.NO_TENSOR_CORES, cause)


def no_launch_finding(launches: Sequence[object], entry: str) -> Finding | None:
    """Return a finding where there is no launch."""
    return None if launches else Finding(Verdict.NOT_YOUR_KERNEL, f"{entry} launched no kernel")


def same_launches(first: Observation, second: Observation) -> bool:
    """Return whether two calls with equal shapes and different values launched the same.

    Then the kernels did the work: what is the same for other values does not depend on them. The calls may be of one
    process or of two.
    """
    return len(first.transcript) == len(second.transcript) and all(
        map(_is_same_launch, first.transcript, second.transcript)
    )


def compare_launches(
    first: Observation, second: Observation, entry: str, problem: Problem | None = None
) -> Finding | None:
    """Return a finding where two calls with equal shapes and different values did not launch the same.

    The calls are of two processes with the same earlier calls.
    """
    if same_launches(first, second):
        return None
    difference = _first_difference(first.transcript, second.transcript)
    reads = [operator for operator in second.operators if operator.name == _HOST_READ]
    lengths = _different_lengths(problem, first, second) if problem is not None else []
    # If there are other operators, these are the likelier cause.
    if lengths and (reads or not second.operators):
        cause = f"{difference}: does the host read {' or '.join(lengths)}? {_LENGTHS}"
        return Finding(Verdict.NOT_YOUR_KERNEL, cause, line=reads[0].line if reads else 0)
    if finding := operators_finding(second.operators, entry):
        return finding
    return Finding(Verdict.NOT_YOUR_KERNEL, f"{difference}; {_HOST}")


_LENGTHS = (
    "A host that reads a tensor on the device waits for all earlier work of the GPU, and a CUDA graph cannot hold such "
    "a call: the launch may depend on shapes alone"
)


def _different_lengths(problem: Problem, first: Observation, second: Observation) -> list[str]:
    """Return the names of the integer tensors that differ between two calls of a problem with lengths on the device."""
    if problem.redistributed is None:
        return []
    names = inspect.signature(problem.reference).parameters
    return [
        name
        for name, argument, other_argument in zip(names, first.inputs, second.inputs, strict=True)
        if isinstance(argument, torch.Tensor)
        and not argument.is_floating_point()
        and not same_values((argument,), (other_argument,))
    ]


def _is_same_launch(first: LaunchEntry, second: LaunchEntry) -> bool:
    # Host writes are compared by _unlike_buffers. NEGATED marks the code of a call with negated tensor cores.
    first_plain, second_plain = (
        replace(launch, host=(), tables=(), fills=(), code=launch.code.removeprefix(NEGATED))
        for launch in (first, second)
    )
    return first_plain == second_plain and not _unlike_buffers(first, second)


def _unlike_buffers(first: LaunchEntry, second: LaunchEntry) -> list[str]:
    """Return the names of the buffers to which the host wrote other bytes in the second launch.

    A byte that the host overwrites with the same byte is not seen as written. Where that happens by chance, as with
    zeros over a kernel's results, the set of written bytes depends on values. Then the whole storages are equal, whose
    digest is also recorded: one common digest is enough. Where a kernel had left nothing but zeros, the host has not
    written at all, and the content is among the fills.
    """
    first_names = [name for name, _ in first.host]
    second_names = [name for name, _ in second.host]
    if first_names == second_names:
        pairs = [
            (name, first_digests, second_digests)
            for (name, first_digests), (_, second_digests) in zip(first.host, second.host, strict=True)
        ]
    elif _are_unique(first_names) and _are_unique(second_names):
        first_contents, second_contents = ({**dict(launch.fills), **dict(launch.host)} for launch in (first, second))
        pairs = [
            (name, first_contents.get(name, ""), second_contents.get(name, ""))
            for name in dict.fromkeys([*first_names, *second_names])
        ]
    else:
        return first_names or second_names
    return [
        name
        for name, first_digests, second_digests in pairs
        if not {*first_digests.split()} & {*second_digests.split()}
    ]


def _are_unique(names: Sequence[str]) -> bool:
    """Return whether no name occurs twice, as it does where a kernel reaches several storages through one argument."""
    return len({*names}) == len(names)


_HOST = (
    "the host computes it from the inputs' values, or takes it from a clock or from the system's random numbers; "
    "your kernel has to do the work, whatever the values"
)


def same_values(first: Sequence[object], second: Sequence[object]) -> bool:
    """Return whether the arguments of two calls are equal, bit for bit, so that neither shows dependence on values."""
    return all(
        torch.equal(raw_bytes(argument), raw_bytes(other_argument))
        if isinstance(argument, torch.Tensor) and isinstance(other_argument, torch.Tensor)
        else argument == other_argument
        for argument, other_argument in zip(first, second, strict=True)
    )


def check_host_tables(observation: Observation, entry: str) -> Finding | None:
    """Return a finding about a table that the host wrote and that a kernel was given.

    This is for exercises in which nothing is random, so that no second call would show whether the table has results.
    One value over and over, as torch.zeros writes it, is not a table.
    """
    for launch in observation.transcript:
        for name in launch.tables:
            kernel = source_name(launch.kernel)
            cause = f"{kernel} is given bytes in {name} that the host wrote; your kernel has to do the work"
            return operators_finding(observation.operators, entry) or Finding(Verdict.NOT_YOUR_KERNEL, cause)
    return None


def _first_difference(first: Sequence[LaunchEntry], second: Sequence[LaunchEntry]) -> str:
    if len(first) != len(second):
        return f"{len(first)} kernels were launched for some values and {len(second)} for others"
    launch, other_launch = next(
        (launch, other_launch)
        for launch, other_launch in zip(first, second, strict=True)
        if not _is_same_launch(launch, other_launch)
    )
    if launch.kernel != other_launch.kernel or launch.code != other_launch.code:
        names = f"{demangle(launch.kernel)}, {demangle(other_launch.kernel)}"
        return f"the kernel that is launched depends on the values ({names})"
    name = source_name(launch.kernel)
    if buffers := _unlike_buffers(launch, other_launch):
        return f"{name} reads bytes in {buffers[0]} that the host wrote, different ones for different values"
    for position, (argument, other_argument) in enumerate(zip(launch.arguments, other_launch.arguments, strict=False)):
        if argument != other_argument:
            return f"argument {position} of {name} {_describe_difference(argument, other_argument)}"
    if launch.buffers != other_launch.buffers:
        return f"the tensors that {name} is given differ for different values, or in their sizes"
    return f"the grid or the block of {name} depends on the values"


def _describe_difference(argument: str, other_argument: str) -> str:
    """Describe two values of an argument. Those of a struct are its bytes in hexadecimal, which may be thousands."""
    if max(len(argument), len(other_argument)) <= _MAX_ARGUMENT_CHARACTERS:
        return f"is {argument} for some values and {other_argument} for others"
    digits = zip(argument, other_argument, strict=False)
    first = next((index for index, (digit, other_digit) in enumerate(digits) if digit != other_digit), 0)
    return f"has other bytes for other values, from byte {first // 2} on"


def check_library_share(kernels: Mapping[str, float], launches: Sequence[str]) -> Finding | None:
    """Return a finding where kernels that the submission did not launch took too large a share of the GPU's time.

    `kernels` has the seconds of each kernel. A profiler's name of a kernel contains the name of its function.
    """
    library_kernels = {
        name: seconds for name, seconds in kernels.items() if not any(own in name for own in (*launches, *_FILLS))
    }
    if sum(library_kernels.values()) <= LIBRARY_SHARE * sum(kernels.values()):
        return None
    slowest = max(library_kernels, key=lambda name: library_kernels[name])
    share = sum(library_kernels.values()) / sum(kernels.values())
    return Finding(Verdict.NOT_YOUR_KERNEL, f"{share:.0%} of the GPU's time went to other kernels, such as {slowest}")
