"""What warpcheck's README shows is what happens."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest
import torch

import warpcheck

README = (Path(__file__).parents[1] / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```(?:\n\n    warpcheck\.errors\.(\w+): ([^\n]*))?", README, re.DOTALL)
"""The code of each block, with the exception and the message printed below it, if any."""


@pytest.fixture
def planted(tmp_path: Path) -> Any:
    """Run a block of the README as a program, and return its namespace."""

    def run(number: int, source: str = "") -> dict[str, Any]:
        program = tmp_path / f"block{number}.py"
        program.write_text(source or BLOCKS[number][0])
        return runpy.run_path(str(program))

    return run


@pytest.mark.parametrize("number", [number for number, block in enumerate(BLOCKS) if block[1]])
def test_a_block_ends_in_the_fault_below_it(planted: Any, number: int) -> None:
    _, name, message = BLOCKS[number]
    with pytest.raises(getattr(warpcheck, name)) as caught:
        planted(number)
    assert str(caught.value).startswith(message.removesuffix("..."))


def test_there_is_a_block_for_triton_and_one_for_cuda() -> None:
    assert [name for _, name, _ in BLOCKS if name] == ["OutOfBounds", "Race"]


def test_the_corrected_triton_kernel_has_a_report(planted: Any) -> None:
    corrected, _, _ = BLOCKS[0]
    namespace = planted(0, corrected.replace("i <= n", "i < n").replace("warpcheck.run(add", "report = (add"))
    report = warpcheck.run(namespace["add"], *namespace["report"][1:])
    store = report.launches[0].line("tl.store")
    (shown,) = re.findall(r'line\("tl.store"\).sectors_per_request +# ([\d.]+)', README)
    assert round(store.sectors_per_request, 1) == float(shown)
    assert store.global_store_bytes == 4000
    assert report.result.equal(sum(namespace["report"][1:]))


def test_the_scope_block_counts_launches(planted: Any) -> None:
    """Its assertion is about a model step with seven launches."""
    (scope,) = (code for code, _, _ in BLOCKS if "model_step" in code)
    kernel = warpcheck.cuda.kernel("__global__ void fill(int* x) {\n    x[threadIdx.x] = 1;\n}\n", "fill")

    def model_step(x: Any) -> None:
        for _ in range(7):
            kernel[1, 32](x)

    x = torch.zeros(32, dtype=torch.int32)
    exec(scope, {"warpcheck": warpcheck, "model_step": model_step, "x": x})
    assert x.eq(1).all()
