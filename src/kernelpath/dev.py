"""What holds the course together: each invariant is a function that yields its violations, one sentence each."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from kernelpath.course import registry, rejects, stubs
from kernelpath.course.registry import Item, Tree
from kernelpath.course.spec import Case, DeclarationError, Exercise
from kernelpath.grading import compare
from kernelpath.grading.grade import Device, grade
from kernelpath.grading.truth import derive, draw_inputs, expected_outputs
from kernelpath.show import docs
from kernelpath.show.execute import execute
from kernelpath.verdict import Report, Verdict

Invariant = Callable[[Path], Iterator[str]]
Outputs = list[torch.Tensor]

_BESIDE = {"checks": {"test_exercises.py"}, "phases": set[str](), "solutions": set[str](), "notebooks": set[str]()}
_IGNORED = {"__pycache__", ".ipynb_checkpoints", ".pytest_cache"}
_SIGNIFICAND_BELOW = {torch.float64: 24, torch.float32: 11, torch.float16: 8, torch.bfloat16: 4}
"""Bits of significand of the next lower precision: float32, TF32, bfloat16, float8 e4m3."""


def declarations_are_valid(root: Path) -> Iterator[str]:
    """Every declaration loads; spec.Exercise then vouches for hints, questions, explanation and sizes."""
    for item in registry.exercises(root):
        try:
            registry.load(item)
            registry.literal(item, "hints")
        except DeclarationError as error:
            yield str(error)


def checkpoints_are_valid(root: Path) -> Iterator[str]:
    """Every checkpoint loads, and its deliverable is an exercise of its phase that has sizes to draw, its questions are
    of the phase's weeks."""
    for path in sorted(root.glob("checks/*/checkpoint.py")):
        items = {item.name: item for item in registry.exercises(root) if item.phase == path.parent.name}
        try:
            declared = registry.load_checkpoint(path.parent.name, root)
            name = declared.deliverable
            for week in sorted(declared.questions.keys() - {item.week for item in items.values()}):
                yield f"{path.relative_to(root)}: it has questions of week {week}, which has no exercise in the phase"
            if name not in items:
                yield f"{path.relative_to(root)}: its deliverable {name} is no exercise of the phase"
            elif not registry.load(items[name]).vary:
                yield f"{path.relative_to(root)}: its deliverable {name} varies no size"
        except DeclarationError as error:
            yield str(error)


def names_are_unique(root: Path) -> Iterator[str]:
    """A name, and a letter of a week, belongs to one exercise."""
    items = registry.exercises(root)
    for label, keys in (("name", [item.name for item in items]), ("place", [_place(item) for item in items])):
        for key, count in Counter(keys).items():
            if count > 1:
                yield f"{count} exercises have the {label} {key}"


def _place(item: Item) -> str:
    return item.stem.partition("/")[2][:4]


def trees_agree(root: Path) -> Iterator[str]:
    """Every declaration has a stub and a solution of the same files, and nothing else lies in the trees."""
    items = registry.exercises(root)
    for item in items:
        stub, solution = (_suffixes(item, tree) for tree in ("phases", "solutions"))
        if ".py" not in solution:
            yield f"{item.stem} has no solutions/{item.stem}.py"
        if stub != solution:
            yield f"{item.stem} has {_listed(stub)} in phases/ but {_listed(solution)} in solutions/"
    stems = {item.stem for item in items}
    for tree, beside in _BESIDE.items():
        for path in sorted((root / tree).rglob("*")):
            if path.is_file() and not _belongs(path.relative_to(root / tree), tree, stems, beside):
                yield f"{path.relative_to(root)} belongs to no exercise"


def _suffixes(item: Item, tree: Tree) -> set[str]:
    return {path.suffix for path in item.files(tree)}


def _listed(suffixes: set[str]) -> str:
    return " and ".join(sorted(suffixes)) or "nothing"


def _belongs(path: Path, tree: str, stems: set[str], beside: set[str]) -> bool:
    if _IGNORED & set(path.parts) or str(path) in beside:
        return True
    if tree == "notebooks":
        return re.fullmatch(r"\d_\w+/week\d\d_\w+\.ipynb", str(path)) is not None
    if path.name == {"checks": "checkpoint.py", "phases": "answers.toml"}.get(tree):
        return any(stem.startswith(f"{path.parent}/") for stem in stems)
    suffixes = {".py"} if tree == "checks" else {".py", ".cu"}
    return path.suffix in suffixes and str(path.with_suffix("")) in stems


