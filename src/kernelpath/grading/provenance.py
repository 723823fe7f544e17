"""Who did the work: what is known about a call besides its values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from msgspec.structs import replace

from kernelpath import words
from kernelpath.course.labs.fabric import Log
from kernelpath.course.registry import Lane
from kernelpath.course.spec import Exercise
from kernelpath.device.messages import Note, Strided
from kernelpath.line_counters import LineInstructions, LineTraffic
from kernelpath.verdict import Finding, Verdict
from kernelpath.work import messages
from kernelpath.work.tensors import raw_bytes
from warpcheck.machine import NEGATED

LIBRARY_SHARE = 0.1
"""The share of GPU time that kernels which are not the submission's own may take."""

_FILLS = ("Memset", "FillFunctor", "Memcpy HtoD")
"""In the names of what torch.zeros and torch.full run on a GPU, and of what brings a table there: no computation."""

MUTATED = Finding(Verdict.MUTATED_INPUT, "an input is not bit for bit what it was before the call")


LEAST_BY_TENSOR_CORES = 0.25
"""The share of a case's operations: at its edges threads may make the rest, and a small case is all edges."""


@dataclass(frozen=True)
class Observation:
    """What a call gave, and what was seen of it. inputs: as the grader drew them.

    finding: about anything but the outputs' values. notes: the transcript of the PTX machine. tensor: operations that
    tensor cores can have made there, at most. workspace: the most bytes beside inputs and outputs that a launch found
    there. flops: of the case. places: where the outputs lie there. log: what ranks did.
    unmoved: a finding about ranks whose right results do not follow their messages.
    """

    inputs: Sequence[object]
    outputs: Sequence[torch.Tensor]
    finding: Finding | None = None
    traffic: tuple[LineTraffic, ...] = ()
    instructions: tuple[LineInstructions, ...] = ()
    notes: Sequence[Note] = ()
    tensor: int = 0
    workspace: int = 0
    flops: int = 0
    operators: Sequence[messages.OperatorCall] = ()
    places: Sequence[Strided] = field(default=(), repr=False)
    log: Log | None = None
    unmoved: Finding | None = None


def foreign(
    operators: Sequence[messages.OperatorCall], machine: Sequence[messages.OperatorCall], entry: str
) -> Finding | None:
    """The operators that the entry called on a GPU and not on the PTX machine, whose transcript says what they are for.

    machine: those called there for the same case; none where it could not run the submission.
    """
    names = {one.name for one in machine}
    return computed([one for one in operators if one.name not in names], entry)


def borrowed(operators: Sequence[messages.OperatorCall], launches: Sequence[object], entry: str) -> Finding | None:
    """Whether operators stand in place of kernels."""
    return None if launches else computed(operators, entry) or launched_nothing(launches, entry)


_WRITTEN = {"clone": "clone() or contiguous()", "_to_copy": "to()", "copy_": "copy_()"}
"""How a submission calls operators whose names it does not know."""


def computed(operators: Sequence[messages.OperatorCall], entry: str) -> Finding | None:
    """The operators that the entry called."""
    if not operators:
        return None
    names = ", ".join(dict.fromkeys(_WRITTEN.get(one.name, f"torch.{one.name}") for one in operators))
    cause = f"{entry} calls {names}; your kernel has to do the work"
    return Finding(Verdict.NOT_YOUR_KERNEL, cause, line=operators[0].line)


def other_language(exercise: Exercise, lane: Lane, notes: Sequence[Note]) -> Finding | None:
    """A launch of a kernel that was not compiled from the language of the exercise.

    What the host of a submission says of its kernels does not count: the device has the text of each.
    """
    language = words.LANES[lane]
    if exercise.kind != "kernel" or lane not in ("cuda", "triton", "cute"):
        return None
    for note in notes:
        if exercise.products and note.kernel == messages.PRODUCT:
            continue
        if not note.compiler:
            cause = f"{note.kernel} is PTX that no compiler made: this exercise is to be solved in {language}"
            return Finding(Verdict.NOT_YOUR_KERNEL, cause)
        if lane != "cuda" and note.compiler != language:
            cause = f"{note.kernel} is a kernel in {note.compiler}: this exercise is to be solved in {language}"
            return Finding(Verdict.NOT_YOUR_KERNEL, cause)
    return None


def other_block(exercise: Exercise, notes: Sequence[Note]) -> Finding | None:
    """A launch in blocks that the statement does not allow."""
    for note in notes:
        if exercise.block not in (None, tuple(note.block)):
            cause = f"{exercise.entry} launches blocks of {tuple(note.block)} threads, {exercise.block} are required"
            return Finding(Verdict.WRONG_VALUES, cause)
    return None


def too_many(exercise: Exercise, notes: Sequence[Note]) -> Finding | None:
    """More launches than the statement allows."""
    if exercise.launches is None or len(notes) <= exercise.launches:
        return None
    cause = f"{exercise.entry} launches {len(notes)} kernels for this call; at most {exercise.launches} are allowed"
    return Finding(Verdict.WRONG_VALUES, cause)


_MULTIPLYING = frozenset(("mm", "addmm", "bmm", "baddbmm", "mv", "addmv", "_int_mm", "_scaled_mm", "convolution"))
"""PyTorch's operators that multiply matrices: where one is called, a library does the work of the tensor cores."""


