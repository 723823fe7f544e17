"""Test the lookup of exercises: names, messages, and broken declarations."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kernelpath.course import registry, stubs
from kernelpath.course.errors import DeclarationError, SolutionUnavailable
from kernelpath.course.registry import ExerciseRef, LookupFailed
from kernelpath.verdict import Verdict
from kernelpath.work.exception_findings import classify_exception

LESSON = "".join(f"## Hint {n}\n\na\n\n" for n in (1, 2, 3))
LESSON += "## Question\n\n?\n\nAnswer: 1\n\nWhy: so\n\n## Explanation\n\ndone\n"

STEMS = (
    "2_cuda/w07a_softmax",
    "3_triton/w10a_fused_softmax",
    "1_architecture/w01b_vector_add",
    "2_cuda/w05a_add_one",
    "1_architecture/w12a_roofline",
)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a checkout with declarations that are never imported."""
    (tmp_path / "phases").mkdir()
    for stem in STEMS:
        declaration = ExerciseRef(tmp_path, stem).declaration
        declaration.parent.mkdir(parents=True, exist_ok=True)
        declaration.write_text('"""A title.\n\nMore."""\nEXERCISE = Exercise(baseline=text)\n')
        declaration.with_suffix(".md").write_text(LESSON)
    return tmp_path


def test_exercises_come_in_the_order_of_the_syllabus(checkout: Path) -> None:
    names = [item.name for item in registry.exercises(checkout)]
    assert names == ["vector_add", "add_one", "softmax", "fused_softmax", "roofline"]


@pytest.mark.parametrize(
    ("text", "stem"),
    [
        ("softmax", STEMS[0]),
        ("fused", STEMS[1]),
        ("w01b", STEMS[2]),
        ("w01b_vector_add", STEMS[2]),
        ("w01b_vector_add.cu", STEMS[2]),
        ("2_cuda/w07a_softmax.py", STEMS[0]),
        ("/course/phases/2_cuda/w07a_softmax.cu", STEMS[0]),
        ("VECTOR_ADD", STEMS[2]),
    ],
)
def test_an_exercise_is_found_by_its_name_its_stem_or_an_unambiguous_part(checkout: Path, text: str, stem: str) -> None:
    assert registry.find(text, checkout).path_id == stem


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("add", r"'add' matches 2 exercises: vector_add, add_one; name one of them"),
        ("softmx", r"there is no exercise 'softmx'; did you mean softmax or fused_softmax\?"),
        ("zebra", r"there is no exercise 'zebra'; kp list shows their names"),
        ("", r"there is no exercise ''"),
    ],
)
def test_an_unknown_or_ambiguous_name_gets_a_suggestion(checkout: Path, text: str, message: str) -> None:
    with pytest.raises(LookupFailed, match=message):
        registry.find(text, checkout)


def test_a_checkout_without_exercises_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "checks").mkdir()
    with pytest.raises(LookupFailed, match=r"declares no exercise; restore it with: git checkout -- checks"):
        registry.exercises(tmp_path)


def test_every_path_follows_from_the_stem(checkout: Path) -> None:
    item = registry.find("softmax", checkout)
    assert (item.week, item.phase, item.name) == (7, "2_cuda", "softmax")
    assert item.declaration == checkout / "checks/2_cuda/w07a_softmax.py"
    assert item.lesson == checkout / "checks/2_cuda/w07a_softmax.md"
    assert item.baseline == checkout / "checks/2_cuda/w07a_softmax.cu"
    assert item.stub == checkout / "phases/2_cuda/w07a_softmax.py"
    assert item.solution == checkout / "solutions/2_cuda/w07a_softmax.py"
    assert item.files("phases") == ()
    assert item.notebook is None
    for path in (checkout / "notebooks/2_cuda/week07_reductions.ipynb", item.stub, item.stub.with_suffix(".cu")):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert item.notebook == checkout / "notebooks/2_cuda/week07_reductions.ipynb"
    assert [path.suffix for path in item.files("phases")] == [".cu", ".py"]


@pytest.mark.parametrize(
    ("text", "lane"),
    [("import triton\n", "triton"), ("from cutlass import cute\n", "cute"), ("import torch  # no triton\n", "python")],
)
def test_the_lane_follows_from_the_solution(checkout: Path, text: str, lane: str) -> None:
    item = registry.find("softmax", checkout)
    item.solution.parent.mkdir(parents=True)
    item.solution.write_text(text)
    assert item.lane == lane
    item.solution.with_suffix(".cu").touch()
    assert item.lane == "cuda"


def test_the_lane_follows_from_the_stub_where_solutions_are_withheld(checkout: Path) -> None:
    item = registry.find("softmax", checkout)
    item.stub.parent.mkdir(parents=True, exist_ok=True)
    item.stub.write_text("import triton\n")
    lanes = [item.lane]
    item.stub.with_suffix(".cu").touch()
    lanes.append(item.lane)
    item.solution.parent.mkdir(parents=True)
    item.solution.write_text("import torch\n")
    assert [*lanes, item.lane] == ["triton", "cuda", "python"]


