"""Test that warpcheck's README is right."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch

import warpcheck
from test_pytest_plugin import run_pytest

README = (Path(__file__).parents[1] / "README.md").read_text()
# The code of each block, with the exception and the message that the README shows below it, if there are any.
BLOCKS = re.findall(r"```python\n(.*?)```(?:\n\n    warpcheck\.errors\.(\w+): ([^\n]*))?", README, re.DOTALL)


@pytest.fixture
def run_block(tmp_path: Path) -> Any:
    """Run a block of the README as a program, and return its namespace."""

    def run(number: int, source: str = "") -> dict[str, Any]:
        program = tmp_path / f"block{number}.py"
        program.write_text(source or BLOCKS[number][0])
        return runpy.run_path(str(program))

    return run


@pytest.mark.parametrize("number", [number for number, block in enumerate(BLOCKS) if block[1]])
def test_a_block_raises_the_fault_shown_below_it(run_block: Any, number: int) -> None:
    _, name, message = BLOCKS[number]
    with pytest.raises(getattr(warpcheck, name)) as caught:
        run_block(number)
    assert str(caught.value).startswith(message.removesuffix("..."))


def test_there_is_a_block_for_triton_and_one_for_cuda() -> None:
    assert [name for _, name, _ in BLOCKS if name] == ["OutOfBounds", "Race"]


def test_the_corrected_triton_kernel_has_a_report(run_block: Any) -> None:
    corrected, _, _ = BLOCKS[0]
    namespace = run_block(0, corrected.replace("i <= n", "i < n").replace("warpcheck.run(add", "report = (add"))
    report = warpcheck.run(namespace["add"], *namespace["report"][1:])
    store = report.launches[0].line("tl.store")
    (sectors,) = re.findall(r'line\("tl.store"\).sectors_per_request +# ([\d.]+)', README)
    assert round(store.sectors_per_request, 1) == float(sectors)
    assert store.global_store_bytes == 4000
    assert report.result.equal(sum(namespace["report"][1:]))


def test_the_scope_block_counts_launches(run_block: Any) -> None:
    """The block's assertion is about a model step with seven launches."""
    (scope,) = (code for code, _, _ in BLOCKS if "model_step" in code)
    kernel = warpcheck.cuda.kernel("__global__ void fill(int* x) {\n    x[threadIdx.x] = 1;\n}\n", "fill")

    def model_step(x: Any) -> None:
        for _ in range(7):
            kernel[1, 32](x)

    x = torch.zeros(32, dtype=torch.int32)
    exec(scope, {"warpcheck": warpcheck, "model_step": model_step, "x": x})
    assert x.eq(1).all()


@pytest.mark.parametrize("is_corrected", [True, False])
def test_the_example_suite_prints_the_output_shown(tmp_path: Path, is_corrected: bool) -> None:
    """The test passes with the corrected kernel. With the faulty kernel, pytest prints the output in the README."""
    suite = "\n\n".join(code for code, _, _ in BLOCKS if "def test_" in code)
    module = "".join(line for line in BLOCKS[0][0].splitlines(keepends=True) if not line.startswith("warpcheck.run"))
    (tmp_path / "add.py").write_text(module.replace("i <= n", "i < n") if is_corrected else module)
    (tmp_path / "test_add.py").write_text(suite)
    run = run_pytest(tmp_path, "--warpcheck")
    (expected_output,) = re.findall(r"\n\n((?:    .*\n)*    out of bounds in .*\n(?:    .*\n)+)", README)
    assert (run.status == 0) == is_corrected, run.output
    assert (textwrap.dedent(expected_output) in run.output) != is_corrected


def test_messages_in_the_table_of_faults_are_on_the_faults_page() -> None:
    page = " ".join((Path(__file__).parents[1] / "docs" / "faults.md").read_text().split())
    rows = re.findall(r"^\| \[`(\w+)`\]\(docs/faults\.md#[\w-]+\).* \| `(.+)` \|$", README, re.MULTILINE)
    assert len(rows) == 12
    for name, message in rows:
        assert issubclass(getattr(warpcheck, name), Exception)
        assert message in page


def test_numbers_about_compute_sanitizer_match_the_table() -> None:
    page = (Path(__file__).parents[1] / "docs" / "ptx-machine.md").read_text()
    (table,) = re.findall(r"<!-- table: findings -->\n(.*?)<!-- end -->", page, re.DOTALL)
    rows = re.findall(r"^\| NVIDIA H200 \| `\w+` \| \w+ \| (.+) \| (.+) \|$", table, re.MULTILINE)
    found_by_sanitizer = sum(sanitizer.startswith("found") for sanitizer, _ in rows)
    assert all(machine == "found, with the line" for _, machine in rows)
    text = " ".join(README.split())
    assert f"{len(rows)} planted bugs were run" in text
    assert f"found {found_by_sanitizer} of them, and warpcheck found all {len(rows)} with their lines" in text


def test_options_and_commands_exist(tmp_path: Path) -> None:
    """The help of pytest or of warpcheck has each option and command in the README."""
    options = set(re.findall(r"--warpcheck-\w+", README))
    commands = set(re.findall(r"^    warpcheck (\w+)", README, re.MULTILINE))
    assert len(options) == len(commands) == 4
    pytest_help = run_pytest(tmp_path, "--help").output
    process = subprocess.run([sys.executable, "-m", "warpcheck.cli", "--help"], capture_output=True, text=True)
    assert all(option in pytest_help for option in options)
    assert all(f"\n    {command} " in process.stdout for command in commands)
