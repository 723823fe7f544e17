"""Define the rules that hold the course together: each invariant is a function that yields a sentence per violation."""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import wraps
from pathlib import Path

import torch

from kernelpath.course import lesson, registry, stubs
from kernelpath.course.checkpoint import Checkpoint
from kernelpath.course.errors import DeclarationError
from kernelpath.course.inputs import EXTREME, generate_inputs
from kernelpath.course.ladder import LAUNCH
from kernelpath.course.problem import ANY_FINITE, BEYOND_A_BLOCK
from kernelpath.course.registry import DELIVERABLE, EXPERT, STEPS, ExerciseRef, Tree
from kernelpath.dev import answers, books, controls, phrases, spills
from kernelpath.exam import reading
from kernelpath.grading.grade import grade
from kernelpath.grading.ground_truth import derive_seed
from kernelpath.show import docs, figures
from kernelpath.show.execute import execute
from kernelpath.verdict import Report, Verdict

Invariant = Callable[[Path], Iterator[str]]
ItemCheck = Callable[[ExerciseRef], Iterator[str]]

# The checks of single exercises, by the invariants that apply them to every exercise.
ITEM_CHECKS: dict[Invariant, ItemCheck] = {}


def for_each_item(check: ItemCheck) -> Invariant:
    """Return the invariant that every exercise passes a check."""

    @wraps(check)
    def invariant(root: Path) -> Iterator[str]:
        for item in registry.exercises(root):
            yield from check(item)

    ITEM_CHECKS[invariant] = check
    return invariant


# The stars that an answer with an expert kernel beside it must get on a GPU.
STARS_OF_AN_ANSWER = 2

# The words of a statement that allow the whole domain of finite floats.
_ANY_FINITE_VALUE = "finite values of any size"

# The number of samples of each case with extreme values. A row gets one kind of values in each sample.
_SEEDS = 4

# The share of an end of a domain that some value has to reach.
_MIN_SHARE_OF_END = 0.5

# Files that belong to a whole tree, not to an exercise or a phase.
_FURTHER_FILES = {
    "checks": {"test_exercises.py"},
    "phases": set[str](),
    "solutions": set[str](),
    "notebooks": {"glossary.md"},
}
_IGNORED = {"__pycache__", ".ipynb_checkpoints", ".pytest_cache", ".ruff_cache", ".mypy_cache"}
_SUFFIXES = {"checks": {".py", ".md", ".cu"}, "phases": {".py", ".cu"}, "solutions": {".py", ".cu"}}
# Files that belong to a phase: the exam, and what its learner writes.
_FILES_OF_A_PHASE = {
    "checks": {"checkpoint.py", "checkpoint.md"},
    "phases": {"answers.toml", f"{DELIVERABLE}.py", f"{DELIVERABLE}.cu"},
}


def names_are_unique(root: Path) -> Iterator[str]:
    """Require that a name, and a letter of a week, belongs to one exercise."""
    items = registry.exercises(root)
    for label, keys in (("name", [item.name for item in items]), ("place", [_letter_of_week(item) for item in items])):
        for key, count in Counter(keys).items():
            if count > 1:
                yield f"{count} exercises have the {label} {key}; rename all but one"


def _letter_of_week(item: ExerciseRef) -> str:
    return item.path_id.partition("/")[2][:4]


def trees_agree(root: Path) -> Iterator[str]:
    """Require a lesson, a stub and a solution with the same files for every declaration, and no other files."""
    items = registry.exercises(root)
    for item in items:
        stub, solution = (_suffixes(item, tree) for tree in ("phases", "solutions"))
        if not item.lesson.is_file():
            yield f"{item.path_id} has no {item.lesson.relative_to(root)}; write it: course/lesson.py says how"
        if ".py" not in solution:
            yield f"{item.path_id} has no solutions/{item.path_id}.py; write it"
        if stub != solution:
            in_trees = f"{_format_suffixes(stub)} in phases/ but {_format_suffixes(solution)} in solutions/"
            yield f"{item.path_id} has {in_trees}; make them alike"
        if item.has_expert and solution != _suffixes(item, "expert"):
            yield f"{item.reference.relative_to(root)} has other files than the answer; make them alike"
    items_by_path = {item.path_id: item for item in items}
    for tree in _FURTHER_FILES:
        for path in sorted((root / tree).rglob("*")):
            if path.is_file() and not _belongs(path.relative_to(root / tree), tree, items_by_path):
                yield f"{path.relative_to(root)} belongs to no exercise; rename or remove it"


def _suffixes(item: ExerciseRef, tree: Tree) -> set[str]:
    """Return the suffixes of the exercise's files or, for a project, the files' names."""
    start = item.submission(tree)
    return {path.suffix if path.parent == start.parent else path.name for path in item.files(tree)}