def other_cores(exercise: Exercise, observation: Observation) -> Finding | None:
    """Whether a call that the machine saw did without the tensor cores that the statement asks for."""
    if not exercise.tensor_cores or not observation.notes:
        return None
    if observation.tensor and observation.tensor >= LEAST_BY_TENSOR_CORES * observation.flops:
        return None
    multiplied = [operator for operator in observation.operators if operator.name in _MULTIPLYING]
    if library := computed(multiplied, exercise.entry):
        return library
    cause = f"{exercise.entry} executes no mma instruction: its products are to be made by tensor cores"
    if observation.tensor:
        share = f"at most {observation.tensor / observation.flops:.0%} of its multiply-adds"
        cause = f"the mma instructions of {exercise.entry} make {share}; the others are to be made there, too"
    return Finding(Verdict.NO_TENSOR_CORES, cause)


def idle_cores(exercise: Exercise, negated: Observation, expected: Sequence[torch.Tensor]) -> Finding | None:
    """Whether too little of the output is made by tensor cores. negated: a call in which their products were negated.

    What they make of it has the opposite sign there. expected: the outputs of other calls.
    """
    pairs = [(out.double(), right.double()) for out, right in zip(negated.outputs, expected, strict=True)]
    follows = sum(float((right - out).abs().sum()) for out, right in pairs) / 2
    share = follows / sum(float(right.abs().sum()) for _, right in pairs)
    if share >= LEAST_BY_TENSOR_CORES:
        return None
    made = f"{share:.0%} of what {exercise.entry} returns was made by its mma instructions"
    cause = f"{made}: their results have to reach the output"
    return Finding(Verdict.NO_TENSOR_CORES, cause)


def launched_nothing(launches: Sequence[object], entry: str) -> Finding | None:
    return None if launches else Finding(Verdict.NOT_YOUR_KERNEL, f"{entry} launched no kernel")


def same_launches(first: Observation, second: Observation) -> bool:
    """Whether two calls with equal shapes and different values launched the same: then the kernels did the work.

    They may be calls of one process: what is the same for other values does not depend on them.
    """
    return len(first.notes) == len(second.notes) and all(map(_alike, first.notes, second.notes))


def difference(first: Observation, second: Observation, entry: str) -> Finding | None:
    """What is wrong where two calls with equal shapes and different values did not launch the same.

    They came from two processes that had been called alike before.
    """
    if same_launches(first, second):
        return None
    if finding := computed(second.operators, entry):
        return finding
    return Finding(Verdict.NOT_YOUR_KERNEL, f"{_first_difference(first.notes, second.notes)}; {_HOST}")


def _alike(one: Note, other: Note) -> bool:
    first, second = (replace(note, host=(), tables=(), code=note.code.removeprefix(NEGATED)) for note in (one, other))
    return first == second and not _unlike_buffers(one, other)


def _unlike_buffers(one: Note, other: Note) -> list[str]:
    """The buffers into which the host wrote other bytes.

    What it overwrites with the same byte is not seen, and where that happens by chance, as with zeros over a kernel's
    results, depends on values. Then the whole storages are the same.
    """
    mine, theirs = ([name for name, _ in note.host] for note in (one, other))
    if mine != theirs:
        return sorted({*mine} ^ {*theirs}) or mine
    pairs = zip(one.host, other.host, strict=True)
    return [name for (name, first), (_, second) in pairs if not {*first.split()} & {*second.split()}]


_HOST = (
    "the host computes it from the inputs' values, or takes it from a clock or from the system's random numbers; "
    "your kernel has to do the work, whatever the values"
)


def same_values(first: Sequence[object], second: Sequence[object]) -> bool:
    """Whether the arguments of two calls are the same, bit for bit, so that neither shows what depends on values."""
    return all(
        torch.equal(raw_bytes(one), raw_bytes(other))
        if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor)
        else one == other
        for one, other in zip(first, second, strict=True)
    )


def written_by_the_host(observation: Observation, entry: str) -> Finding | None:
    """A table that the host wrote and a kernel was given, where nothing is drawn that would show if it has results.

    One value over and over, as torch.zeros leaves it, is no table.
    """
    for note in observation.notes:
        for name in note.tables:
            cause = f"{note.kernel} is given bytes in {name} that the host wrote; your kernel has to do the work"
            return computed(observation.operators, entry) or Finding(Verdict.NOT_YOUR_KERNEL, cause)
    return None


def _first_difference(first: Sequence[Note], second: Sequence[Note]) -> str:
    if len(first) != len(second):
        return f"{len(first)} kernels were launched for some values and {len(second)} for others"
    one, other = next((one, other) for one, other in zip(first, second, strict=True) if not _alike(one, other))
    if one.kernel != other.kernel or one.code != other.code:
        return f"the kernel that is launched depends on the values ({one.kernel}, {other.kernel})"
    if unlike := _unlike_buffers(one, other):
        name = unlike[0]
        return f"{one.kernel} reads bytes in {name} that the host wrote, different ones for different values"
    for position, (mine, theirs) in enumerate(zip(one.arguments, other.arguments, strict=False)):
        if mine != theirs:
            return f"argument {position} of {one.kernel} is {mine} for some values and {theirs} for others"
    if one.buffers != other.buffers:
        return f"the tensors that {one.kernel} is given differ for different values, or in their sizes"
    return f"the grid or the block of {one.kernel} depends on the values"


def library_share(kernels: Mapping[str, float], launches: Sequence[str]) -> Finding | None:
    """Whether kernels that the submission did not launch itself took a share of the GPU's time. kernels: seconds."""
    foreign = {
        name: seconds for name, seconds in kernels.items() if not any(own in name for own in (*launches, *_FILLS))
    }
    if sum(foreign.values()) <= LIBRARY_SHARE * sum(kernels.values()):
        return None
    slowest = max(foreign, key=lambda name: foreign[name])
    share = sum(foreign.values()) / sum(kernels.values())
    return Finding(Verdict.NOT_YOUR_KERNEL, f"{share:.0%} of the GPU's time went to other kernels, such as {slowest}")
