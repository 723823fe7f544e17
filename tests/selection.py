"""Select tests: each test file belongs to one class, and its tests run in one process or in groups.

`make quick` and the workflow's job for unit tests run the class `unit`, the shards of the workflow run all other
classes, and `make test` runs everything. The classes are also markers: pytest -m gradings.

Tests with the mark `weekly` run only in `make weekly`. `make changed SINCE=main` runs the weekly tests that concern a
difference from the branch `main`: an exercise or a week, or the subject of a test file.
"""

from __future__ import annotations

import re
import subprocess
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

CLASSES = ("notebooks", "gradings", "unit")

# Test files that run notebooks.
NOTEBOOKS = frozenset({"test_notebook_runs.py"})

# The notebooks that every run executes: a short one in Triton and a short one in CuTe. The others are executed weekly.
SENTINEL_NOTEBOOKS = frozenset({"week02_memory", "week17_layouts"})

# The exercises whose stub, answer, and negative controls every run grades: one of each lane and kind, and of each
# architecture that kernels are graded for. The others are graded weekly.
SENTINEL_EXERCISES = frozenset(
    {
        "w01b_vector_add",
        "w01d_host_program",
        "w03a_benchmark",
        "w03d_occupancy",
        "w05b_profile",
        "w07c_custom_operator",
        "w09c_autotune",
        "w10a_fused_softmax",
        "w11e_quantize",
        "w16b_all_reduce",
        "w16d_kernel_library",
        "w16f_repair_flags",
        "w17a_layout",
        "w18a_vector_copy",
        "w21a_tma_copy",
        "w21c_repair_barriers",
        "w22e_change_gemm",
        "w24b_portability",
        "w24e_upstream",
        "w26b_dependent_launch",
        "w31b_nvfp4_gemm",
    }
)

# The phases whose kernels to be read every run compiles: one in CUDA C++ and one in Triton. The others are compiled
# weekly.
SENTINEL_READINGS = frozenset({"1_architecture", "4_fusion"})

# The seconds of planted submissions by name, and their means by exercise, as tests.suite_costs writes them. They only
# have to be right in relation to each other.
SECONDS = Path(__file__).with_name("submission_seconds.json")

# The seconds of groups of tests, as tests.suite_costs writes them: the largest groups run first.
GROUP_SECONDS = Path(__file__).with_name("group_seconds.json")

# Files that grade submissions to the course's exercises, or compile so many kernels that they take more than 10 s.
GRADINGS = frozenset(
    {
        "test_cards.py",
        "test_concurrent.py",
        "test_distributed.py",
        "test_direct.py",
        "test_divergence.py",
        "test_doctor.py",
        "test_empty_products.py",
        "test_exam_delivered.py",
        "test_exercises.py",
        "test_fused_twists.py",
        "test_gradescope.py",
        "test_hardware.py",
        "test_hooks.py",
        "test_hopper_spills.py",
        "test_hopper_twists.py",
        "test_host_program.py",
        "test_hostile_class.py",
        "test_in_place.py",
        "test_inductor.py",
        "test_instructions.py",
        "test_labs.py",
        "test_ladders.py",
        "test_large_offsets.py",
        "test_library.py",
        "test_operator_twists.py",
        "test_package.py",
        "test_pallas.py",
        "test_placement.py",
        "test_pytest_plugin.py",
        "test_rejects.py",
        "test_repair.py",
        "test_roofline_exercise.py",
        "test_selftest.py",
        "test_side_by_side.py",
        "test_similarity.py",
        "test_spills.py",
        "test_target.py",
        "test_tensor_memory.py",
        "test_tensor_parallel.py",
        "test_triton.py",
        "test_twins.py",
        "test_twists.py",
        "test_wheel.py",
        "test_workflow.py",
    }
)