def test_the_reference_kernel_is_the_expert_kernel_if_there_is_one(checkout: Path) -> None:
    item = registry.find("softmax", checkout)
    item.solution.parent.mkdir(parents=True)
    item.solution.touch()
    assert (item.reference, item.has_expert) == (item.solution, False)
    assert item.files("expert") == (item.solution,)
    expert = item.solution.parent / "expert" / item.solution.name
    expert.parent.mkdir()
    expert.touch()
    expert.with_suffix(".cu").touch()
    assert (item.reference, item.has_expert) == (expert, True)
    assert item.files("expert") == (expert.with_suffix(".cu"), expert)
    assert item.files("solutions") == (item.solution,), "an expert kernel does not replace the solution"
    assert stubs.stub_of(item, expert) == stubs.stub_of(item, item.solution) == item.stub


def test_titles_and_stars_are_read_without_importing(checkout: Path) -> None:
    item = registry.find("softmax", checkout)
    assert item.title == "A title"
    assert item.stars == 3
    another_item = registry.find("add_one", checkout)
    another_item.declaration.write_text('"""Another."""\nEXERCISE = Exercise(entry="add_one")\n')
    assert another_item.stars == 1


def test_the_solution_of_another_exercise_is_loaded_when_it_is_called(doubling: ExerciseRef) -> None:
    declaration = doubling.declaration.with_name("w02a_asking.py")
    declaration.write_text("from kernelpath.course.registry import solution_of\nBASELINE = solution_of('double')\n")
    doubling.solution.write_text("def double(x):\n    return 7 * x\n")
    baseline = registry.import_file(declaration, "asking", listed=False).BASELINE
    assert baseline(3) == 21
    expert = doubling.solution.parent / "expert" / doubling.solution.name
    expert.parent.mkdir()
    expert.write_text("def double(x):\n    return 9 * x\n")
    registry._load_solution.cache_clear()
    assert baseline(3) == 27, "a baseline is the reference kernel, whose speed is published"
    shutil.rmtree(expert.parent)
    doubling.solution.unlink()
    registry._load_solution.cache_clear()
    baseline_without_solution = registry.import_file(declaration, "asking", listed=False).BASELINE
    with pytest.raises(
        SolutionUnavailable, match=r"double is withheld: there is no solutions/1_architecture/w01a_double\.py"
    ):
        baseline_without_solution(3)


def test_each_kernel_in_checks_is_used_as_the_baseline_of_its_exercise() -> None:
    launched = {item.name for item in registry.exercises() if item.baseline.name in item.declaration.read_text()}
    assert launched == {item.name for item in registry.exercises() if item.baseline.is_file()}
    assert "matmul_tiled" in launched, "its baseline was the solution of another exercise, which may be withheld"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\n", "declares 0 exercises; it must declare one"),
        ("import no_such_module\n", "cannot be imported: ModuleNotFoundError: No module named 'no_such_module'"),
        ("def broken(:\n", "cannot be imported: SyntaxError"),
        ("from kernelpath.course.problem import Tolerance\nTolerance(2, 0)\n", r"w07a_softmax\.py: tolerance: rtol"),
    ],
)
def test_a_broken_declaration_is_reported_with_its_file(checkout: Path, text: str, message: str) -> None:
    item = registry.find("softmax", checkout)
    item.declaration.write_text(text)
    with pytest.raises(DeclarationError, match=message) as raised:
        registry.load(item)
    assert str(item.declaration) in str(raised.value)


@pytest.mark.parametrize(("text", "message"), [("def broken(:\n", "cannot be read"), ("x = 1\n", "has no docstring")])
def test_a_title_that_cannot_be_read_is_reported_with_its_file(checkout: Path, text: str, message: str) -> None:
    item = registry.find("softmax", checkout)
    item.declaration.write_text(text)
    with pytest.raises(DeclarationError, match=message):
        _ = item.title


def test_a_malformed_path_id_is_refused() -> None:
    with pytest.raises(DeclarationError, match=r"is not named like w07a_softmax\.py"):
        _ = ExerciseRef(Path(), "2_cuda/softmax").name


def test_listing_imports_neither_torch_nor_a_declaration(checkout: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from kernelpath.course import lesson, registry\n"
        f"[(item.title, lesson.read(item.lesson).hints) for item in registry.exercises(Path({str(checkout)!r}))]\n"
        "print('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "False"


def test_a_withheld_baseline_is_reported_as_unavailable() -> None:
    assert classify_exception(SolutionUnavailable("withheld"), Path("w07a_softmax.py")).verdict is Verdict.UNAVAILABLE
