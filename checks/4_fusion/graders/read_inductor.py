"""Grade a report on Inductor's code, and a second function, which torch.compile has to fuse into one kernel.

The submission's process compiles the function for a GPU, which need not be there, and the generated code is read here.

The compiled graphs are the graphs that compute the result. So a function cannot behave in one way for the compiler and
in another for its caller.
"""

from __future__ import annotations

import torch

from kernelpath import words
from kernelpath.course.problem import Tolerance, arguments
from kernelpath.course.problems.inductor_facts import gated, tensors
from kernelpath.course.traces import Malformed, inductor
from kernelpath.grading import compare
from kernelpath.grading.by_kind import GradingPlan
from kernelpath.grading.context import GradingContext
from kernelpath.grading.graders.results import decode_output
from kernelpath.grading.graders.trace import Trace
from kernelpath.grading.ground_truth import derive_seed
from kernelpath.grading.job import Job
from kernelpath.grading.steps import check_capability, measure_speed, run_cases
from kernelpath.verdict import Finding, Verdict
from kernelpath.work import messages
from kernelpath.work.runner import Runner, SubmissionFailed
from kernelpath.work.tensors import dtype_name, to_bytes

# The time limit of a request. The compiler is imported first.
SECONDS = 60.0


ENTRY = "gated_fused"
CASES = (
    {"rows": 33, "columns": 1000, "large": 7},
    {"rows": 64, "columns": 768, "large": 0},
)
TOLERANCE = Tolerance(rtol=1e-4, atol=1e-5)  # float32, sums in any order
MAX_KERNELS = 1


def plan_grading(job: Job) -> GradingPlan:
    """Return the grader of the report, and the steps with that of the second function."""
    # Importing Inductor queries a GPU for its properties, and the fork server must not touch a GPU.
    preload = "kernelpath.work.fusion" if job.device == "cpu" else ""
    return GradingPlan(Trace(job, preload), (check_capability, run_cases, check_fused_function, measure_speed))


def check_fused_function(context: GradingContext) -> Finding | None:
    """Return a finding about the second function."""
    context.progress(f"compiling {ENTRY}")
    return context.job.locate(_check_cases(context.runner, context.seed))


def _check_cases(runner: Runner, seed: int) -> Finding | None:
    """Return the finding about the first case with a wrong result, or with too many graphs or kernels."""
    for index, case in enumerate(CASES):
        inputs = tensors(torch.Generator().manual_seed(derive_seed(seed, ENTRY, index)), **case)
        contents = [
            messages.TensorData(dtype_name(tensor.dtype), list(tensor.shape), to_bytes(tensor)) for tensor in inputs
        ]
        try:
            request = messages.Fuse(function=ENTRY, tensors=contents)
            graphs = runner.request(request, messages.FusedGraphs, SECONDS)
            outputs = [decode_output(output, "cpu") for output in graphs.outputs]
        except SubmissionFailed as error:
            return error.finding
        if graphs.tampered:
            return Finding(Verdict.TAMPERED, graphs.tampered)
        if graphs.graph_break:
            return Finding(Verdict.WRONG_VALUES, f"{ENTRY} is not one graph: {words.shown(graphs.graph_break)}")
        if len(outputs) != 1:
            return Finding(Verdict.WRONG_TYPE, f"{ENTRY} returned {len(outputs)} tensors, expected 1")
        expected = gated(*(tensor.double() for tensor in inputs))
        finding = compare.check_outputs(outputs, [expected], {dtype_name(inputs[0].dtype): TOLERANCE})
        if finding is not None:
            return Finding(finding.verdict, f"{ENTRY} at {arguments(case)}: {finding.cause}")
        if finding := _check_kernel_count(graphs):
            return finding
    return None


def _check_kernel_count(graphs: messages.FusedGraphs) -> Finding | None:
    """Return a finding unless the function is one graph of few kernels."""
    if len(graphs.codes) != 1:
        return Finding(Verdict.WRONG_VALUES, f"{ENTRY} is compiled as {len(graphs.codes)} graphs, expected 1")
    try:
        (graph,) = inductor.graphs(inductor.joined(graphs.codes))
    except (Malformed, ValueError, KeyError):
        return Finding(Verdict.TAMPERED, "the submission answered instead of the compiler")
    if len(graph.launches) <= MAX_KERNELS:
        return None
    kernels = ", ".join(launch.kernel for launch in graph.launches)
    return Finding(
        Verdict.WRONG_VALUES,
        f"{ENTRY} is compiled as {len(graph.launches)} kernels, expected {MAX_KERNELS}: {kernels}",
    )