# Test files that run weekly, because only a change of their subject is likely to break them, and other tests of every
# run cover the subject in part. A subject is a list of paths in the checkout, or of prefixes of paths.
_ROOT = Path(__file__).parents[1]
_MACHINE = "warpcheck/src/warpcheck/"
_RUNTIME = f"{_MACHINE}runtime/"
_FRONTENDS = f"{_MACHINE}frontends/"
_GRADING = "src/kernelpath/grading/"
_SCHOOL = "src/kernelpath/school/"
_WORK = "src/kernelpath/work/"
WEEKLY: Mapping[str, tuple[str, ...]] = {
    "tests/test_blackwell_recorder.py": ("benchmarks/blackwell.py",),
    "tests/test_cards.py": ("src/kernelpath/dev/cards.py", "results/cards.json"),
    "tests/test_class_exam.py": ("src/kernelpath/exam/", _SCHOOL),
    "tests/test_classroom.py": (_SCHOOL, "src/kernelpath/cli/grade.py"),
    "tests/test_concurrent.py": (_GRADING, _WORK),
    "tests/test_doctor.py": ("src/kernelpath/doctor.py", "src/kernelpath/packages.py"),
    "tests/test_empty_products.py": ("src/kernelpath/course/problems/",),
    "tests/test_exam_delivered.py": ("src/kernelpath/exam/",),
    "tests/test_fused_twists.py": (_GRADING, "checks/4_fusion/"),
    "tests/test_gradescope.py": ("src/kernelpath/dev/gradescope.py", _SCHOOL),
    "tests/test_hooks.py": (_WORK, "src/kernelpath/packages.py", _FRONTENDS),
    "tests/test_hopper_spills.py": ("solutions/5_cute/", _FRONTENDS),
    "tests/test_hopper_twists.py": (_GRADING, "checks/5_cute/"),
    "tests/test_hostile_class.py": (_SCHOOL, "src/kernelpath/cli/grade.py", f"{_GRADING}pool.py"),
    "tests/test_ladders.py": ("solutions/",),
    "tests/test_large_offsets.py": ("src/kernelpath/device/", "src/kernelpath/course/problems/", _GRADING),
    "tests/test_operator_twists.py": (_GRADING, "checks/2_cuda/"),
    "tests/test_package.py": (f"{_WORK}package.py", f"{_WORK}own_tests.py"),
    "tests/test_pallas.py": (f"{_WORK}pallas.py", f"{_WORK}worker.py"),
    "tests/test_repair.py": ("checks/", f"{_GRADING}graders/"),
    "tests/test_side_by_side.py": (f"{_GRADING}pool.py", "src/kernelpath/cli/"),
    "tests/test_similarity.py": (f"{_SCHOOL}similarity.py", f"{_SCHOOL}cluster.py"),
    "tests/test_target.py": (f"{_GRADING}devices.py", f"{_MACHINE}target.py"),
    "tests/test_tensor_parallel.py": ("benchmarks/tensor_parallel.py",),
    "tests/test_tile_languages.py": ("src/kernelpath/show/tile_compilers.py",),
    "tests/test_torchrun.py": ("src/kernelpath/course/", "solutions/4_fusion/"),
    "tests/test_traces.py": ("src/kernelpath/course/traces/", _WORK),
    "tests/test_twins.py": (_GRADING, "src/kernelpath/device/"),
    "tests/test_twists.py": (_GRADING, "checks/1_architecture/"),
    "tests/test_wheel.py": (
        "pyproject.toml",
        "setup.py",
        "warpcheck/pyproject.toml",
        "src/kernelpath/course/places.py",
    ),
    "tests/test_workflow.py": ("src/kernelpath/dev/workflow.py", _SCHOOL),
    "warpcheck/tests/machine/test_blackwell_mutants.py": (_RUNTIME, f"{_MACHINE}isa/", f"{_MACHINE}lower/"),
    "warpcheck/tests/machine/test_block_workers.py": (_RUNTIME, f"{_MACHINE}threads.py"),
    "warpcheck/tests/machine/test_hardware.py": (_RUNTIME, f"{_MACHINE}isa/", "results/"),
    "warpcheck/tests/machine/test_hopper_mutants.py": (_RUNTIME, f"{_MACHINE}isa/", f"{_MACHINE}lower/"),
    "warpcheck/tests/machine/test_im2col.py": (_RUNTIME, f"{_MACHINE}tensor_map.py"),
    "warpcheck/tests/machine/test_library.py": (_FRONTENDS, f"{_MACHINE}lower/"),
    "warpcheck/tests/test_faults_page.py": ("warpcheck/docs/", _RUNTIME),
    "warpcheck/tests/test_host_program.py": (f"{_FRONTENDS}host_program", f"{_FRONTENDS}cuda_runtime"),
    "warpcheck/tests/test_pytest_plugin.py": (f"{_MACHINE}pytest_", f"{_MACHINE}findings.py", f"{_MACHINE}report.py"),
    "warpcheck/tests/test_readme.py": ("warpcheck/README.md", f"{_MACHINE}cli.py"),
}