def _format_suffixes(suffixes: set[str]) -> str:
    return " and ".join(sorted(suffixes)) or "nothing"


def _belongs(path: Path, tree: str, items_by_path: dict[str, ExerciseRef]) -> bool:
    # From the general to the special: files of a tree, of a phase, of an exercise that is a folder, and of one
    # exercise.
    if _IGNORED & set(path.parts) or str(path) in _FURTHER_FILES[tree]:
        return True
    if tree == "notebooks":
        return re.fullmatch(r"\d_\w+/week\d\d_\w+\.ipynb", str(path)) is not None
    if path.name in _FILES_OF_A_PHASE.get(tree, ()):
        return any(path_id.startswith(f"{path.parent}/") for path_id in items_by_path)
    if tree == "checks" and path.parent.name == "reading":
        return True
    if tree == "checks" and path.parent.name == "graders":
        return any(item.grader.name == path.name and item.phase == path.parts[0] for item in items_by_path.values())
    if tree == "checks" and path.parent.name == registry.GIVEN:
        return f"{path.parts[0]}/{path.stem}" in items_by_path
    if any(str(folder) in items_by_path for folder in path.parents):
        return tree in ("phases", "solutions")
    if tree == "solutions" and path.parent.parent.name == STEPS:
        ladder = items_by_path.get(str(path.parents[2] / path.parent.name))
        return ladder is not None and (path.name == LAUNCH or re.fullmatch(r"\d+_\w+\.(cu|py)", path.name) is not None)
    folder = path.parent.parent if tree == "solutions" and path.parent.name == EXPERT else path.parent
    item = items_by_path.get(str(folder / path.stem))
    if item is None or path.suffix not in _SUFFIXES[tree]:
        return False
    # A kernel in checks/ is a baseline, and a baseline that no declaration names is never timed.
    return (tree, path.suffix) != ("checks", ".cu") or path.name in item.declaration.read_text(encoding="utf-8")


@for_each_item
def stubs_do_not_drift(item: ExerciseRef) -> Iterator[str]:
    """Require that every line of a stub that is not a TODO is in the solution.

    Repairing a kernel changes lines, and the grading limits their number: such a stub must be what the repair is
    compared with.
    """
    for given in item.given:
        stub = item.stub.with_suffix(given.suffix)
        if not stub.is_file() or stub.read_text("utf-8") != given.read_text("utf-8"):
            yield f"{stub.relative_to(item.root)} differs from {given.relative_to(item.course)}; make them alike"
    if item.given:
        return
    for solution in item.files("solutions"):
        stub = stubs.stub_of(item, solution)
        if stub.is_file():
            for number, line in stubs.drift(stub.read_text("utf-8"), solution.read_text("utf-8")):
                yield f"{stub.relative_to(item.root)}:{number} is not in the solution: {line.strip()}"


@for_each_item
def notebooks_have_their_exercises(item: ExerciseRef) -> Iterator[str]:
    """Require that every exercise is introduced by its week's notebook."""
    if item.notebook is None:
        yield f"week {item.week} has no notebook in notebooks/{item.phase}/ for {item.name}; write one"
    elif not re.search(rf"\b{item.name}\b", item.notebook.read_text("utf-8")):
        yield f"{item.notebook.relative_to(item.root)} does not mention {item.name}; introduce it there"


@for_each_item
def declarations_are_valid(item: ExerciseRef) -> Iterator[str]:
    """Require that every declaration loads; spec.Exercise and problem.Problem check its contents."""
    try:
        registry.load(item)
        _ = item.title
    except DeclarationError as error:
        yield str(error)


@for_each_item
def lessons_are_valid(item: ExerciseRef) -> Iterator[str]:
    """Require three hints, questions with explanations, and an explanation for every exercise."""
    try:
        lesson.read(item.lesson)
    except DeclarationError as error:
        yield str(error)


def checkpoints_are_valid(root: Path) -> Iterator[str]:
    """Require that every checkpoint loads with all numbers and belongs to its phase."""
    for path in sorted(root.glob("checks/*/checkpoint.py")):
        items = {
            item.name: item
            for item in registry.exercises(root)
            if item.phase == path.parent.name and not item.is_elective
        }
        weeks = {item.week for item in items.values()}
        relative_path = path.relative_to(root)
        try:
            checkpoint = registry.load_checkpoint(path.parent.name, root)
            for week in sorted({question.week for question in checkpoint.questions} - weeks):
                problem = f"it has questions of week {week}, which has no exercise in the exam; give them another week"
                yield f"{relative_path}: {problem}"
            deliverable = checkpoint.deliverable
            if deliverable not in items:
                yield f"{relative_path}: its deliverable {deliverable} is not an exercise of the phase; name one"
            for question in checkpoint.questions:
                # Drawing a question checks it, and raises DeclarationError.
                for _ in question.all_questions():
                    pass
        except DeclarationError as error:
            yield str(error)