def stubs_do_not_drift(root: Path) -> Iterator[str]:
    """Every line of a stub that is not a TODO stands in the solution."""
    for item in registry.exercises(root):
        for solution in item.files("solutions"):
            stub = item.stub.with_suffix(solution.suffix)
            if stub.is_file():
                for number, line in stubs.drift(stub.read_text("utf-8"), solution.read_text("utf-8")):
                    yield f"{stub.relative_to(root)}:{number} is not in the solution: {line.strip()}"


def notebooks_have_their_exercises(root: Path) -> Iterator[str]:
    """Every exercise is introduced by its week's notebook."""
    for item in registry.exercises(root):
        if item.notebook is None:
            yield f"week {item.week} has no notebook in notebooks/{item.phase}/ for {item.name}"
        elif not re.search(rf"\b{item.name}\b", item.notebook.read_text("utf-8")):
            yield f"{item.notebook.relative_to(root)} does not mention {item.name}"


def controls_are_rejected(root: Path) -> Iterator[str]:
    """The comparison takes the truth, rounded to its dtype, and rejects every wrong answer that it must reject."""
    for item in registry.exercises(root):
        yield from admitted_controls(item)


def admitted_controls(item: Item) -> Iterator[str]:
    """The wrong answers that one exercise lets pass, and the right ones that it does not."""
    exercise = registry.load(item)
    calls = [_call(exercise, case, seed) for seed, case in enumerate(exercise.cases)]
    for call in calls:
        if complaint := compare.judge(call.right, call.truth, exercise.tolerance):
            yield f"{item.name} {dict(call.case)}: the rounded truth is called wrong: {complaint.cause}"
    for name, control in CONTROLS.items():
        answers = [(call, wrong) for call in calls if (wrong := control(call)) and not _equal(wrong, call.right)]
        if answers and not any(compare.judge(wrong, call.truth, exercise.tolerance) for call, wrong in answers):
            yield f"{item.name}: {name} passes on every case"


@dataclass(frozen=True)
class Call:
    """One case with its inputs, the truth, the truth rounded to the dtype of the output, and another call's outputs."""

    exercise: Exercise
    case: Case
    inputs: tuple[object, ...]
    truth: Outputs
    right: Outputs
    earlier: Outputs


def _call(exercise: Exercise, case: Case, seed: int) -> Call:
    inputs, before = (draw_inputs(exercise, case, derive(seed, call), "cpu") for call in ("this", "first"))
    truth = expected_outputs(exercise, inputs)
    right = _rounded(exercise, inputs, truth)
    return Call(exercise, case, inputs, truth, right, _rounded(exercise, before, expected_outputs(exercise, before)))


def _rounded(exercise: Exercise, inputs: tuple[object, ...], truth: Outputs) -> Outputs:
    """The truth in the dtype that a right answer has: the only one allowed, else that of the first input."""
    allowed = [getattr(torch, name) for name in exercise.tolerance]
    given = [value.dtype for value in inputs if isinstance(value, torch.Tensor) and value.dtype in allowed]
    dtype = given[0] if given else allowed[0]
    return [output.to(dtype) for output in truth]


def _equal(outputs: Outputs, others: Outputs) -> bool:
    return all(torch.equal(output, other) for output, other in zip(outputs, others, strict=True))


def zeros(call: Call) -> Outputs:
    return [torch.zeros_like(output) for output in call.right]


def input_copied(call: Call) -> Outputs | None:
    """Every output is the first input, where the shapes allow it."""
    tensors = [value for value in call.inputs if isinstance(value, torch.Tensor)]
    copies = [t.to(o.dtype) for o in call.right for t in tensors[:1] if t.shape == o.shape]
    return copies if len(copies) == len(call.right) else None


def last_tile_skipped(call: Call) -> Outputs:
    """The last 32 elements are left at zero."""
    outputs = [output.clone(memory_format=torch.contiguous_format) for output in call.right]
    for output in outputs:
        output.view(-1)[-32:] = 0
    return outputs


