"""Offsets past 2**31 and 2**32: a case on address spans without memory, where a sample of the blocks runs.

No values are compared. Of an int the offset comes out negative, which is out of bounds; of an unsigned int it begins
again at 0, where another block writes too, which is a race. Where all blocks of the sample ran to their end, the last
of the grid among them, they have to have reached the second half of each output, unless the grid has threads for all
of it: a grid of constant size does not.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from kernelpath import words
from kernelpath.course.problem import Case
from kernelpath.device import far
from kernelpath.device import messages as device
from kernelpath.files import source_text
from kernelpath.grading import provenance
from kernelpath.grading.cases import GradedCase
from kernelpath.grading.kinds.kernel import as_inputs, finding_of
from kernelpath.grading.submission import Submission
from kernelpath.verdict import CaseResult, Finding, Verdict
from kernelpath.work import messages
from kernelpath.work.runner import Runner, SubmissionFailed

_FOUND = (Verdict.OUT_OF_BOUNDS, Verdict.RACE)

_MOST_OF_A_THREAD = 256
"""Elements of an output that a thread may write. A grid with fewer threads than this needs cannot fill the output."""

_PRODUCT = re.compile(r"(?:^|[^)\s])\s*\b((?:block|thread)Idx\.[xyz]|gridDim\.[xyz]) ?\* ?(blockDim\.[xyz]|\d+\b)")
"""Of two 32-bit numbers: the first has no cast before it, and a literal no suffix."""


def grade_large_offsets(
    submission: Submission, runner: Runner | None, seed: int
) -> tuple[list[GradedCase], tuple[str, ...]]:
    """The far cases to the first that fails, and what could not be said of them.

    runner: the submission on the PTX machine, if there is one.
    """
    if runner is None:
        return [], ()
    found: list[GradedCase] = []
    unsaid: list[str] = []
    for case in submission.exercise.far:
        begun = time.monotonic()
        try:
            finding, unreached = _judged(submission, case, runner, seed)
            finding = submission.placed(finding)
        except SubmissionFailed as stopped:
            unsaid.append(f"offsets past 2^31: {words.shown(stopped.finding.cause)}")
            continue
        seconds = time.monotonic() - begun
        if finding is None and unreached:
            unsaid.append(f"offsets past 2^31: {_cut(unreached)}")
            continue
        if finding is None:
            found.append(GradedCase(CaseResult(case, Verdict.PASSED, seconds=seconds)))
            continue
        cause = words.shown(finding.cause)
        if finding.verdict in _FOUND:
            cause += _product(Path(finding.file))
        result = CaseResult(case, finding.verdict, cause, submission.shown(finding.file), finding.line, seconds)
        return [*found, GradedCase(result)], tuple(unsaid)
    return found, tuple(unsaid)


def _product(file: Path) -> str:
    """What to write in place of the products of the source that are computed in 32 bits, whatever takes them."""
    source = source_text(file) if file.is_file() else ""
    if found := _PRODUCT.search(source):
        narrow = f"{found[1]} * {found[2]}"
        return f" {narrow} is multiplied in 32 bits before it reaches a long long: write (long long){narrow}"
    if "tl.program_id" in source and "int64" not in source:
        return " tl.program_id is an int32: write tl.program_id(0).to(tl.int64) * …"
    return ""


def _cut(unreached: Sequence[str]) -> str:
    """What is said of tensors past whose element 2**31 no block of the sample got."""
    names = ", ".join(unreached)
    return f"no block got past element 2^31 of {names} with the instructions and the memory that a launch has here"


def _short(submission: Submission, outputs: Sequence[device.Strided], ended: device.Ended) -> Finding | None:
    """Return a finding about the first output of which a whole sample of the blocks did not reach the second half.

    The very last element is not asked for: where tiles are taken in a winding order, a block that is not in the sample
    may have it. Nor is anything asked of a grid that has threads for the whole output: the blocks of the sample may
    have nothing to do, as where each sequence of a batch gets as many blocks as the longest.
    """
    for position, output in enumerate(outputs):
        itemsize = getattr(torch, output.dtype).itemsize
        last = sum((extent - 1) * stride for extent, stride in zip(output.shape, output.strides, strict=True))
        begin, nbytes = output.offset * itemsize, (last + 1) * itemsize
        reached = ended.reached.get(output.storage, begin + nbytes) - begin
        if 2 * reached >= nbytes:
            continue
        names = submission.exercise.outputs
        name = names[position] if position < len(names) else f"output {position}"
        (note,) = ended.notes
        if math.prod((*note.grid, *note.block)) * _MOST_OF_A_THREAD >= nbytes // itemsize:
            continue
        grid = " x ".join(str(extent) for extent in note.grid)
        return Finding(
            Verdict.NOT_WRITTEN,
            f"of {nbytes // itemsize:,} elements of {name} no block gets past number {max(reached, 0) // itemsize:,}: "
            f"all that were tried, the last of the grid of {grid} among them, ended before. Does the grid grow with "
            "the size?",
        )
    return None


def _judged(submission: Submission, case: Case, runner: Runner, seed: int) -> tuple[Finding | None, Sequence[str]]:
    """What is wrong with the far case, and the tensors past whose element 2**31 it has not seen any.

    Whatever the host of a submission does, what a kernel did before is known.

    Raises:
        SubmissionFailed: Nothing is known, and the host took too much memory or time, made too many launches, or died.
    """
    runner.ready()
    drawn = submission.exercise.inputs(torch.Generator().manual_seed(seed), **case)
    client, stopped, placed = runner.client, None, None
    runner.request_machine(device.Begin(client, as_inputs(drawn, runner.storage_numbers, far=True), 0), device.Done)
    try:
        placed = runner.request(messages.Run(case=dict(case), seed=0), messages.OutputRefs, spare=True)
    except SubmissionFailed as error:
        stopped = error.finding
    ended = runner.request_machine(device.End(client, ()), device.Ended)
    assert ended is not None
    if ended.failed is not None and (found := finding_of(ended.failed)).verdict in _FOUND:
        return replace(found, cause=f"{found.cause}; is an offset past 2^31 computed in 32 bits?"), ()
    if finding := provenance.other_language(submission.exercise, submission.item.lane, ended.notes):
        return finding, ()
    if stopped is None:
        outputs = placed.outputs if placed is not None else ()
        nothing = provenance.launched_nothing(ended.notes, submission.exercise.entry)
        return nothing or _short(submission, outputs, ended), ended.unreached
    if not runner.pids or ended.failed or "out of memory" in stopped.cause or len(ended.notes) == far.NOTES:
        raise SubmissionFailed(stopped)
    return stopped, ()
