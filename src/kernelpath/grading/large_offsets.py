"""Check offsets past 2**31 and 2**32, with a case on address spans without memory, where a sample of the blocks runs.

No values are compared. An int offset becomes negative, which is out of bounds. An unsigned offset wraps to 0, where
another block writes as well, which is a race. Where all blocks of the sample ran to their end, the last block of the
grid among them, they must have reached the second half of each output, unless the grid has threads for the whole
output, as a grid of constant size has not. And a grid must be able to fill each output if each block stores as much as
all blocks of the sample together.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from kernelpath import words
from kernelpath.course.problem import Case
from kernelpath.device import large_offsets as device_offsets
from kernelpath.device import messages as device
from kernelpath.files import source_text
from kernelpath.grading import provenance
from kernelpath.grading.graded_case import GradedCase
from kernelpath.grading.graders.machine import encode_inputs, machine_finding
from kernelpath.grading.job import Job
from kernelpath.verdict import CaseResult, Finding, Verdict
from kernelpath.work import messages
from kernelpath.work.runner import Runner, SubmissionFailed

_OFFSET_FAULTS = (Verdict.OUT_OF_BOUNDS, Verdict.RACE)

# Elements of an output that a thread may write. A grid with fewer threads than this requires cannot fill the output.
_MAX_ELEMENTS_PER_THREAD = 256

# Matches a product of two 32-bit numbers: the first has no cast before it, and a literal no suffix.
_PRODUCT = re.compile(r"(?:^|[^)\s])\s*\b((?:block|thread)Idx\.[xyz]|gridDim\.[xyz]) ?\* ?(blockDim\.[xyz]|\d+\b)")


def grade_large_offsets(job: Job, runner: Runner | None, seed: int) -> tuple[list[GradedCase], tuple[str, ...]]:
    """Return the large cases up to the first that fails, and sentences about what was not checked.

    `runner` is the submission on the PTX machine, if there is one.
    """
    if runner is None:
        return [], ()
    graded: list[GradedCase] = []
    not_checked: list[str] = []
    for case in job.exercise.far:
        start = time.monotonic()
        try:
            finding, unreached = _check_case(job, case, runner, seed)
            finding = job.locate(finding)
        except SubmissionFailed as error:
            # A host that cannot handle these sizes here says nothing about its kernel, so it is no reason to fail.
            not_checked.append(f"offsets past 2^31: {words.shown(error.finding.cause)}")
            continue
        seconds = time.monotonic() - start
        if finding is None and unreached:
            not_checked.append(f"offsets past 2^31: {_describe_unreached(unreached)}")
            continue
        if finding is None:
            graded.append(GradedCase(CaseResult(case, Verdict.PASSED, seconds=seconds)))
            continue
        cause = words.shown(finding.cause)
        if finding.verdict in _OFFSET_FAULTS:
            cause += _advise(Path(finding.file))
        file = job.display_path(finding.file)
        result = CaseResult(case, finding.verdict, cause, file, finding.line, seconds)
        return [*graded, GradedCase(result)], tuple(not_checked)
    return graded, tuple(not_checked)


def _advise(file: Path) -> str:
    """Return advice about products in the source that are computed in 32 bits, whatever type receives them."""
    source = source_text(file) if file.is_file() else ""
    if match := _PRODUCT.search(source):
        narrow = f"{match[1]} * {match[2]}"
        return f" {narrow} is multiplied in 32 bits before it reaches a long long: write (long long){narrow}"
    if "tl.program_id" in source and "int64" not in source:
        return " tl.program_id is an int32: write tl.program_id(0).to(tl.int64) * …"
    return ""


def _describe_unreached(names: Sequence[str]) -> str:
    """Say that no block of the sample accessed an element past 2**31 of these tensors."""
    joined = ", ".join(names)
    return f"no block got past element 2^31 of {joined} with the instructions and the memory that a launch has here"


def _check_reached(job: Job, outputs: Sequence[device.TensorRef], call_end: device.CaseReport) -> Finding | None:
    """Return a finding about the first output whose second half no block of a whole sample reached.

    The very last element is not required: where tiles are taken in a swizzled order, a block that is not in the sample
    may write it. Nothing is required of a grid that has threads for the whole output: the blocks of the sample may have
    nothing to do, for example where each sequence of a batch gets as many blocks as the longest.
    """
    for position, output in enumerate(outputs):
        itemsize = getattr(torch, output.dtype).itemsize
        last = sum((extent - 1) * stride for extent, stride in zip(output.shape, output.strides, strict=True))
        begin = output.offset * itemsize
        nbytes = (last + 1) * itemsize
        if len(call_end.transcript) != 1:  # a launch that the machine refused has a record as well
            continue
        (launch,) = call_end.transcript
        grid = " x ".join(str(extent) for extent in launch.grid)
        names = job.exercise.outputs
        of_output = f"of {nbytes // itemsize:,} elements of "
        of_output += names[position] if position < len(names) else f"output {position}"
        # The machine reports these only for a call with a single launch whose sample ran to its end. Otherwise nothing
        # is known, and nothing is required.
        reached = call_end.reached.get(output.storage, begin + nbytes) - begin
        threads = math.prod((*launch.grid, *launch.block))
        if 2 * reached < nbytes and threads * _MAX_ELEMENTS_PER_THREAD < nbytes // itemsize:
            return Finding(
                Verdict.NOT_WRITTEN,
                f"{of_output} no block gets past number {max(reached, 0) // itemsize:,}: all that were tried, the last "
                f"of the grid of {grid} among them, ended before. Does the grid grow with the size?",
            )
        stored = call_end.stored.get(output.storage, 0)
        if 0 < stored * math.prod(launch.grid) < nbytes:
            return Finding(
                Verdict.NOT_WRITTEN,
                f"{of_output} a grid of {grid} cannot write all: the blocks that were tried, its first and its last "
                f"among them, write {stored // itemsize:,} in total. Does the grid grow with the size?",
            )
    return None


def _check_case(job: Job, case: Case, runner: Runner, seed: int) -> tuple[Finding | None, Sequence[str]]:
    """Return a finding about the large case, and the names of the tensors with no access past element 2**31.

    Whatever the submission's host code does, the launches before are known.

    Raises:
        SubmissionFailed: Nothing is known, and the host took too much memory or time, made too many launches, or died.
    """
    runner.ready()
    inputs = job.exercise.inputs(torch.Generator().manual_seed(seed), **case)
    client = runner.client
    encoded = encode_inputs(inputs, runner.storage_numbers, large_offsets=True)
    runner.request_machine(device.Begin(client, encoded, 0), device.Acknowledged)
    output_refs: messages.OutputRefs | None = None
    host_finding: Finding | None = None
    try:
        # The machine outlives a host that hangs: each launch is cut off after device.large_offsets.MAX_INSTRUCTIONS, so
        # the machine is not busy, and it still has the records of the launches.
        output_refs = runner.request(messages.Run(case=dict(case), seed=0), messages.OutputRefs, spare=True)
    except SubmissionFailed as error:
        host_finding = error.finding
    call_end = runner.request_machine(device.End(client, ()), device.CaseReport)
    assert call_end is not None
    if call_end.failed is not None:
        fault = machine_finding(call_end.failed, job.submission, "; is an offset past 2^31 computed in 32 bits?")
        if fault.verdict in _OFFSET_FAULTS:
            return fault, ()
    if finding := provenance.check_language(job.exercise, job.item.lane, call_end.transcript):
        return finding, ()
    if host_finding is None:
        outputs = output_refs.outputs if output_refs is not None else ()
        no_launch = provenance.no_launch_finding(call_end.transcript, job.exercise.entry)
        return no_launch or _check_reached(job, outputs, call_end), call_end.unreached
    has_limits = "out of memory" in host_finding.cause or len(call_end.transcript) == device_offsets.MAX_LAUNCHES
    if not runner.pids or call_end.failed or has_limits:
        raise SubmissionFailed(host_finding)
    return host_finding, ()
