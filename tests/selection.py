"""Which tests run when: each file of tests is of one class, and its tests run in one process or in groups.

`make quick` and the workflow's job for unit tests take the class `unit`, the shards of the workflow all others, and
`make test` everything. The classes are markers too: pytest -m gradings.

Tests with the mark `weekly` are left to `make weekly`. `make changed SINCE=main` runs those of them that concern an
exercise or a week whose files differ from the branch `main`.
"""

from __future__ import annotations

import re
import subprocess
import zlib
from pathlib import Path

# In the order in which they run: the largest groups come first, so that no process ends long before the others.
CLASSES = ("notebooks", "gradings", "unit")

# Files that run notebooks.
NOTEBOOKS = frozenset({"test_notebook_runs.py"})

# The notebooks that every run executes, one of each phase. The others are executed weekly.
SENTINEL_NOTEBOOKS = frozenset(
    {"week01_threads", "week06_reductions", "week09_model", "week13_fusion", "week17_layouts"}
)

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

# Files of gradings that other tests of every run cover in part, and that only a change of the grader, of the PTX
# machine, or of a compiler is likely to break.
WEEKLY = frozenset(
    {
        "test_cards.py",
        "test_doctor.py",
        "test_empty_products.py",
        "test_fused_twists.py",
        "test_hopper_twists.py",
        "test_operator_twists.py",
        "test_twists.py",
    }
)

_ID = re.compile(r"\[(?:(?P<exercise>w\d+[a-z]_\w+)/|(?P<whole>.+)\]$)")

# Files whose tests share nothing but their parameter.
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


def changed_weeks(root: Path, revision: str) -> frozenset[str]:
    """Return the weeks, such as "04", that own a file of the checkout which differs from a Git revision.

    Files that are not tracked yet count, ignored files do not. Raises subprocess.CalledProcessError if Git does not
    know the revision.
    """
    commands = (["diff", "--name-only", revision], ["ls-files", "--others", "--exclude-standard"])
    paths = "".join(
        subprocess.run(["git", "-C", str(root), *command], capture_output=True, text=True, check=True).stdout
        for command in commands
    )
    return frozenset(_WEEK.findall(paths))


def week_of(name: str) -> str | None:
    """Return the week that a test concerns by the exercise or the notebook in its name."""
    match = _WEEK.search(name)
    return match[1] if match else None


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
