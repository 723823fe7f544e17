"""Check a function that torch.compile has to fuse: the submission's process compiles it, and the generated code is
read.

The compiled graphs are the graphs that compute the result. So a function cannot behave in one way for the compiler and
in another for its caller.
"""

from __future__ import annotations

import torch

from kernelpath import words
from kernelpath.course.problem import arguments
from kernelpath.course.spec import Fusion
from kernelpath.course.traces import Malformed, inductor
from kernelpath.grading import compare
from kernelpath.grading.context import GradingContext
from kernelpath.grading.graders.results import decode_output
from kernelpath.grading.ground_truth import derive_seed
from kernelpath.verdict import Finding, Verdict
from kernelpath.work import messages
from kernelpath.work.runner import Runner, SubmissionFailed
from kernelpath.work.tensors import dtype_name, to_bytes

SECONDS = 60.0
"""The time limit of a request. The compiler is imported first."""


def check_fusion(context: GradingContext) -> Finding | None:
    """Return a finding about the second function of an exercise that declares one."""
    fusion = context.job.exercise.fusion
    if fusion is None:
        return None
    context.progress(f"compiling {fusion.entry}")
    return context.job.locate(_check_function(fusion, context.runner, context.seed))


def _check_function(fusion: Fusion, runner: Runner, seed: int) -> Finding | None:
    """Return the finding about the first case with a wrong result, or with too many graphs or kernels."""
    for index, case in enumerate(fusion.cases):
        inputs = fusion.inputs(torch.Generator().manual_seed(derive_seed(seed, fusion.entry, index)), **case)
        tensors = [
            messages.TensorData(dtype_name(tensor.dtype), list(tensor.shape), to_bytes(tensor)) for tensor in inputs
        ]
        try:
            request = messages.Fuse(function=fusion.entry, tensors=tensors)
            graphs = runner.request(request, messages.FusedGraphs, SECONDS)
            outputs = [decode_output(output, "cpu") for output in graphs.outputs]
        except SubmissionFailed as error:
            return error.finding
        if graphs.tampered:
            return Finding(Verdict.TAMPERED, graphs.tampered)
        if graphs.graph_break:
            cause = f"{fusion.entry} is not one graph: {words.shown(graphs.graph_break)}"
            return Finding(Verdict.WRONG_VALUES, cause)
        if len(outputs) != 1:
            return Finding(Verdict.WRONG_TYPE, f"{fusion.entry} returned {len(outputs)} tensors, expected 1")
        tolerance = {dtype_name(inputs[0].dtype): fusion.tolerance}
        finding = compare.check_outputs(outputs, [fusion.reference(*inputs)], tolerance)
        if finding is not None:
            return Finding(finding.verdict, f"{fusion.entry} at {arguments(case)}: {finding.cause}")
        if finding := _check_kernel_count(fusion, graphs):
            return finding
    return None


def _check_kernel_count(fusion: Fusion, graphs: messages.FusedGraphs) -> Finding | None:
    """Return a finding unless the function is one graph of few kernels."""
    if len(graphs.codes) != 1:
        return Finding(Verdict.WRONG_VALUES, f"{fusion.entry} is compiled as {len(graphs.codes)} graphs, expected 1")
    try:
        (graph,) = inductor.graphs(inductor.joined(graphs.codes))
    except (Malformed, ValueError, KeyError):
        return Finding(Verdict.TAMPERED, "the submission answered in place of the compiler")
    if len(graph.launches) <= fusion.launches:
        return None
    kernels = ", ".join(launch.kernel for launch in graph.launches)
    return Finding(
        Verdict.WRONG_VALUES,
        f"{fusion.entry} is compiled as {len(graph.launches)} kernels, expected {fusion.launches}: {kernels}",
    )
