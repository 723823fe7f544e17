"""Test the commands of the Makefile as `make --dry-run` prints them."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")


def dry_run(*arguments: str) -> list[str]:
    """Return the commands of a target, in a checkout without an environment."""
    command = ["make", "--dry-run", "--always-make", "--no-print-directory", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return [line.strip() for line in done.stdout.splitlines()]


def pytest_arguments(target: str) -> list[str]:
    """Return the arguments of pytest that select the tests of a target."""
    (command,) = (line for line in dry_run(target) if line.startswith(".venv/bin/pytest"))
    return shlex.split(command.partition(".venv/tests.xml")[2])


def test_unit_tests_and_gradings_partition_make_test() -> None:
    expressions = {target: pytest_arguments(target)[1] for target in ("tests", "unit", "gradings")}
    assert expressions == {
        "tests": "not gpu and not weekly",
        "unit": "unit and not gpu and not weekly",
        "gradings": "not unit and not gpu and not weekly",
    }
    assert pytest_arguments("weekly")[1] == "weekly and not gpu"


def test_make_changed_passes_the_revision_to_pytest() -> None:
    (command,) = (line for line in dry_run("changed", "SINCE=main~3") if line.startswith(".venv/bin/pytest"))
    assert command.endswith('-m "weekly and not gpu" --changed main~3 || test $? -eq 5')


def test_the_shard_variable_is_passed_to_pytest() -> None:
    (command,) = (line for line in dry_run("gradings", "SHARD=2/3") if line.startswith(".venv/bin/pytest"))
    assert command.endswith(" --shard 2/3")


def test_one_process_checks_all_types() -> None:
    assert [line for line in dry_run("types") if "mypy " in line] == [
        ".venv/bin/mypy src warpcheck/src warpcheck/tests checks tests benchmarks conftest.py .mypy_cache/exams"
    ]


@pytest.mark.parametrize("end", ["oldest", "newest"])
def test_the_oldest_and_newest_versions_grade_every_reference_and_check_spills(end: str) -> None:
    commands = dry_run(f"test-{end}")
    for tree in ("solutions", "expert"):
        assert f".venv-{end}/bin/kp check --all --tree {tree} --device cpu" in commands
    assert f".venv-{end}/bin/kp dev spills" in commands


@pytest.mark.parametrize(
    ("arguments", "constraint"), [((), "torch<2.14"), (("TORCH=torch==2.15.*",), "torch==2.15.*")], ids=["", "chosen"]
)
def test_make_constrains_the_version_of_torch(arguments: tuple[str, ...], constraint: str) -> None:
    """Without a constraint, uv installs the newest version that pyproject.toml allows, with gigabytes of libraries."""
    commands = dry_run("lint", *arguments)
    assert f"echo '{constraint}' > .venv/constraints.txt" in commands
    packages = "--editable ./warpcheck --editable '.[all,test]'"
    install = ".venv/bin/uv pip install --quiet --python .venv --constraint .venv/constraints.txt"
    assert f"{install} {packages}" in commands
