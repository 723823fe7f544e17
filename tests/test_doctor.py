"""The doctor finds what is missing and names the command that mends it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from kernelpath import cli, doctor
from kernelpath.device import gpu
from kernelpath.doctor import Finding


def test_what_is_installed_with_a_version_range_is_asked_for_with_it() -> None:
    command = doctor.install("cuda", "cuda-bindings")
    assert command.startswith(f"{sys.executable} -m pip install 'cuda-bindings")
    assert ">=13" in command
    assert "<14" in command
    assert doctor.install("unheard_of") == f"{sys.executable} -m pip install unheard_of"


def test_a_lane_whose_package_is_missing_says_how_to_install_it() -> None:
    raising = {"probe.py": "raise ModuleNotFoundError(\"No module named 'triton'\", name='triton')"}
    found = doctor.try_lane("Triton without a GPU", raising, "triton", "cpu")
    assert (found.works, found.lane) == (False, True)
    assert found.remedy == doctor.install("triton")


def test_a_lane_that_fails_says_why_in_one_line() -> None:
    raising = {"probe.py": "raise RuntimeError('no such driver\\nand much more')"}
    assert doctor.try_lane("CUDA C++", raising, "cuda-bindings", "cpu").detail == "RuntimeError: no such driver"


def test_a_lane_that_computes_nonsense_does_not_work() -> None:
    silent = {"probe.py": "def run(out): out.fill_(0)"}
    assert "wrong answer" in doctor.try_lane("CUDA C++", silent, "cuda-bindings", "cpu").detail


def test_a_machine_without_a_gpu_does_not_try_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    found = doctor.try_lane("CUDA C++ on a GPU", {"probe.py": "raise SystemExit"}, "cuda-bindings", "cuda")
    assert (found.works, found.detail) == (False, "there is none")


def test_every_lane_compiles_and_runs_without_a_gpu() -> None:
    """In a process of its own: the Triton lane changes Triton's driver for good."""
    code = "from kernelpath import doctor\nfor found in doctor.lanes(): print(found.works, found.what, found.detail)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    without = [line for line in done.stdout.splitlines() if "without a GPU" in line]
    assert len(without) == 3
    assert all(line.startswith("True") for line in without), without


def test_a_missing_compiler_is_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda _: None)
    assert doctor.compiler().remedy == "sudo apt install build-essential"


@pytest.mark.parametrize(
    ("card", "driver", "torch_cuda", "remedy"),
    [
        (False, "unknown", "13.0", ""),
        (True, "unknown", "13.0", "sudo ubuntu-drivers install"),
        (True, "580.1", None, f"{sys.executable} -m pip install --force-reinstall torch"),
        (True, "580.1", "13.0", "nvidia-smi"),
    ],
)
def test_why_there_is_no_gpu(
    monkeypatch: pytest.MonkeyPatch, card: bool, driver: str, torch_cuda: str | None, remedy: str
) -> None:
    monkeypatch.setattr(doctor, "_nvidia_card", lambda: card)
    monkeypatch.setattr(gpu, "driver", lambda: driver)
    assert doctor._no_gpu(torch_cuda).remedy == remedy


def test_other_processes_on_the_gpu_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = SimpleNamespace(stdout="4711, python, 900 MiB\n")
    monkeypatch.setattr("subprocess.run", lambda *_, **__: listed)
    (found,) = gpu.neighbours()
    assert "4711 (python, 900 MiB)" in found.told


def test_a_cache_that_cannot_be_written_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("in the way")
    monkeypatch.setenv("KERNELPATH_CACHE", str(tmp_path / "cache"))
    assert not doctor.cache().works
    monkeypatch.setenv("KERNELPATH_CACHE", str(tmp_path / "other"))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "kernel").write_bytes(bytes(1_500_000))
    assert "1.5 MB" in doctor.cache().detail


@pytest.mark.parametrize(("works", "status"), [(True, 0), (False, 1)])
def test_the_exit_status_says_whether_any_lane_works(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], works: bool, status: int
) -> None:
    lanes = [Finding("CUDA C++", works, "why", "do this", lane=True), Finding("Triton", False, "why", lane=True)]
    monkeypatch.setattr(doctor, "examine", lambda: lanes)
    with pytest.raises(SystemExit) as exit_:
        cli.main(["doctor"])
    assert exit_.value.code == status
    assert "do: do this" in capsys.readouterr().out
