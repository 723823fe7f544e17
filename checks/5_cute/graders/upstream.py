"""Grade a contribution: run the learner's test on the published kernel, on the fixed one, and on kernels in between.

A test is right if it fails for wrong kernels and passes for right ones, for no other reason than what they do. So it
gets the text of a kernel and nothing else, the calls come in an order that the seed determines, and among them are
texts that hold both versions, of which the preprocessor keeps one.
"""

from __future__ import annotations

import ast
import random
import re
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

import torch

from kernelpath import words
from kernelpath.course import stubs
from kernelpath.course.edits import Unreadable, count_changes, split_statements
from kernelpath.course.problem import Case
from kernelpath.course.spec import WRONG_VALUES_FAULT
from kernelpath.device import messages as device
from kernelpath.files import blank_comments, source_text
from kernelpath.grading.by_kind import GradingPlan
from kernelpath.grading.context import GradingContext
from kernelpath.grading.graded_case import GradedCase
from kernelpath.grading.graders.kernel_on_machine import KernelOnMachine
from kernelpath.grading.graders.machine import encode_inputs, machine_finding
from kernelpath.grading.job import Job
from kernelpath.grading.repair import FAULTS
from kernelpath.grading.steps import check_capability
from kernelpath.verdict import CaseResult, Finding, Verdict
from kernelpath.work import messages
from kernelpath.work.runner import SubmissionFailed
from warpcheck import errors

PUBLISHED = "published.cu"
FIXED = "fixed.cu"
PULL_REQUEST = "pull_request.md"
FAULT = "FAULT"

# The statements that a fix may change.
MAX_CHANGES = 6

TITLE_CHARACTERS = range(10, 73)
SECTION_CHARACTERS = range(80, 1501)
SECTIONS = ("Problem", "Change", "Test", "Limits")

# The names of warpcheck's exceptions, by the kind in the report of the PTX machine.
_FAULT_NAMES = {
    **{kind.name: type(errors.Fault(kind, "", "", "", 0, (0, 0, 0), (0, 0, 0))).__name__ for kind in errors.FaultKind},
    "DEADLOCK": errors.Deadlock.__name__,
}

_COMMIT = re.compile(r"\b[0-9a-f]{40}\b")
_LICENSE = re.compile(r"licen[cs]e", re.IGNORECASE)
_SECTION = re.compile(r"^## +(.+?) *$", re.MULTILINE)
# Matches an assignment to an element of an array.
_STORE = re.compile(r"(\w+\s*\[[^;={}]*\]\s*)=(?!=)\s*([^;{}]+);")


class Control(NamedTuple):
    """A kernel for which the outcome of a right test is known.

    Attributes:
        description: The kernel, as the rest of "the test passes with".
        source: Its text.
        is_right: Whether the test has to pass.
    """

    description: str
    source: str
    is_right: bool


_NORMALIZATION = """
__global__ void normalization_kernel(float* out, const float* inp, float* mean, float* rstd,
                                     const float* weight, const float* bias, int B, int T, int C) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const int rows = B * T;
    GUARD {
        const int row = i / C, column = i - row * C;
        out[i] = (inp[i] - mean[row]) * rstd[row] * weight[column] + SHIFT;
    }
}
"""

_FUSED_RESIDUAL = """
__global__ void fused_residual_forward2(float* residual, float* normed, float* mean, float* rstd, const float* inp1,
                                        const float* inp2, const float* weight, const float* bias, int N, int C) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    GUARD {
        const size_t first = (size_t)row * C;
        float sum = 0.0f, squares = 0.0f;
        for (int c = 0; c < C; ++c) sum += residual[first + c] = inp1[first + c] + inp2[first + c];
        const float average = sum / C;
        for (int c = 0; c < C; ++c) squares += (residual[first + c] - average) * (residual[first + c] - average);
        const float scale = rsqrtf(squares / C + 1e-5f);
        for (int c = 0; c < C; ++c) normed[first + c] = scale * (residual[first + c] - average) * weight[c] + SHIFT;
        mean[row] = average;
        rstd[row] = scale;
    }
}
"""


def _versions(template: str, right: str, off_by_one: str, shift: str) -> tuple[Control, ...]:
    """Return a right version of a kernel, one whose guard lets the next thread pass, and one without its bias."""
    guarded = template.replace("GUARD", right)
    return (
        Control("the course's version of it, which is right", guarded.replace("SHIFT", shift), is_right=True),
        Control(
            "a version whose guard lets one thread too many pass",
            template.replace("GUARD", off_by_one).replace("SHIFT", shift),
            is_right=False,
        ),
        Control("a version that leaves out the bias", guarded.replace("SHIFT", "0.0f"), is_right=False),
    )


