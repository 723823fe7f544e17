"""Test the output of `kp profile` for exercises that launch no kernel."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelpath.cli.app import _status
from kernelpath.course import registry

WITHOUT_KERNEL = [
    item.name
    for item in registry.exercises()
    if not registry.load(item).is_kernel and registry.load(item).kind != "distributed"
]


@pytest.mark.parametrize("option", [(), ("--pipeline",), ("--sass",)], ids=["counters", "pipeline", "sass"])
@pytest.mark.parametrize("name", WITHOUT_KERNEL)
def test_profiling_an_exercise_without_a_kernel_suggests_another_command(
    name: str, option: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert _status(["profile", name, "--tree", "solutions", *option]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert f"{name} launches no kernel, so it has no counters" in printed.err
    assert f"kp check {name}" in printed.err


@pytest.mark.parametrize("option", [(), ("--pipeline",)], ids=["counters", "pipeline"])
def test_ranks_are_drawn(option: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "ranks.png"
    command = ["profile", "all_reduce", "--tree", "solutions", *option, "--picture", str(picture)]
    assert _status(command) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert all(f"algorithm={name}" in text for name in ("reduce_scatter", "all_gather", "ring", "two_shot"))
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert _status(["profile", "all_reduce", "--sass"]) == 2
    assert "kp profile all_reduce draws what each rank does" in capsys.readouterr().err


def test_ranks_that_do_not_return_are_not_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _status(["profile", "all_reduce", "--picture", str(tmp_path / "ranks.png")]) == 1  # the stub
    text = capsys.readouterr().out
    assert text.startswith("NOT_STARTED")
    assert "next: kp check all_reduce" in text
