"""Test that each invariant reports its violation, and nothing in a valid checkout."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from kernelpath.course import inputs, registry, stubs
from kernelpath.course.problem import Case
from kernelpath.course.registry import ExerciseRef
from kernelpath.course.spec import Exercise
from kernelpath.dev import answers, controls, invariants
from kernelpath.dev.invariants import Invariant

SOLUTION = "import torch\n\n\ndef double(x):\n    y = 2 * x\n    return y\n"
STUB = "import torch\n\n\ndef double(x):\n    # TODO: y is twice x\n    raise NotImplementedError\n    return y\n"


@pytest.fixture
def course(doubling: ExerciseRef) -> Path:
    """Return a checkout that keeps every invariant."""
    doubling.stub.write_text(STUB)
    doubling.solution.write_text(SOLUTION)
    notebook = doubling.root / "notebooks" / "1_architecture" / "week01_threads.ipynb"
    notebook.parent.mkdir(parents=True)
    notebook.write_text(json.dumps(make_notebook("name = 'double'")))
    return doubling.root


def make_notebook(code: str) -> dict[str, Any]:
    cell: dict[str, Any] = {
        "cell_type": "code",
        "id": "a",
        "source": code,
        "metadata": {},
        "outputs": [],
        "execution_count": None,
    }
    kernel = {"name": "python3", "display_name": "Python 3"}
    return {"cells": [cell], "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}


def findings(invariant: Invariant, root: Path) -> list[str]:
    registry.load.cache_clear()
    return list(invariant(root))


@pytest.mark.parametrize("invariant", invariants.ALL, ids=lambda invariant: invariant.__name__)
def test_a_valid_course_has_no_findings(course: Path, invariant: Invariant) -> None:
    assert findings(invariant, course) == []


# test_exercises checks the wrong answers of each exercise, and test_exam_declared the readings of each phase.
ELSEWHERE = (invariants.controls_are_rejected, invariants.readings_are_valid)
QUICK = [invariant for invariant in invariants.QUICK if invariant not in ELSEWHERE]


@pytest.mark.parametrize("invariant", QUICK, ids=lambda invariant: invariant.__name__)
def test_this_course_has_no_findings(invariant: Invariant) -> None:
    assert findings(invariant, Path(__file__).parents[1]) == []


def test_a_course_without_exercises_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "checks").mkdir()
    with pytest.raises(registry.LookupFailed, match="declares no exercise"):
        findings(invariants.trees_agree, tmp_path)


def test_a_duplicate_name_is_found(course: Path) -> None:
    declaration = course / "checks" / "1_architecture" / "w01a_double.py"
    for stem in ("w02a_double", "w01a_other"):
        declaration.with_name(f"{stem}.py").write_text(declaration.read_text())
    assert findings(invariants.names_are_unique, course) == [
        "2 exercises have the name double; rename all but one",
        "2 exercises have the place w01a; rename all but one",
    ]


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("phases/1_architecture/w01a_double.py", "1_architecture/w01a_double has nothing in phases/"),
        ("solutions/1_architecture/w01a_double.py", "1_architecture/w01a_double has no solutions/"),
    ],
)
def test_a_missing_file_is_found(course: Path, path: str, message: str) -> None:
    (course / path).unlink()
    assert findings(invariants.trees_agree, course)[0].startswith(message)


@pytest.mark.parametrize(
    "stray",
    [
        "phases/1_architecture/notes.txt",
        "solutions/1_architecture/w01a_double.cpp",
        "solutions/1_architecture/expert/w01a_treble.py",
        "solutions/1_architecture/steps/w01a_treble/1_naive.py",
        "solutions/1_architecture/steps/w01a_double/naive.py",
        "phases/1_architecture/expert/w01a_double.py",
        "checks/1_architecture/w01a_double.cu",
        "checks/1_architecture/w01a_treble.md",
        "checks/1_architecture/notes.md",
        "checks/helpers.py",
        "notebooks/1_architecture/week1.ipynb",
        "notebooks/week01_threads.ipynb",
    ],
)
def test_a_stray_file_is_found(course: Path, stray: str) -> None:
    (course / stray).parent.mkdir(parents=True, exist_ok=True)
    (course / stray).write_text("")
    assert findings(invariants.trees_agree, course) == [f"{stray} belongs to no exercise; rename or remove it"]


def test_a_kernel_of_the_declaration_is_not_a_stray_file(course: Path) -> None:
    declaration = course / "checks/1_architecture/w01a_double.py"
    declaration.with_suffix(".cu").write_text("")
    assert len(findings(invariants.trees_agree, course)) == 1
    declaration.write_text(declaration.read_text() + 'KERNEL = "w01a_double.cu"\n')
    assert findings(invariants.trees_agree, course) == []


def test_the_steps_of_a_ladder_are_not_stray_files(course: Path) -> None:
    ladder = course / "solutions/1_architecture/steps/w01a_double"
    ladder.mkdir(parents=True)
    for name in ("1_naive.cu", "2_tile.cu", "launch.py"):
        (ladder / name).write_text("")
    assert findings(invariants.trees_agree, course) == []


def test_an_expert_kernel_has_the_files_of_the_answer(course: Path) -> None:
    expert = course / "solutions/1_architecture/expert/w01a_double.py"
    expert.parent.mkdir()
    expert.write_text(SOLUTION)
    assert findings(invariants.trees_agree, course) == []
    expert.with_suffix(".cu").write_text("")
    assert findings(invariants.trees_agree, course) == [
        "solutions/1_architecture/expert/w01a_double.py has other files than the answer; make them alike"
    ]


def make_kernel(lines: int) -> str:
    """Return a Triton kernel with this number of lines of code, and with a docstring and comments."""
    body = "".join(f"    y = x * {line}  # a comment beside code\n    # a comment\n\n" for line in range(lines - 2))
    docstring = '    """Return nothing.\n\n    Rarely.\n    """\n'
    return f"import triton\n\n\n@triton.jit\ndef kernel(x):\n{docstring}{body}    y = 0\n"


def test_a_long_answer_is_found(course: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = course / "solutions/1_architecture/w01a_double.py"
    answer.write_text(make_kernel(60))
    assert findings(invariants.answers_are_short, course) == []
    answer.write_text(make_kernel(62))
    (finding,) = findings(invariants.answers_are_short, course)
    assert finding.startswith(
        "the kernels of solutions/1_architecture/w01a_double.py have 62 lines of code, over 60; move"
    )
    monkeypatch.setitem(answers.LONG_ANSWERS, "double", 62)
    assert findings(invariants.answers_are_short, course) == []
    answer.write_text(make_kernel(61))
    assert findings(invariants.answers_are_short, course)[0].endswith("write 61 in LONG_ANSWERS of dev/answers.py")
    answer.write_text(make_kernel(60))
    assert findings(invariants.answers_are_short, course)[0].endswith(
        "remove its entry in LONG_ANSWERS of dev/answers.py"
    )


def test_an_expert_kernel_that_could_be_the_answer_is_found(course: Path) -> None:
    expert = course / "solutions/1_architecture/expert/w01a_double.py"
    expert.parent.mkdir()
    (course / "solutions/1_architecture/w01a_double.py").write_text(make_kernel(20))
    expert.write_text(make_kernel(21))
    assert findings(invariants.answers_are_short, course) == []
    expert.write_text(make_kernel(20))
    assert findings(invariants.answers_are_short, course) == [
        "solutions/1_architecture/expert/w01a_double.py is no longer than solutions/1_architecture/w01a_double.py; "
        "make it the answer"
    ]


def test_lines_of_cuda_are_counted_without_comments(tmp_path: Path) -> None:
    item = ExerciseRef(tmp_path, "1_architecture/w01a_double")
    item.solution.parent.mkdir(parents=True)
    item.solution.write_text("def double(x):\n    return x\n")
    item.solution.with_suffix(".cu").write_text("// a comment\n\n/* two\n lines */ int x;\n__global__ void k() {\n}\n")
    assert answers.count_kernel_lines(item, "solutions") == 3


def test_drift_names_the_line(course: Path) -> None:
    (course / "phases/1_architecture/w01a_double.py").write_text(STUB.replace("return y", "return z"))
    assert findings(invariants.stubs_do_not_drift, course) == [
        "phases/1_architecture/w01a_double.py:7 is not in the solution: return z"
    ]


def test_a_notebook_without_the_exercise_is_found(course: Path) -> None:
    notebook = course / "notebooks/1_architecture/week01_threads.ipynb"
    notebook.write_text("{}")
    assert findings(invariants.notebooks_have_their_exercises, course) == [
        "notebooks/1_architecture/week01_threads.ipynb does not mention double; introduce it there"
    ]
    notebook.unlink()
    assert "week 1 has no notebook" in findings(invariants.notebooks_have_their_exercises, course)[0]


def test_a_broken_declaration_is_found(course: Path) -> None:
    declaration = course / "checks/1_architecture/w01a_double.py"
    declaration.write_text(declaration.read_text().replace('entry="double"', 'entry="twice x"'))
    assert "entry: 'twice x' is not the name" in findings(invariants.declarations_are_valid, course)[0]


def test_a_broken_lesson_is_found(course: Path) -> None:
    lesson = course / "checks/1_architecture/w01a_double.md"
    lesson.write_text(lesson.read_text().replace("## Hint 3\n\nc\n", ""))
    assert "it has 2 hints; write three" in findings(invariants.lessons_are_valid, course)[0]
    lesson.unlink()
    assert findings(invariants.trees_agree, course) == [
        "1_architecture/w01a_double has no checks/1_architecture/w01a_double.md; write it: course/lesson.py says how"
    ]


def test_a_loose_tolerance_admits_the_next_lower_precision(course: Path) -> None:
    assert find_control_findings(course, ("Tolerance(1e-6, 0.0)", "Tolerance(1e-2, 0.0)")) == [
        "double: the next lower precision passes on every case; tighten the tolerance or add a case"
    ]


# Changes that turn the fixture's declaration into a complete declaration of a kernel.
KERNEL = (
    ('kind="python"', 'kind="kernel"'),
    (
        "import torch\n",
        "import torch\nfrom kernelpath.course import draw\nfrom kernelpath.course.problem import EXACT\n",
    ),
    ('cases=({"n": 1}, {"n": 1000}),', 'cases=({"n": 1}, {"n": 16}, {"n": 1000}), limits=({"n": 65_537},),'),
    ("Tolerance(1e-6, 1e-6)", "Tolerance(1e-6, 0.0)"),
    (
        "    vary",
        "    extreme=draw.any_bits_,\n"
        '    faults={"denormals flushed": lambda x: 2 * draw.flush_denormals(x).double()},\n    vary',
    ),
)

# Further changes that turn the kernel's declaration into one that only moves values.
DATA_MOVEMENT = (
    ("2 * x.double()", "x.flip(0)"),
    ("Tolerance(1e-6, 0.0)", "EXACT"),
    ("    extreme=draw.any_bits_,\n", ""),
    ('    faults={"denormals flushed": lambda x: 2 * draw.flush_denormals(x).double()},\n', ""),
)


def find_control_findings(course: Path, *changes: tuple[str, str]) -> list[str]:
    """Apply these changes to the declaration of a kernel and return the findings about its controls."""
    declaration = course / "checks/1_architecture/w01a_double.py"
    text = declaration.read_text()
    for old, new in (*KERNEL, *changes):
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    declaration.write_text(text)
    return findings(invariants.controls_are_rejected, course)


def test_a_kernel_with_all_kinds_of_inputs_has_no_findings(course: Path) -> None:
    assert find_control_findings(course) == []


def test_a_data_movement_kernel_needs_no_extremes(course: Path) -> None:
    assert find_control_findings(course, *DATA_MOVEMENT) == []


INCOMPLETE_DECLARATIONS = {
    "no extreme values": (
        (("    extreme=draw.any_bits_,\n", ""), DATA_MOVEMENT[-1]),
        [": no extreme values; declare the problem's extreme, and its faults that show with them alone"],
    ),
    "extremes that show nothing": (
        (("extreme=draw.any_bits_", "extreme=lambda rng, x: None"),),
        [": the fault 'denormals flushed' passes on every case; give the problem's extreme the values that show it"],
    ),
    "no size past 65,535": (
        ((' limits=({"n": 65_537},),', ""),),
        [": what is right up to 65,535 rows passes; add a thin case with more to the problem's limits"],
    ),
    "a sum of no more than 65,535": (
        (
            ("2 * x.double()", "x.double().sum().reshape(1)"),
            (' limits=({"n": 65_537},),', ""),
            ("2 * draw.flush_denormals(x).double()", "x.double().nan_to_num().sum().reshape(1)"),
        ),
        [": what is right up to 65,535 rows passes; add a thin case with more to the problem's limits"],
    ),
    "no case for vectors": (
        (('{"n": 16}', '{"n": 17}'),),
        [": no small case allows 16-byte accesses; add one whose rows are a multiple of 16 bytes"],
    ),
    "no small case": (
        (('{"n": 1}, {"n": 16}, {"n": 1000}', '{"n": 1000},'),),
        [
            ": no small case allows 16-byte accesses; add one whose rows are a multiple of 16 bytes",
            ": tensor 0 may be assumed to be aligned; add a small case, at most a quarter of the largest",
        ],
    ),
    "bits that nobody draws": (
        (*DATA_MOVEMENT[:2], ("extreme=draw.any_bits_", "extreme=lambda rng, x: None"), DATA_MOVEMENT[-1]),
        [
            f": {name} passes on every case; give the inputs draw.any_bits_ in the problem's extreme"
            for name in controls.LOSSES
        ],
    ),
    "an index that never repeats": (
        (
            (
                "    return (torch.randn(n, generator=rng, device=rng.device) + 1,)",
                "    return torch.rand(n, generator=rng), torch.randperm(n, generator=rng)",
            ),
            ("lambda x: 2 * x.double()", "lambda x, i: x[i]"),
            DATA_MOVEMENT[1],
            DATA_MOVEMENT[2],
            DATA_MOVEMENT[3],
        ),
        [": tensor 1 of integers repeats no value; repeat some in the problem's extreme"],
    ),
}


@pytest.mark.parametrize(("changes", "messages"), INCOMPLETE_DECLARATIONS.values(), ids=INCOMPLETE_DECLARATIONS)
def test_missing_kinds_of_inputs_are_named(
    course: Path, changes: tuple[tuple[str, str], ...], messages: list[str]
) -> None:
    assert find_control_findings(course, *changes) == [f"double{message}" for message in messages]


def test_a_case_that_exceeds_the_memory_limit_is_not_generated(course: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    generated: list[Any] = []

    def generate_inputs(exercise: Exercise, case: Case, *arguments: Any) -> Any:
        generated.append(case["n"])
        return inputs.generate_inputs(exercise, case, *arguments)

    monkeypatch.setattr(controls, "generate_inputs", generate_inputs)
    monkeypatch.setattr(controls, "MAX_CASE_BYTES", 8 * 65_537)
    assert find_control_findings(course) == []
    assert 65_537 in generated
    generated.clear()
    monkeypatch.setattr(controls, "MAX_CASE_BYTES", 8 * 65_537 - 1)
    registry.load.cache_clear()
    (message,) = invariants.controls_are_rejected(course)
    assert message.startswith("double {'n': 65537}: 0.00 GiB of inputs and outputs, at most 0.00 GiB")
    assert 65_537 not in generated


NO_PARAGRAPH = (
    "the docstring of phases/1_architecture/w01a_double.py lacks this paragraph; add it there and in the solution:"
)
STATEMENTS: dict[str, tuple[Invariant, tuple[tuple[str, str], ...], str, list[str]]] = {
    "no thin case": (
        invariants.open_extents_have_thin_cases,
        ((' limits=({"n": 65_537},),', ""),),
        "",
        ["double has no case whose n reaches 65,536, only 1,000; add a thin one to limits"],
    ),
    "a limit that is stated": (
        invariants.open_extents_have_thin_cases,
        ((' limits=({"n": 65_537},),', ' must_reach={"n": 1000},'),),
        "",
        [],
    ),
    "a domain that is not declared": (
        invariants.domains_are_drawn_to_both_ends,
        (),
        "double(x) takes finite values of\nany size.",
        ["double states 'finite values of any size', and its problem has another domain; declare ANY_FINITE"],
    ),
    "one end that is not drawn": (
        invariants.domains_are_drawn_to_both_ends,
        (("extreme=draw.any_bits_", "domain=(-2.99e38, 2.99e38), extreme=lambda rng, x: x.fill_(3e38)"),),
        "double(x) takes finite values of any size.",
        [
            "double allows values from -2.99e+38 to 2.99e+38, and in torch.float32 its extreme values go from 0 to "
            "3e+38; draw both ends"
        ],
    ),
    "limits without a word": (
        invariants.limits_are_stated,
        (('entry="double"', 'entry="double", launches=1'),),
        "double(x) returns 2 * x.",
        [
            f"{NO_PARAGRAPH}\nThe grader enforces this limit on the largest case (n=1000); smaller cases get some slack"
            " for partial tiles. A call may\nlaunch at most 1 kernel."
        ],
    ),
    "limits that are stated": (
        invariants.limits_are_stated,
        (('entry="double"', 'entry="double", launches=1'),),
        "The grader enforces this limit on the largest case (n=1000); smaller cases get\nsome slack for partial tiles."
        " A call may launch at most 1 kernel.",
        [],
    ),
}


@pytest.mark.parametrize(("invariant", "changes", "statement", "messages"), STATEMENTS.values(), ids=STATEMENTS)
def test_a_mismatch_of_statement_and_declaration_is_found(
    course: Path, invariant: Invariant, changes: tuple[tuple[str, str], ...], statement: str, messages: list[str]
) -> None:
    find_control_findings(course, *changes)
    stub = course / "phases/1_architecture/w01a_double.py"
    stub.write_text(f'"""{statement}"""\n{STUB}')
    assert findings(invariant, course) == messages


def test_a_tolerance_below_the_rounding_of_the_output_is_found(course: Path) -> None:
    declaration = course / "checks/1_architecture/w01a_double.py"
    broken = declaration.read_text().replace("2 * x.double()", "x.double() / 3").replace("1e-6, 1e-6", "1e-9, 0.0")
    declaration.write_text(broken)
    assert "the rounded truth is rejected" in findings(invariants.controls_are_rejected, course)[0]


def test_constant_inputs_admit_the_first_output(course: Path) -> None:
    declaration = course / "checks/1_architecture/w01a_double.py"
    declaration.write_text(declaration.read_text().replace("generator=rng", "generator=rng.manual_seed(0)"))
    assert (
        findings(invariants.controls_are_rejected, course) == []
    )  # with constant inputs, the first output is correct for every call


def test_the_lower_precision_keeps_exponents_and_drops_bits() -> None:
    values = torch.tensor([1.0 + 2**-10, 1.0 + 2**-12, -3e30, 0.0, float("inf")])
    lowered = controls.lower_precision(values)
    assert lowered[0] == 1.0 + 2**-10
    assert lowered[1] == 1.0
    assert torch.allclose(lowered[2], values[2], rtol=2**-11)
    assert lowered[3:].tolist() == [0.0, float("inf")]
    assert controls.lower_precision(torch.arange(3)).tolist() == [0, 1, 2]


def test_a_stub_that_passes_and_a_solution_that_fails_are_found(course: Path) -> None:
    (course / "phases/1_architecture/w01a_double.py").write_text(SOLUTION)
    (course / "solutions/1_architecture/w01a_double.py").write_text(SOLUTION.replace("2", "3"))
    assert findings(invariants.stubs_end_as_not_started, course) == [
        "phases/1_architecture/w01a_double.py ends as PASSED: right on every case and within its limits;"
        " it must end as NOT_STARTED"
    ]
    assert "ends as WRONG_VALUES" in findings(invariants.solutions_pass, course)[0]


def test_a_wrong_solution_with_an_unwritten_docstring_is_found(course: Path) -> None:
    solution = course / "solutions/1_architecture/w01a_double.py"
    solution.write_text('"""TODO: what is learned."""\n' + SOLUTION.replace("2", "3"))
    assert "ends as WRONG_VALUES" in findings(invariants.solutions_pass, course)[0]


def test_an_expert_kernel_that_fails_is_found(course: Path) -> None:
    expert = course / "solutions/1_architecture/expert/w01a_double.py"
    expert.parent.mkdir()
    expert.write_text(SOLUTION.replace("2", "3"))
    (finding,) = findings(invariants.solutions_pass, course)
    assert finding.startswith("solutions/1_architecture/expert/w01a_double.py ends as WRONG_VALUES")


def test_a_notebook_that_stops_is_found(course: Path) -> None:
    notebook = course / "notebooks/1_architecture/week01_threads.ipynb"
    notebook.write_text(json.dumps(make_notebook("1 / 0")))
    assert findings(invariants.notebooks_run, course) == [
        "notebooks/1_architecture/week01_threads.ipynb: ZeroDivisionError: division by zero"
    ]


def test_a_stale_table_is_found(course: Path) -> None:
    (course / "README.md").write_text("<!-- table: syllabus -->\nold\n<!-- end -->\n")
    assert findings(invariants.tables_are_current, course) == [
        "a table of README.md differs from its regeneration: kp dev tables"
    ]


@pytest.mark.parametrize(
    ("stub", "drifted"),
    [
        ("a\nb\n", []),
        ("a\n# TODO: more\nb\n", []),
        ("a\n    raise NotImplementedError\n", []),
        ("b\n\na\n", []),
        ("a\na\n", [(2, "a")]),
        ("  a\n", [(1, "  a")]),
        ("c\n", [(1, "c")]),
    ],
)
def test_drift_is_each_line_that_the_solution_lacks(stub: str, drifted: list[tuple[int, str]]) -> None:
    assert stubs.drift(stub, "a\nx\nb\n") == drifted


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("__global__ void k(int* x,\n    int n) {\n    // TODO: }\n}\n", 2),
        ("__global__ void k(int* x) { /* a\n} */ }\n", 1),
        ("__global__ void k(int* x) {\n    const int n = blockDim.x;\n}\n", 1),
        ("__global__ void k(int* x) {\n    const int n = blockDim.x;\n    x[n] = 1;\n}\n", 0),
        ("__device__ void f() {}\n__global__ void k(int* x) { f(); }\n", 0),
        ("__global__ void k(int* x);\nstruct Empty {};\n", 0),
        ("__global__ void a(int* x) { *x = 1; }\n__global__ void b(int* x) {}\n", 2),
    ],
)
def test_a_kernel_without_a_body_is_found(source: str, line: int) -> None:
    assert stubs.empty_kernel(source) == line


@pytest.mark.parametrize(
    "source",
    [
        "__global__ void k() {" + "/**/" * 500_000 + "x",
        "__global__ void k() {" + "/" * 2_000_000,
        "/*" * 1_000_000,
        "__global__ " * 400_000,
        "__global__ {" * 400_000,
        "__global__ void k() {" + "const " * 400_000,
        "__global__ void k() {" + "const a;" * 300_000 + "x}",
    ],
    ids=["comments", "slashes", "unclosed", "kernels", "bodies", "constant", "constants"],
)
def test_a_hostile_source_is_read_in_linear_time(source: str) -> None:
    """Parsing takes milliseconds; a parser with quadratic time would exceed pytest's timeout."""
    assert stubs.empty_kernel(source) == 0


def test_stubs_have_empty_kernels_and_solutions_do_not() -> None:
    for tree, empty in (("phases", True), ("solutions", False)):
        sources = {path.name: path.read_text() for path in registry.root().glob(f"{tree}/*/*.cu")}
        assert len(sources) >= 8
        # These exercises start from a complete kernel to launch, improve, or repair, or write no kernel of their own.
        complete_kernels = [
            "w01d_host_program.cu",
            "w07d_ptx.cu",
            "w08b_sgemm_async.cu",
            "w24d_cutlass_epilogue.cu",
            *(name for name in sources if "_repair_" in name),
        ]
        for name in complete_kernels:
            assert not stubs.empty_kernel(sources.pop(name))
        assert {bool(stubs.empty_kernel(source)) for source in sources.values()} == {empty}