def readings_are_valid(root: Path) -> Iterator[str]:
    """Require that every kernel in reading/ has one answer, and that each checkpoint has as many as it asks for."""
    for path in sorted(root.glob("checks/*/checkpoint.py")):
        yield from reading_is_valid(path.parent.name, root)


def reading_is_valid(phase: str, root: Path) -> Iterator[str]:
    """Require of one phase what `readings_are_valid` requires of all."""
    try:
        checkpoint = registry.load_checkpoint(phase, root)
    except DeclarationError:
        return  # which checkpoints_are_valid tells
    folder = root / "checks" / phase
    try:
        if checkpoint.faults or checkpoint.pictures:
            for problem in _reading_problems(folder / "reading", checkpoint):
                yield f"{(folder / 'checkpoint.py').relative_to(root)}: {problem}"
    except DeclarationError as error:
        yield str(error)


def _reading_problems(folder: Path, checkpoint: Checkpoint) -> Iterator[str]:
    """Yield the problems of the kernels in reading/: too few, or an answer that depends on the order of warps."""
    pool = reading.load_pool(folder)
    if len(pool.faults) < checkpoint.faults:
        yield f"it asks for {checkpoint.faults} faults, and reading/ has {len(pool.faults)}; add kernels with a fault"
    for name, family in pool.families.items():
        if len({kernel.picture for kernel in family}) < reading.CANDIDATES:
            yield f"the kernels {name}_ make fewer than {reading.CANDIDATES} pictures; add some"
    for kernel in (*pool.faults, *(kernel for family in pool.families.values() for kernel in family)):
        # Learners simulate the warps in an order of their choice, so the answer must not depend on it.
        reversed_kernel = reading.run_kernel(kernel.path, reverse=True)
        if (reversed_kernel.kind, reversed_kernel.lines, reversed_kernel.picture) != (
            kernel.kind,
            kernel.lines,
            kernel.picture,
        ):
            yield f"reading/{kernel.path.name} has two answers, by the order of its warps: plant one fault in it"


@for_each_item
def nothing_is_left_to_write(item: ExerciseRef) -> Iterator[str]:
    """Require that no declaration, lesson, answer or reference kernel has a place that waits for its author."""
    places = [*_open_places(item.declaration), *lesson.placeholders(item.lesson)]
    paths = dict.fromkeys((*item.files("solutions"), *item.files("expert")))
    places += [place for path in paths for place in _open_places(path)]
    yield from (f"{Path(place).relative_to(item.root)} is still to be written" for place in places)


def no_cell_is_left_to_write(root: Path) -> Iterator[str]:
    """Require that no notebook has a drafted cell that waits for its author."""
    for path in sorted(root.glob("notebooks/*/week*.ipynb")):
        for position, cell in enumerate(json.loads(path.read_text(encoding="utf-8")).get("cells", ()), start=1):
            if re.search(rf"^{lesson.TODO}:", "".join(cell["source"]), re.MULTILINE):
                yield f"{path.relative_to(root)}, cell {position}, is still to be written"


def _open_places(path: Path) -> Iterator[str]:
    """Yield the first place of a file that is still open."""
    lines = path.read_text(encoding="utf-8").splitlines()
    yield from [f"{path}:{number}" for number, line in enumerate(lines, start=1) if stubs.is_open(line)][:1]


@for_each_item
def controls_are_rejected(item: ExerciseRef) -> Iterator[str]:
    """Require that the comparison accepts the rounded truth, and rejects every negative control."""
    return controls.find_violations(item)


def statement(item: ExerciseRef) -> str:
    """Return the stub's docstring with its line breaks as spaces."""
    docstring = ast.get_docstring(ast.parse(item.stub.read_text(encoding="utf-8"))) or ""
    return " ".join(docstring.split())


@for_each_item
def open_extents_have_thin_cases(item: ExerciseRef) -> Iterator[str]:
    """Require that every extent without a bound has a case beyond any block, with compared values."""
    exercise = registry.load(item)
    if not exercise.is_kernel:
        return
    sizes = {**dict.fromkeys(exercise.vary, BEYOND_A_BLOCK), **exercise.problem.must_reach}
    for extent, size in sizes.items():
        largest = max(case[extent] for case in (*exercise.cases, *exercise.limits))
        if largest < size:
            yield f"{item.name} has no case whose {extent} reaches {size:,}, only {largest:,}; add a thin one to limits"