# The course's own versions of kernels in results/published.json, with the parameters of the published ones.
OWN_VERSIONS: Mapping[str, Sequence[Control]] = {
    "normalization_kernel": _versions(_NORMALIZATION, "if (i < rows * C)", "if (i <= rows * C)", "bias[column]"),
    "fused_residual_forward2": _versions(_FUSED_RESIDUAL, "if (row < N)", "if (row <= N)", "bias[c]"),
}


def plan_grading(job: Job) -> GradingPlan:
    """Return the plan: the fixed kernel first, since its verdicts help most, and the text last."""
    return GradingPlan(
        KernelOnMachine(job),
        (check_capability, check_files, check_fixed, check_published, check_patch, check_controls, check_text),
    )


def check_files(context: GradingContext) -> Finding | None:
    """Return a finding about a file that is missing or still open, or about a kernel whose origin is not named."""
    for name in ("", PUBLISHED, FIXED, PULL_REQUEST):
        text = _read(context, name)
        if not text.strip() or stubs.is_open(text):
            file = name or context.copy.file.name
            finding = Finding(Verdict.NOT_STARTED, f"{file} is still to be written: it is empty, or has a TODO", file)
            return context.job.locate(finding)
    if read_fault(context) is None:
        names = ", ".join(FAULTS)
        table = f'{FAULT} = {{"kernel": name, "kind": kind, "line": number}}'
        return Finding(Verdict.WRONG_DIAGNOSIS, f"{FAULT} is not of the form {table}; the kinds are {names}")
    comments = _comments(_read(context, PUBLISHED))
    if not _COMMIT.search(comments) or not _LICENSE.search(comments):
        cause = f"no comment of {PUBLISHED} names the commit, with its 40 digits, and the license"
        return context.job.locate(Finding(Verdict.NOT_WRITTEN, cause, PUBLISHED, 1))
    return None


def check_fixed(context: GradingContext) -> Finding | None:
    """Return how the test ends with the fixed kernel, in any order of warps and blocks, where it does not pass."""
    source = _read(context, FIXED)
    kernel = _declared(context).kernel
    for case in _cases(context, "fixed"):
        context.progress("testing the fixed kernel")
        run = _run_test(context, source, int(case["order"]))
        finding = run.finding
        if finding is not None:
            cause = f"with {FIXED} the test fails: {finding.cause}"
            finding = Finding(finding.verdict, cause, _kernel_file(finding, FIXED), finding.line)
        elif not any(kernel in launch.kernel for launch in run.launches):
            cause = f"the test launches no kernel {kernel} of the source that it gets"
            finding = Finding(Verdict.WRONG_DIAGNOSIS, cause)
        if located := _add(context, case, run, finding):
            return located
    return None


def _cases(context: GradingContext, kernel: str) -> list[Case]:
    return [case for case in context.job.exercise.cases if case["kernel"] == kernel]


def check_published(context: GradingContext) -> Finding | None:
    """Return a finding unless the test fails with the published kernel by the fault that FAULT names."""
    context.progress("testing the published kernel")
    run = _run_test(context, _read(context, PUBLISHED))
    (case,) = _cases(context, "published")
    return _add(context, case, run, _compare_fault(run, _declared(context)))


def _compare_fault(run: _TestRun, fault: Fault) -> Finding | None:
    """Return a finding where a run does not end in the fault that the submission names."""
    if run.finding is None:
        return Finding(Verdict.WRONG_DIAGNOSIS, f"the test passes with {PUBLISHED}; it has to fail there")
    if run.finding.verdict is Verdict.COMPILE_ERROR:
        cause = f"{PUBLISHED} cannot be compiled: {run.finding.cause}"
        return Finding(Verdict.COMPILE_ERROR, cause, _kernel_file(run.finding, PUBLISHED), run.finding.line)
    failed = run.failed
    if failed is None:
        if not run.finding.cause.startswith("AssertionError"):
            return run.finding
        actual, place = WRONG_VALUES_FAULT, ""
    else:
        actual, place = _FAULT_NAMES.get(failed.kind, failed.kind), f" in line {failed.line}"
    if fault.kind != actual:
        cause = f"{FAULT} names {fault.kind}; with {PUBLISHED} the test ends by {actual}{place}: {run.finding.cause}"
        return Finding(Verdict.WRONG_DIAGNOSIS, cause)
    if failed is None:
        return None
    if fault.kernel not in failed.kernel:
        return Finding(Verdict.WRONG_DIAGNOSIS, f"{FAULT} names {fault.kernel}; the fault is in {failed.kernel}")
    # Of a race both lines are right: the message names the second one as well.
    if fault.line != failed.line and not re.search(rf"\bline {fault.line}\b", failed.text):
        cause = f"{FAULT} names line {fault.line}; the fault is{place}: {failed.text}"
        return Finding(Verdict.WRONG_DIAGNOSIS, cause)
    return None


