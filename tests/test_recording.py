"""Test that `on_gpu` measures if there are enough GPUs, and otherwise returns the recording or an empty dictionary."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from kernelpath.course import registry
from kernelpath.show import notebook, results
from tests.notebooks import NOTEBOOKS, OUTSTANDING, code_cells, measurement, read
from warpcheck.frontends import triton as lane
from warpcheck.hooks import triton as hooks

KEY = "week99/race"
RECORDED = {"device": "NVIDIA H200", "date": "2026-11-21", "value": {"copy": 2.5e-4}}


def fail() -> Any:
    pytest.fail("measured without a GPU")


@pytest.fixture(autouse=True)
def course(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a checkout with a recording under KEY."""
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "notebooks.json").write_text(json.dumps({KEY: RECORDED}))
    monkeypatch.setattr(registry, "course", lambda: tmp_path)
    monkeypatch.delenv("KERNELPATH_RECORD", raising=False)
    return tmp_path


def show_gpus(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a GPU")


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> Iterator[object]:
    """Show two GPUs, and yield a stand-in for the driver that Triton would make for them.

    Triton's kernels go to the PTX machine, as they do in a notebook.
    """
    show_gpus(monkeypatch, 2)
    driver = object()
    monkeypatch.setattr(hooks.RESET.owner(), "reset_active", lambda: hooks.ACTIVATE.get()(driver))
    lane.activate("cpu")
    machine = hooks.DRIVER.get().active
    yield driver
    hooks.ACTIVATE.get()(machine)


@pytest.mark.parametrize(
    ("present", "needed", "printed"),
    [
        (0, 1, "no GPU here: recorded on NVIDIA H200, 2026-11-21 (versions were not recorded)\n"),
        (1, 2, "fewer than 2 GPUs here: recorded on NVIDIA H200, 2026-11-21 (versions were not recorded)\n"),
    ],
)
def test_a_recording_replaces_a_measurement(
    present: int, needed: int, printed: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    show_gpus(monkeypatch, present)
    assert notebook.on_gpu(KEY, fail, gpus=needed) == {"copy": 2.5e-4}
    assert capsys.readouterr().out == printed


def test_times_are_recorded_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    show_gpus(monkeypatch, 0)
    assert notebook.times(KEY, fail) == {"copy": 2.5e-4}


@pytest.mark.parametrize("present", [0, 1])
def test_without_a_recording_there_is_nothing_to_show(
    present: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    show_gpus(monkeypatch, present)
    assert notebook.on_gpu("week99/other", fail, gpus=present + 1) == {}
    message = "nothing to show: too few GPUs are here, and results/notebooks.json has no recording\n"
    assert capsys.readouterr().out == message


def test_without_any_recordings_there_is_nothing_to_show(course: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    show_gpus(monkeypatch, 0)
    (course / "results" / "notebooks.json").unlink()
    assert notebook.on_gpu(KEY, fail) == {}


@pytest.mark.usefixtures("two_gpus")
def test_a_measurement_on_a_gpu_ignores_the_recording(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "recorded.json"
    file.write_text(json.dumps({"week98/other": RECORDED}))
    monkeypatch.setenv("KERNELPATH_RECORD", str(file))
    assert notebook.on_gpu(KEY, lambda: {1: (2, 3)}, gpus=2) == {"1": [2, 3]}, "a value as JSON brings it back"
    assert capsys.readouterr().out.startswith("measured on this a GPU (torch ")
    recordings = results.recordings(file)
    assert list(recordings) == ["week98/other", KEY]
    assert (recordings[KEY].device, recordings[KEY].value) == ("a GPU", {"1": [2, 3]})
    assert "torch" in recordings[KEY].versions


@pytest.mark.usefixtures("two_gpus")
def test_a_measurement_is_recorded_only_if_the_environment_variable_is_set(course: Path) -> None:
    assert notebook.on_gpu("week99/other", lambda: 7) == 7
    assert list(results.recordings(course / "results" / "notebooks.json")) == [KEY]


def test_triton_has_its_own_driver_while_it_is_measured(two_gpus: object) -> None:
    machine = hooks.DRIVER.get().active
    assert notebook.on_gpu(KEY, lambda: hooks.DRIVER.get().active is two_gpus) is True
    assert hooks.DRIVER.get().active is machine


def test_triton_has_the_driver_of_the_ptx_machine_again_after_an_error(two_gpus: object) -> None:
    machine = hooks.DRIVER.get().active
    with pytest.raises(ZeroDivisionError):
        notebook.on_gpu(KEY, lambda: 1 / 0)
    assert hooks.DRIVER.get().active is machine


def test_the_outstanding_recordings_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    keys = {key for path in NOTEBOOKS for cell in code_cells(read(path)) if (key := measurement(cell))}
    recorded = results.recordings(registry.root() / results.FOLDER / results.RECORDINGS)
    assert keys - recorded.keys() == OUTSTANDING
    assert recorded.keys() <= keys
