"""What `make` installs and runs, as `make --dry-run` prints it."""

from __future__ import annotations

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


@pytest.mark.parametrize("end", ["oldest", "newest"])
def test_both_ends_of_the_versions_grade_every_reference_and_look_for_spills(end: str) -> None:
    found = commands(f"test-{end}")
    assert f".venv-{end}/bin/kp check --all --tree solutions --device cpu" in found
    assert f".venv-{end}/bin/kp dev spills" in found


@pytest.mark.parametrize(
    ("arguments", "constraint"), [((), "torch<2.14"), (("TORCH=torch==2.15.*",), "torch==2.15.*")], ids=["", "chosen"]
)
def test_make_chooses_the_torch_that_it_installs(arguments: tuple[str, ...], constraint: str) -> None:
    """Otherwise pip takes the newest version that pyproject.toml admits, with gigabytes of CUDA libraries."""
    found = commands("lint", *arguments)
    assert f"echo '{constraint}' > .venv/constraints.txt" in found
    assert ".venv/bin/pip install --quiet --constraint .venv/constraints.txt --editable '.[test]'" in found