def next_lower_precision(call: Call) -> Outputs | None:
    """The same computation from inputs, and to outputs, of the next lower precision; no affair of measurements."""
    if not (call.exercise.is_kernel and call.right[0].is_floating_point()):
        return None
    inputs = [_lower(value) if isinstance(value, torch.Tensor) else value for value in call.inputs]
    outputs = _rounded(call.exercise, call.inputs, expected_outputs(call.exercise, inputs))
    return [_lower(output) for output in outputs]


def first_output_again(call: Call) -> Outputs:
    return call.earlier


CONTROLS: Mapping[str, Callable[[Call], Outputs | None]] = {
    "zeros": zeros,
    "the input copied": input_copied,
    "the last tile skipped": last_tile_skipped,
    "the next lower precision": next_lower_precision,
    "the first call's output returned again": first_output_again,
}
"""Wrong answers by name. None where an exercise has no such answer."""


def _lower(tensor: torch.Tensor) -> torch.Tensor:
    """The values rounded to the next lower precision's significand, with the exponents of their own dtype."""
    bits = _SIGNIFICAND_BELOW.get(tensor.dtype)
    if bits is None:
        return tensor
    significand, exponent = torch.frexp(tensor.double())
    return torch.ldexp(torch.round(significand * 2**bits) / 2**bits, exponent).to(tensor.dtype)


def tables_are_current(root: Path) -> Iterator[str]:
    """Every generated table equals its regeneration."""
    for name in docs.stale(root):
        yield f"a table of {name} differs from its regeneration: kp dev tables"


def stubs_end_as_not_started(root: Path) -> Iterator[str]:
    for item in registry.exercises(root):
        yield from _unless(Verdict.NOT_STARTED, grade(item, item.stub, device="cpu"))


def solutions_pass(root: Path) -> Iterator[str]:
    """Every solution passes on the CPU, and takes all its stars where there is a GPU that can run it."""
    for item in registry.exercises(root):
        yield from _unless(Verdict.PASSED, grade(item, item.solution, device="cpu"))
        if torch.cuda.is_available():
            on_gpu = grade(item, item.solution, device="cuda")
            if on_gpu.verdict is not Verdict.UNAVAILABLE and on_gpu.stars < item.stars:
                yield f"{on_gpu.submission} takes {on_gpu.stars} stars on {on_gpu.device}: {on_gpu.cause}"


def rejects_get_their_verdicts(root: Path) -> Iterator[str]:
    """Every planted bad submission ends as its name says."""
    devices: list[Device] = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
    with TemporaryDirectory() as folder:
        for device in devices:
            for reject in rejects.find(root, "any", "cpu" if device == "cpu" else "gpu"):
                graded = grade(registry.find(reject.exercise, root), reject.submission(Path(folder)), device=device)
                if graded.verdict is not reject.verdict:
                    shown = reject.path.relative_to(root)
                    yield f"{shown} ends as {graded.verdict.value}: {graded.cause or graded.verdict.meaning}"


def _unless(wanted: Verdict, graded: Report) -> Iterator[str]:
    if graded.verdict is not wanted:
        yield f"{graded.submission} ends as {graded.verdict.value}: {graded.cause or graded.verdict.meaning}"


def notebooks_run(root: Path) -> Iterator[str]:
    """Every notebook runs from top to bottom without a GPU, against the solutions."""
    from nbclient.exceptions import CellExecutionError

    for path in sorted(root.glob("notebooks/*/week*.ipynb")):
        try:
            execute(path)
        except CellExecutionError as error:
            yield f"{path.relative_to(root)}: {error.ename}: {error.evalue}"


QUICK: tuple[Invariant, ...] = (
    names_are_unique,
    trees_agree,
    stubs_do_not_drift,
    notebooks_have_their_exercises,
    declarations_are_valid,
    checkpoints_are_valid,
    controls_are_rejected,
    tables_are_current,
)
ALL: tuple[Invariant, ...] = (
    *QUICK,
    stubs_end_as_not_started,
    solutions_pass,
    rejects_get_their_verdicts,
    notebooks_run,
)
