"""Run a program with its host code on a GPU, where there is one, after the PTX machine has graded it."""

from __future__ import annotations

from kernelpath import words
from kernelpath.grading.context import GradingContext
from kernelpath.grading.graders.python_call import PythonCall
from kernelpath.verdict import Finding
from kernelpath.work.runner import SubmissionFailed


def run_on_gpu(context: GradingContext) -> Finding | None:
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
