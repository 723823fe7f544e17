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
from kernelpath.grading.ground_truth import derive
from kernelpath.grading.kinds.python import told_tensor
from kernelpath.verdict import Finding, Verdict
from kernelpath.work import messages
from kernelpath.work.runner import Runner, SubmissionFailed
from kernelpath.work.tensors import dtype_name, to_bytes

SECONDS = 60.0
"""For the compiler, which is imported first."""


def graded(fusion: Fusion, runner: Runner, seed: int) -> Finding | None:
    """The first case whose result is wrong, or that takes more graphs or kernels than it may."""
    for index, case in enumerate(fusion.cases):
        inputs = fusion.inputs(torch.Generator().manual_seed(derive(seed, fusion.entry, index)), **case)
        tensors = [messages.TensorData(dtype_name(one.dtype), list(one.shape), to_bytes(one)) for one in inputs]
        try:
            asked = messages.Fuse(function=fusion.entry, tensors=tensors)
            fused = runner.request(asked, messages.FusedGraphs, SECONDS)
            outputs = [told_tensor(one.dtype, one.shape, one.content, "cpu") for one in fused.outputs]
        except SubmissionFailed as stopped:
            return stopped.finding
        if fused.tampered:
            return Finding(Verdict.TAMPERED, fused.tampered)
        if fused.graph_break:
            return Finding(Verdict.WRONG_VALUES, f"{fusion.entry} is not one graph: {words.shown(fused.graph_break)}")
        if len(outputs) != 1:
            return Finding(Verdict.WRONG_TYPE, f"{fusion.entry} returned {len(outputs)} tensors, expected 1")
        finding = compare.judge(outputs, [fusion.reference(*inputs)], {dtype_name(inputs[0].dtype): fusion.tolerance})
        if finding is not None:
            return Finding(finding.verdict, f"{fusion.entry} at {arguments(case)}: {finding.cause}")
        if finding := _unfused(fusion, fused):
            return finding
    return None


def _unfused(fusion: Fusion, fused: messages.FusedGraphs) -> Finding | None:
    """What keeps the function from being one graph of few kernels."""
    if len(fused.codes) != 1:
        return Finding(Verdict.WRONG_VALUES, f"{fusion.entry} is compiled as {len(fused.codes)} graphs, expected 1")
    try:
        (graph,) = inductor.graphs(inductor.joined(fused.codes))
    except (Malformed, ValueError, KeyError):
        return Finding(Verdict.TAMPERED, "the submission answered in place of the compiler")
    if len(graph.launches) <= fusion.launches:
        return None
    named = ", ".join(one.kernel for one in graph.launches)
    return Finding(
        Verdict.WRONG_VALUES,
        f"{fusion.entry} is compiled as {len(graph.launches)} kernels, expected {fusion.launches}: {named}",
    )