def check_patch(context: GradingContext) -> Finding | None:
    """Return a finding where the fix changes too many statements."""
    before, after = (split_statements(_read(context, name), ".cu") for name in (PUBLISHED, FIXED))
    try:
        changes = count_changes(before, after).total()
    except Unreadable as error:
        return context.job.locate(Finding(Verdict.TOO_MANY_CHANGES, f"{FIXED}: {error}", FIXED))
    if changes > MAX_CHANGES:
        cause = f"{FIXED} changes {words.count(changes, 'statement')} of {PUBLISHED}; the limit is {MAX_CHANGES}"
        return context.job.locate(Finding(Verdict.TOO_MANY_CHANGES, cause, FIXED))
    return None


def check_controls(context: GradingContext) -> Finding | None:
    """Return a finding where the test passes with a wrong kernel, or fails with a right one.

    The order of the calls depends on the seed, so that a test cannot count them.
    """
    controls = list(_controls(_read(context, PUBLISHED), _read(context, FIXED), _declared(context).kernel))
    random.Random(context.seed).shuffle(controls)
    for control in controls:
        context.progress("testing further kernels")
        finding = _run_test(context, control.source).finding
        if finding is not None and finding.verdict is Verdict.COMPILE_ERROR:
            # Other values in a store of a vector type, or two files that define one macro, need not compile.
            continue
        if finding is not None and finding.verdict in (Verdict.ACCESS_DENIED, Verdict.TAMPERED):
            return finding
        if control.is_right and finding is not None:
            cause = f"the test fails with {control.description}: {finding.cause}"
            return Finding(Verdict.WRONG_DIAGNOSIS, cause)
        if not control.is_right and finding is None:
            cause = f"the test passes with {control.description}; it has to fail there"
            return Finding(Verdict.WRONG_DIAGNOSIS, cause)
    return None


def _controls(published: str, fixed: str, kernel: str) -> Iterator[Control]:
    """Yield kernels that tell a test of what a kernel does from a test of its text, and from one of nothing."""
    yield Control(
        f"{FIXED} in a text that also has {PUBLISHED}, behind #if 0",
        f"#if 0\n{published}\n#else\n{fixed}\n#endif\n",
        is_right=True,
    )
    yield Control(
        f"{PUBLISHED} in a text that also has {FIXED}, behind #if 0",
        f"#if 0\n{fixed}\n#else\n{published}\n#endif\n",
        is_right=False,
    )
    code = blank_comments(fixed)
    if (body := _body(code, kernel)) is not None:
        first, last = body
        yield Control(f"a {kernel} that does nothing", f"{code[:first]}{code[last:]}", is_right=False)
        for description, changed in _change_stores(code[first:last], _floats(code, kernel)):
            text = f"{code[:first]}{changed}{code[last:]}"
            yield Control(f"a {kernel} that {description}", text, is_right=False)
    yield from OWN_VERSIONS.get(kernel, ())


