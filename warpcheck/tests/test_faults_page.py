"""Test the page of faults: each example raises the message below it, and none once it is fixed."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

import warpcheck
from warpcheck.errors import FaultKind

PAGE = (Path(__file__).parents[1] / "docs" / "faults.md").read_text()


class Example(NamedTuple):
    """An example of the page.

    Attributes:
        source: The text of its block, whose first line is a comment with the launch.
        arch: The architecture.
        launch: The launch, as Python.
        fault: The name of the exception's class.
        message: The message, which names the lines of the block.
    """

    source: str
    arch: str
    launch: str
    fault: str
    message: str

    @property
    def corrected(self) -> str:
        """Return the source with each statement that has a fix replaced by it."""
        return re.sub(r"^( *)(?:\S.*?)?(?://|#) fix: (.*)$", r"\1\2", self.source, flags=re.MULTILINE)


def examples(language: str) -> list[Example]:
    """Return the examples in a language, with messages that are wrapped on the page as one line."""
    block = rf"```{language}\n((?://|#) (sm_\w+): (kernel\[.*)\n(?:(?!```).*\n)+)```\n\n    (\w+): (.+(?:\n    .+)*)"
    return [
        Example(source, arch, launch, fault, " ".join(message.split()))
        for source, arch, launch, fault, message in re.findall(block, PAGE)
    ]


CUDA = examples("cuda")
TRITON = examples("python")


def launch_cuda(source: str, example: Example) -> None:
    kernel = warpcheck.cuda.kernel(source, "kernel")
    with warpcheck.gpu(example.arch):
        x = torch.zeros(64, dtype=torch.int32)
        out = torch.empty(64, dtype=torch.int32)
        eval(example.launch, {"kernel": kernel, "x": x, "out": out})


def launch_triton(source: str, example: Example, folder: Path) -> None:
    program = folder / "kernel.py"
    program.write_text("import triton, triton.language as tl\n" + source.partition("\n")[2])
    with warpcheck.gpu(example.arch):
        names = runpy.run_path(str(program))
        eval(example.launch, {**names, "x": torch.ones(1000), "out": torch.empty(1000), "total": torch.zeros(1)})


@pytest.mark.parametrize("example", CUDA, ids=lambda example: example.message[:60])
def test_an_example_in_cuda(example: Example) -> None:
    with pytest.raises(getattr(warpcheck, example.fault)) as caught:
        launch_cuda(example.source, example)
    assert type(caught.value).__name__ == example.fault
    assert str(caught.value) == example.message
    assert example.corrected != example.source
    launch_cuda(example.corrected, example)


@pytest.mark.parametrize("example", TRITON, ids=lambda example: example.message[:60])
def test_an_example_in_triton(example: Example, tmp_path: Path) -> None:
    with pytest.raises(getattr(warpcheck, example.fault)) as caught:
        launch_triton(example.source, example, tmp_path)
    assert str(caught.value) == example.message
    launch_triton(example.corrected, example, tmp_path)


def test_every_block_of_the_page_is_an_example() -> None:
    assert len(CUDA) == PAGE.count("```cuda")
    assert len(TRITON) == PAGE.count("```python")


def test_every_kind_of_fault_has_an_example() -> None:
    kinds = {type(warpcheck.Fault(kind, "", "", "", 0, (0,) * 3, (0,) * 3)).__name__ for kind in FaultKind}
    assert {example.fault for example in CUDA} == kinds | {"Deadlock"}
