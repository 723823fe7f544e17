"""What `make` installs and runs, as `make --dry-run` prints it."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")


def commands(*arguments: str) -> list[str]:
    """The commands of a target, in a checkout without an environment."""
    command = ["make", "--dry-run", "--always-make", "--no-print-directory", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return [line.strip() for line in done.stdout.splitlines()]


def of_pytest(target: str) -> list[str]:
    """The arguments of pytest that tell which tests a target runs."""
    (command,) = (line for line in commands(target) if line.startswith(".venv/bin/pytest"))
    return shlex.split(command.partition(".venv/tests.xml")[2])


def test_unit_tests_and_gradings_are_all_that_make_test_runs() -> None:
    expressions = {target: of_pytest(target)[1] for target in ("tests", "unit", "gradings")}
    assert expressions == {
        "tests": "not gpu and not weekly",
        "unit": "unit and not gpu and not weekly",
        "gradings": "not unit and not gpu and not weekly",
    }
    assert of_pytest("weekly")[1] == "weekly and not gpu"


def test_the_weekly_tests_of_what_changed_are_chosen_by_a_revision() -> None:
    (command,) = (line for line in commands("changed", "SINCE=main~3") if line.startswith(".venv/bin/pytest"))
    assert command.endswith('-m "weekly and not gpu" --changed main~3 || test $? -eq 5')


def test_a_shard_is_chosen_by_a_variable() -> None:
    (command,) = (line for line in commands("gradings", "SHARD=2/3") if line.startswith(".venv/bin/pytest"))
    assert command.endswith(" --shard 2/3")


def test_one_process_checks_all_types() -> None:
    assert [line for line in commands("types") if "mypy " in line] == [
        ".venv/bin/mypy src warpcheck/src warpcheck/tests checks tests benchmarks conftest.py .mypy_cache/exams"
    ]


@pytest.mark.parametrize("end", ["oldest", "newest"])
def test_both_ends_of_the_versions_grade_every_reference_and_look_for_spills(end: str) -> None:
    found = commands(f"test-{end}")
    for tree in ("solutions", "expert"):
        assert f".venv-{end}/bin/kp check --all --tree {tree} --device cpu" in found
    assert f".venv-{end}/bin/kp dev spills" in found


@pytest.mark.parametrize(
    ("arguments", "constraint"), [((), "torch<2.14"), (("TORCH=torch==2.15.*",), "torch==2.15.*")], ids=["", "chosen"]
)
def test_make_chooses_the_torch_that_it_installs(arguments: tuple[str, ...], constraint: str) -> None:
    """Otherwise uv takes the newest version that pyproject.toml admits, with gigabytes of CUDA libraries."""
    found = commands("lint", *arguments)
    assert f"echo '{constraint}' > .venv/constraints.txt" in found
    packages = "--editable ./warpcheck --editable '.[all,test]'"
    install = ".venv/bin/uv pip install --quiet --python .venv --constraint .venv/constraints.txt"
    assert f"{install} {packages}" in found