# The subjects of these files, and of other files with tests that run weekly.
_READINGS = tuple(f"checks/{phase}/reading/" for phase in ("2_cuda", "3_triton", "5_cute"))
SUBJECTS = {**WEEKLY, "tests/test_exam_declared.py": ("src/kernelpath/exam/", *_READINGS)}

_ID = re.compile(r"\[(?:(?P<exercise>w\d+[a-z]_\w+)/|(?P<whole>.+)\]$)")

# Test files whose tests share compiled code only if they have the same parameter.
GROUPED_BY_ID = frozenset({"test_notebook_runs.py", "test_exercises.py"})


def class_of(path: Path) -> str:
    """Return the class of a file of tests."""
    if path.name in NOTEBOOKS:
        return "notebooks"
    return "gradings" if path.name in GRADINGS else "unit"


def group_of(path: Path, name: str) -> str:
    """Return the group of a test, which runs in one process: there its tests share what compilers made.

    A group is a file; of submissions to exercises, those to one exercise; of files in GROUPED_BY_ID, the tests with one
    parameter. name: of the test, with its parameters in brackets.
    """
    match = _ID.search(name)
    exercise = match["exercise"] if match else ""
    parameter = match["whole"] if match and path.name in GROUPED_BY_ID else ""
    folder = "" if path.parent.name == "tests" else f"{path.parent.name}/"
    return f"{folder}{path.name} {exercise or parameter or ''}".strip()


def changed_paths(root: Path, revision: str) -> list[str]:
    """Return the files of the checkout that differ from a Git revision.

    Files that are not tracked yet count, ignored files do not. Raises subprocess.CalledProcessError if Git does not
    know the revision.
    """
    commands = (["diff", "--name-only", revision], ["ls-files", "--others", "--exclude-standard"])
    return [
        path
        for command in commands
        for path in subprocess.run(
            ["git", "-C", str(root), *command], capture_output=True, text=True, check=True
        ).stdout.splitlines()
    ]


def is_weekly(path: Path) -> bool:
    """Return whether the tests of a file run weekly."""
    return _relative(path) in WEEKLY


def concerns(path: Path, name: str, changed: Sequence[str]) -> bool:
    """Return whether a test concerns what has changed.

    A test of an exercise or a notebook, which its name has, concerns their week; other tests concern the subject of
    their file.

    Args:
        path: The file of tests.
        name: The name of the test, with its parameters in brackets.
        changed: The paths that have changed, relative to the checkout.
    """
    if match := _WEEK.search(name):
        return match[1] in _WEEK.findall(" ".join(changed))
    file = _relative(path)
    return any(changed_path.startswith((file, *SUBJECTS.get(file, ()))) for changed_path in changed)


def _relative(path: Path) -> str:
    return path.relative_to(_ROOT).as_posix() if path.is_relative_to(_ROOT) else path.as_posix()


_WEEK = re.compile(r"\bw(?:eek)?(\d\d)(?=[a-z]?_)")


def parse_shard(text: str) -> tuple[int, int]:
    """Parse "2/3", the second of three shards. Raises ValueError."""
    number, count = map(int, text.split("/"))
    if not 1 <= number <= count:
        raise ValueError(f"{text} is no shard: write 1/3, 2/3 or 3/3")
    return number, count


def shard_of(group: str, count: int) -> int:
    """Return the number, from 1, of the shard that runs a group: the same in every process and on every machine."""
    return zlib.crc32(group.encode()) % count + 1