@for_each_item
def domains_are_drawn_to_both_ends(item: ExerciseRef) -> Iterator[str]:
    """Require that the extreme values of every dtype include both ends of a stated domain."""
    exercise = registry.load(item)
    if not exercise.is_kernel:
        return
    domain = exercise.problem.domain
    if _ANY_FINITE_VALUE in statement(item) and domain != ANY_FINITE:
        yield f"{item.name} states {_ANY_FINITE_VALUE!r}, and its problem has another domain; declare ANY_FINITE"
    if domain is None:
        return
    # Each dtype for itself: float16 has a smaller range than float32, and a problem scales its extreme values to the
    # dtype.
    extremes: dict[torch.dtype, tuple[float, float]] = {}
    for case in exercise.cases:
        for seed in range(_SEEDS):
            x = generate_inputs(exercise, case, derive_seed(seed, "ends"), "cpu", EXTREME)[0]
            values = x[x.isfinite()]
            if not values.numel():
                continue
            lowest, highest = extremes.get(x.dtype, (0.0, 0.0))
            extremes[x.dtype] = min(lowest, float(values.min())), max(highest, float(values.max()))
    for dtype, (lowest, highest) in extremes.items():
        if lowest > _MIN_SHARE_OF_END * domain[0] or highest < _MIN_SHARE_OF_END * domain[1]:
            yield (
                f"{item.name} allows values from {domain[0]:g} to {domain[1]:g}, and in {dtype} its extreme values go "
                f"from {lowest:g} to {highest:g}; draw both ends"
            )


@for_each_item
def limits_are_stated(item: ExerciseRef) -> Iterator[str]:
    """Require that every limit of a declaration is in the statement, with its number."""
    limits = registry.load(item).describe_limits()
    if limits and " ".join(limits.split()) not in statement(item):
        stub = item.stub.relative_to(item.root)
        yield f"the docstring of {stub} lacks this paragraph; add it there and in the solution:\n{limits}"


def tables_are_current(root: Path) -> Iterator[str]:
    """Require that every generated table equals its regeneration."""
    for name in docs.stale(root):
        yield f"a table of {name} differs from its regeneration: kp dev tables"


def figures_are_current(root: Path) -> Iterator[str]:
    """Require that every figure of a text equals the measurement that it names."""
    yield from figures.stale(root)


@for_each_item
def stubs_end_as_not_started(item: ExerciseRef) -> Iterator[str]:
    return _require_verdict(Verdict.NOT_STARTED, grade(item, item.stub, device="cpu"))


@for_each_item
def solutions_pass(item: ExerciseRef) -> Iterator[str]:
    """Require that answers and reference kernels pass on the CPU, and get their stars if there is a suitable GPU.

    A reference kernel gets all stars, and an answer two.
    """
    for submission in dict.fromkeys((item.solution, item.reference)):
        on_cpu = grade(item, submission, device="cpu")
        # `nothing_is_left_to_write` reports a draft. An answer that lacks only its text must pass.
        if on_cpu.verdict is Verdict.NOT_STARTED and any(
            True for path in item.files("solutions") for _ in _open_places(path)
        ):
            return
        yield from _require_verdict(Verdict.PASSED, on_cpu)
        if torch.cuda.is_available():
            on_gpu = grade(item, submission, device="cuda")
            stars = item.stars if submission == item.reference else min(item.stars, STARS_OF_AN_ANSWER)
            if on_gpu.verdict is not Verdict.UNAVAILABLE and on_gpu.stars < stars:
                yield f"{on_gpu.submission} takes {on_gpu.stars} stars on {on_gpu.device}: {on_gpu.cause}"


answers_are_short = for_each_item(answers.answers_are_short)
reference_kernels_do_not_spill = for_each_item(spills.reference_kernels_do_not_spill)


def _require_verdict(expected: Verdict, graded: Report) -> Iterator[str]:
    if graded.verdict is not expected:
        outcome = f"{graded.verdict.value}: {graded.cause or graded.verdict.meaning}"
        yield f"{graded.submission} ends as {outcome}; it must end as {expected.value}"


def notebooks_run(root: Path) -> Iterator[str]:
    """Require that every notebook runs from top to bottom without a GPU, with the solutions."""
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
    answers_are_short,
    notebooks_have_their_exercises,
    declarations_are_valid,
    lessons_are_valid,
    checkpoints_are_valid,
    readings_are_valid,
    nothing_is_left_to_write,
    no_cell_is_left_to_write,
    controls_are_rejected,
    open_extents_have_thin_cases,
    domains_are_drawn_to_both_ends,
    limits_are_stated,
    tables_are_current,
    figures_are_current,
    books.notebooks_have_no_outputs,
    books.answers_are_withheld,
    books.the_book_is_current,
    books.the_glossary_is_in_order,
    phrases.unidiomatic,
)
ALL: tuple[Invariant, ...] = (
    *QUICK,
    stubs_end_as_not_started,
    solutions_pass,
    reference_kernels_do_not_spill,
    notebooks_run,
)