def _change_stores(body: str, floats: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield a description and a body for each way to store other values.

    Args:
        body: The body of a kernel.
        floats: The kernel's parameters that point to floats. Of an integer, a quarter may be 0.
    """

    def close_value(store: re.Match[str]) -> str:
        is_float = store[1].partition("[")[0].strip() in floats
        return f"{store[1]}= 1.25f * ({store[2]}) + 0.0625f;" if is_float else store[0]

    for description, replacement in (
        ("stores other values", r"\1= 2 * (\2) + 1;"),
        # The last block may have no element, and the first one may be the only one that a test looks at.
        ("stores other values in one of its blocks", r"\1= blockIdx.x == (gridDim.x - 1) / 2 ? 2 * (\2) + 1 : (\2);"),
        ("stores floats that are a quarter too large", close_value),
    ):
        changed = _STORE.sub(replacement, body)
        if changed != body:
            yield description, changed


def _floats(code: str, kernel: str) -> list[str]:
    """Return the parameters of a kernel that point to floats, in a text without comments."""
    parameters = re.search(rf"\b{re.escape(kernel.partition('<')[0])}\s*\(([^()]*)\)\s*\{{", code)
    return re.findall(r"\bfloat\s*\*\s*(?:__restrict__\s+)?(\w+)", parameters[1]) if parameters else []


def _body(code: str, kernel: str) -> tuple[int, int] | None:
    """Return where the body of a kernel begins and ends in a text without comments; None where it has none."""
    definition = re.search(rf"\b{re.escape(kernel.partition('<')[0])}\s*\([^()]*\)\s*\{{", code)
    if definition is None:
        return None
    depth = 1
    for brace in re.finditer(r"[{}]", code[definition.end() :]):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            return definition.end(), definition.end() + brace.start()
    return None


def check_text(context: GradingContext) -> Finding | None:
    """Return a finding about a part of the pull request's text that is missing, too short, or too long.

    Whether the text is right, a person reads by the rubric of the week.
    """
    title, *parts = _SECTION.split(_read(context, PULL_REQUEST))
    sections = {name: text.strip() for name, text in zip(parts[::2], parts[1::2], strict=True)}
    heading = next((line.removeprefix("# ").strip() for line in title.splitlines() if line.startswith("# ")), "")
    if len(heading) not in TITLE_CHARACTERS:
        return _text_finding(context, "title, as its first heading,", len(heading), TITLE_CHARACTERS)
    for name in SECTIONS:
        if len(sections.get(name, "")) not in SECTION_CHARACTERS:
            return _text_finding(context, f"section {name}", len(sections.get(name, "")), SECTION_CHARACTERS)
    return None


def _text_finding(context: GradingContext, part: str, characters: int, allowed: range) -> Finding | None:
    required = f"{allowed.start} to {allowed.stop - 1} are required"
    cause = f"the {part} of {PULL_REQUEST} has {words.count(characters, 'character')}; {required}"
    return context.job.locate(Finding(Verdict.NOT_WRITTEN, cause, PULL_REQUEST))


class _TestRun(NamedTuple):
    """One call of the test.

    Attributes:
        finding: How it failed; None where it passed.
        failed: The fault that the PTX machine reported.
        launches: The launches that were completed.
        seconds: The time that it took.
    """

    finding: Finding | None
    failed: device.Failed | None = None
    launches: Sequence[device.LaunchEntry] = ()
    seconds: float = 0.0


def _run_test(context: GradingContext, source: str, order: int = 0) -> _TestRun:
    """Call the test with the text of a kernel, in an order of warps and blocks."""
    runner = context.runner
    try:
        runner.ready()
        encoded = encode_inputs((source, torch.device("cpu")), runner.storage_numbers)
        runner.request_machine(device.Begin(runner.client, encoded, order), device.Acknowledged)
    except SubmissionFailed as error:
        return _TestRun(error.finding)
    finding = None
    start = time.monotonic()
    try:
        outputs = runner.request(messages.Run(case={}, seed=0), messages.OutputRefs)
        if outputs.tampered:
            finding = Finding(Verdict.TAMPERED, outputs.tampered)
    except SubmissionFailed as error:
        finding = error.finding
    if not runner.pids:
        return _TestRun(finding)
    try:
        report = runner.request_machine(device.End(runner.client, (), counted=False), device.CaseReport)
    except SubmissionFailed as error:
        return _TestRun(error.finding)
    assert report is not None
    if report.failed is not None:
        # Also where the test has caught the exception: the kernel is wrong, whatever the test makes of it.
        finding = machine_finding(report.failed, context.copy.file)
    return _TestRun(finding, report.failed, report.transcript, time.monotonic() - start)


def _read(context: GradingContext, name: str = "") -> str:
    """Return the text of a file of the submission, by default of its Python file; an empty one where it is missing."""
    python = context.copy.file
    path = python.with_suffix("") / name if name else python
    return source_text(path) if path.is_file() else ""


def _comments(source: str) -> str:
    """Return what the comments of a source say, line by line."""
    code = blank_comments(source)
    return "".join(
        character if character == "\n" or character != blanked else " "
        for character, blanked in zip(source, code, strict=True)
    )


def _add(context: GradingContext, case: Case, run: _TestRun, finding: Finding | None) -> Finding | None:
    """Add the result of a case to the report, and return the finding with the learner's own file."""
    located = context.job.locate(finding)
    verdict, cause = (located.verdict, located.cause) if located is not None else (Verdict.PASSED, "")
    context.graded.append(GradedCase(CaseResult(case, verdict, cause, seconds=run.seconds)))
    return located


def _kernel_file(finding: Finding, name: str) -> str:
    """Return the file of a finding. The PTX machine names a kernel that was compiled from a text after itself."""
    return name if finding.file.endswith(".cu") else finding.file


class Fault(NamedTuple):
    """The table FAULT of a submission.

    Attributes:
        kernel: The name of the kernel.
        kind: The name of an exception of warpcheck, or "WrongValues".
        line: The line in the published file.
    """

    kernel: str
    kind: str
    line: int


def read_fault(context: GradingContext) -> Fault | None:
    """Return the table FAULT of the submission; None where it has none of this form."""
    try:
        values = [
            node.value
            for node in ast.parse(_read(context)).body
            if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == [FAULT]
        ]
        fault = Fault(**ast.literal_eval(values[-1]))
    except (SyntaxError, ValueError, IndexError, TypeError, RecursionError, MemoryError):
        return None
    has_types = isinstance(fault.kernel, str) and fault.kind in FAULTS and isinstance(fault.line, int)
    return fault if has_types else None


def _declared(context: GradingContext) -> Fault:
    """Return the table FAULT, which `check_files` has read before."""
    fault = read_fault(context)
    assert fault is not None
    return fault
