"""A function that torch.compile has to fuse: it is compiled in the submission's process, and what was written is read.

The graphs that are compiled are those that compute the result, so a function cannot be one thing to the compiler and
another to its caller.
"""

from __future__ import annotations

import torch

from kernelpath import words
from kernelpath.course.problem import arguments
from kernelpath.course.spec import Fusion
from kernelpath.course.traces import Malformed, inductor
from kernelpath.grading import compare
from kernelpath.grading.kinds.python import told_tensor
from kernelpath.grading.truth import derive
from kernelpath.verdict import Complaint, Verdict
from kernelpath.work import messages
from kernelpath.work.runner import Runner, Stopped
from kernelpath.work.tensors import dtype_name, to_bytes

SECONDS = 60.0
"""For the compiler, which is imported first."""


def graded(fusion: Fusion, runner: Runner, seed: int) -> Complaint | None:
    """The first case whose result is wrong, or that takes more graphs or kernels than it may."""
    for index, case in enumerate(fusion.cases):
        inputs = fusion.inputs(torch.Generator().manual_seed(derive(seed, fusion.entry, index)), **case)
        tensors = [messages.Output(dtype_name(one.dtype), list(one.shape), to_bytes(one)) for one in inputs]
        try:
            asked = messages.Fuse(function=fusion.entry, tensors=tensors)
            fused = runner.ask(asked, messages.Fused, SECONDS)
            outputs = [told_tensor(one.dtype, one.shape, one.content, "cpu") for one in fused.outputs]
        except Stopped as stopped:
            return stopped.complaint
        if fused.tampered:
            return Complaint(Verdict.TAMPERED, fused.tampered)
        if fused.broken:
            return Complaint(Verdict.WRONG_VALUES, f"{fusion.entry} is not one graph: {words.shown(fused.broken)}")
        if len(outputs) != 1:
            return Complaint(Verdict.WRONG_TYPE, f"{fusion.entry} returned {len(outputs)} tensors, expected 1")
        complaint = compare.judge(outputs, [fusion.reference(*inputs)], {dtype_name(inputs[0].dtype): fusion.tolerance})
        if complaint is not None:
            return Complaint(complaint.verdict, f"{fusion.entry} at {arguments(case)}: {complaint.cause}")
        if complaint := _unfused(fusion, fused):
            return complaint
    return None


def _unfused(fusion: Fusion, fused: messages.Fused) -> Complaint | None:
    """What keeps the function from being one graph of few kernels."""
    if len(fused.codes) != 1:
        return Complaint(Verdict.WRONG_VALUES, f"{fusion.entry} is compiled as {len(fused.codes)} graphs, expected 1")
    try:
        (graph,) = inductor.graphs(inductor.joined(fused.codes))
    except (Malformed, ValueError, KeyError):
        return Complaint(Verdict.TAMPERED, "the submission answered in place of the compiler")
    if len(graph.launches) <= fusion.launches:
        return None
    named = ", ".join(one.kernel for one in graph.launches)
    return Complaint(
        Verdict.WRONG_VALUES,
        f"{fusion.entry} is compiled as {len(graph.launches)} kernels, expected {fusion.launches}: {named}",
    )
