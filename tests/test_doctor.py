"""Test kp doctor: it reports each missing part with the command that installs it."""

from __future__ import annotations

import importlib.util
import inspect
import os
import shlex
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest
from packaging.requirements import Requirement

from kernelpath import cli, doctor, packages
from kernelpath.course.registry import ExerciseRef
from kernelpath.device import gpu
from kernelpath.doctor import Diagnosis
from kernelpath.grading import grade
from kernelpath.host_info import HostInfo
from kernelpath.verdict import Verdict

# The lane that cannot be tried if JAX is not installed, as under Python 3.10.
ABSENT = {} if importlib.util.find_spec("jax") else {"Pallas": "jax"}


def test_a_missing_package_is_installed_in_the_required_version(monkeypatch: pytest.MonkeyPatch) -> None:
    required = ["cuda-bindings<14,>=13", "cuda-core<2", "torch; extra == 'test'", "cuda-bindings-extra", "triton>=3"]
    monkeypatch.setattr("importlib.metadata.requires", lambda _: required)
    pip = f"{sys.executable} -m pip install"
    assert packages.install("cuda-bindings") == f"{pip} 'cuda-bindings<14,>=13'"
    assert packages.install("torch") == f"{pip} 'torch'"
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    required += ['numpy>=1; platform_machine != "aarch64"', 'numpy>=2; platform_machine == "aarch64"']
    assert packages.install("numpy") == f"{pip} 'numpy>=2'"
    assert packages.install("cuda") == f"{pip} 'cuda'"
    assert packages.missing("triton.language") == f"triton is not installed: {pip} 'triton>=3'"
    assert packages.missing("cuda.core.system") == f"cuda-core is not installed: {pip} 'cuda-core<2'"
    assert packages.missing("cuda.bindings.nvrtc") == f"cuda-bindings is not installed: {pip} 'cuda-bindings<14,>=13'"


def test_a_missing_package_is_installed_with_its_whole_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    required = [
        "click>=8",
        "jupyter>=1; extra == 'notebooks'",
        "ipython>=8; extra == 'notebooks'",
        "ray; extra == 'ray'",
    ]
    monkeypatch.setattr("importlib.metadata.requires", lambda _: required)
    pip = f"{sys.executable} -m pip install"
    assert packages.missing_extra("IPython.display") == f"ipython is not installed: {pip} 'jupyter>=1' 'ipython>=8'"
    assert packages.missing_extra("click") == packages.missing_extra("own_module") == ""


class Blocker:
    """An import hook that makes packages look as if they were not installed."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def find_spec(self, name: str, *_: object) -> None:
        if any(name == blocked or name.startswith(f"{blocked}.") for blocked in self.names):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


BLOCKED = """
import sys
{blocker}
sys.meta_path.insert(0, Blocker(*{blocked!r}))
from kernelpath import cli, packages
print(*(lane for lane in packages.LANES if packages.lacking(lane)))
cli.main(["doctor"])
"""


@pytest.mark.parametrize(
    ("blocked", "lacking", "remedies"),
    [
        # Two packages of unrelated lanes are blocked together to save a run: each lane works in another run.
        (
            ["triton", "cutlass_library"],
            ["triton"],
            {"Triton": "triton", "CuTe in C++": "nvidia-cutlass"},
        ),
        (["cutlass", "jax"], ["cute", "pallas"], {"CuTe DSL": "nvidia-cutlass-dsl", "Pallas": "jax"}),
        (
            ["cuda.bindings"],
            ["cuda", "cute"],
            dict.fromkeys(("CUDA C++", "CUDA C++ programs (nvcc)", "CuTe DSL", "CuTe in C++"), "cuda-bindings"),
        ),
    ],
)
def test_a_missing_package_disables_only_its_lanes(
    blocked: list[str], lacking: list[str], remedies: dict[str, str]
) -> None:
    process = subprocess.run(
        [sys.executable, "-c", BLOCKED.format(blocker=inspect.getsource(Blocker), blocked=blocked)],
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stderr
    lacking_lanes, *lines = process.stdout.splitlines()
    assert set(lacking_lanes.split()) == {*lacking, *map(str.lower, ABSENT)}
    lines_of_lanes = {line[5:].partition(" without a GPU")[0]: line for line in lines if "without a GPU" in line}
    remedies = remedies | ABSENT
    assert {lane for lane, line in lines_of_lanes.items() if line.startswith("no")} == set(remedies)
    assert len(lines_of_lanes) == 6
    for lane, distribution in remedies.items():
        assert lines[lines.index(lines_of_lanes[lane]) + 1] == f"     do: {packages.install(distribution)}"


def test_a_lane_without_its_package_is_unavailable(doubling: ExerciseRef, monkeypatch: pytest.MonkeyPatch) -> None:
    doubling.solution.write_text("import triton\n\n\ndef double(x):\n    return 2 * x\n")
    monkeypatch.setattr(sys, "meta_path", [Blocker("triton"), *sys.meta_path])
    for name in [name for name in sys.modules if name.partition(".")[0] == "triton"]:
        monkeypatch.delitem(sys.modules, name)
    report = grade.grade(doubling, doubling.solution, device="cpu")
    assert (report.verdict, report.cause) == (Verdict.UNAVAILABLE, packages.missing("triton"))
    assert (report.next_step, report.cases) == ("kp doctor", ())


def test_a_lane_that_fails_says_why_in_one_line() -> None:
    raising = {"probe.py": "raise RuntimeError('no such driver\\nand much more')"}
    assert doctor.try_lane("CUDA C++", raising, "cpu").detail == "RuntimeError: no such driver"


def test_a_lane_that_computes_wrong_values_does_not_work() -> None:
    silent = {"probe.py": "def run(out): out.fill_(0)"}
    assert "wrong answer" in doctor.try_lane("CUDA C++", silent, "cpu").detail


def test_a_machine_without_a_gpu_does_not_probe_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    diagnosis = doctor.try_lane("CUDA C++ on a GPU", {"probe.py": "raise SystemExit"}, "cuda")
    assert (diagnosis.works, diagnosis.detail) == (False, "no GPU")


def test_every_lane_compiles_and_runs_without_a_gpu() -> None:
    """The test needs its own process, because activating the lane replaces Triton's driver permanently."""
    code = "from kernelpath import doctor\nfor found in doctor.lanes(): print(found.works, found.what, found.detail)"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    lines_of_lanes = [line for line in process.stdout.splitlines() if "without a GPU" in line]
    assert len(lines_of_lanes) == 6
    failed = [line for line in lines_of_lanes if not line.startswith("True")]
    assert len(failed) == len(ABSENT), failed
    assert all(line.startswith("False Pallas") for line in failed)


def test_a_missing_compiler_is_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda _: None)
    assert doctor.compiler().remedy == "sudo apt install build-essential"


@pytest.mark.parametrize(
    ("has_gpu", "driver", "torch_cuda", "remedy"),
    [
        (False, "unknown", "13.0", ""),
        (True, "unknown", "13.0", "sudo ubuntu-drivers install"),
        (True, "580.1", None, f"{sys.executable} -m pip install --force-reinstall torch"),
        (True, "580.1", "13.0", "nvidia-smi"),
    ],
)
def test_a_missing_gpu_has_a_remedy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, has_gpu: bool, driver: str, torch_cuda: str | None, remedy: str
) -> None:
    monkeypatch.setattr(doctor, "_has_nvidia_gpu", lambda: has_gpu)
    monkeypatch.setattr(gpu, "driver", lambda: driver)
    assert doctor._no_gpu(torch_cuda, HostInfo(tmp_path, {})).remedy == remedy


def test_other_processes_on_the_gpu_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    process_list = SimpleNamespace(stdout="4711, python, 900 MiB\n")
    monkeypatch.setattr("subprocess.run", lambda *_, **__: process_list)
    (neighbor,) = gpu.neighbors()
    assert gpu.noise([neighbor]) == "process 4711 (python, 900 MiB) also uses the GPU and makes times noisy"
    message = gpu.noise([neighbor, gpu.Neighbor(4712, "python, 2 MiB")])
    assert message == "2 other processes (4711, 4712) also use the GPU and make times noisy"


def test_an_unwritable_cache_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("in the way")
    monkeypatch.setenv("KERNELPATH_CACHE", str(tmp_path / "cache"))
    assert not doctor.cache().works
    monkeypatch.setenv("KERNELPATH_CACHE", str(tmp_path / "submissions"))
    monkeypatch.setenv("WARPCHECK_CACHE", str(tmp_path / "other"))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "kernel").write_bytes(bytes(1_500_000))
    assert "1.5 MB" in doctor.cache().detail


@pytest.mark.parametrize(("works", "status"), [(True, 0), (False, 1)])
def test_the_exit_status_says_whether_any_lane_works(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], works: bool, status: int
) -> None:
    lanes = [Diagnosis("CUDA C++", works, "why", "do this", lane=True), Diagnosis("Triton", False, "why", lane=True)]
    monkeypatch.setattr(doctor, "examine", lambda: lanes)
    with pytest.raises(SystemExit) as exit_:
        cli.main(["doctor"])
    assert exit_.value.code == status
    assert "do: do this" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("installed", "untried"),
    [
        ({"triton": "3.9.4", "torch": "2.13.0+cpu", "python": "3.11.7"}, ""),
        ({"triton": "3.10.0"}, "triton 3.10.0 (tried: 3.6.0 to 3.9.0)"),
        ({"triton": "4"}, "triton 4 (tried: 3.6.0 to 3.9.0)"),
        ({"torch": "2.9.1"}, f"torch 2.9.1 (tried: {packages.TRIED_VERSIONS['torch'].lowest} to 2.15.0)"),
        ({"python": "3.15.0", "nvidia-cutlass-dsl": "4.8.1"}, "python 3.15.0 (tried: 3.10 to 3.13)"),
    ],
)
def test_an_untried_version_is_reported_with_the_tried_range(
    monkeypatch: pytest.MonkeyPatch, installed: dict[str, str], untried: str
) -> None:
    monkeypatch.setattr(packages, "versions", lambda: installed)
    diagnosis = doctor.versions()
    assert (diagnosis.works, diagnosis.detail.removeprefix("untried: ") if untried else "") == (not untried, untried)
    assert diagnosis.remedy == (packages.install_tried() if untried else "")


RANGES = (
    f"'torch>={packages.TRIED_VERSIONS['torch'].lowest},<2.16' 'triton>=3.6.0,<3.10' 'cuda-bindings>=13.3.1,<13.6' "
    "'nvidia-cuda-nvrtc>=13.0.88,<13.6' 'nvidia-cutlass-dsl>=4.8.1,<4.9'"
)


def test_the_install_command_uses_tried_versions_and_a_tried_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.python_version", lambda: "3.12.3")
    assert packages.install_tried() == f"{sys.executable} -m pip install {RANGES}"
    monkeypatch.setattr("platform.python_version", lambda: "3.15.0")
    monkeypatch.setattr(packages, "_kernelpath_requirement", lambda: "kernelpath")
    env = "kernelpath-env"
    assert packages.install_tried() == f"python3.13 -m venv {env} && {env}/bin/pip install kernelpath {RANGES}"
    monkeypatch.setattr("platform.python_version", lambda: "3.10.13")
    monkeypatch.setattr("importlib.metadata.requires", lambda _: ["jax<0.11,>=0.10; python_version >= '3.11'"])
    assert packages.install("jax") == f"python3.13 -m venv {env} && {env}/bin/pip install kernelpath 'jax<0.11,>=0.10'"


@pytest.mark.parametrize(
    ("origin", "requirement"),
    [
        (None, "'kernelpath[all]'"),
        ('{"url": "file:///a/checkout", "dir_info": {"editable": true}}', "--editable 'file:///a/checkout[all]'"),
        ('{"url": "file:///a/kernelpath.whl", "archive_info": {}}', "'kernelpath[all] @ file:///a/kernelpath.whl'"),
    ],
)
def test_kernelpath_is_reinstalled_from_its_origin(
    monkeypatch: pytest.MonkeyPatch, origin: str | None, requirement: str
) -> None:
    monkeypatch.setattr("importlib.metadata.distribution", lambda _: SimpleNamespace(read_text=lambda _: origin))
    assert packages._kernelpath_requirement() == requirement


def test_the_tried_versions_match_the_package_metadata() -> None:
    """The package metadata must admit the lowest and the newest tried version, and nothing below the lowest."""
    course = [Requirement(text) for text in metadata.requires("kernelpath") or []]
    (everything,) = (requirement for requirement in course if requirement.name == "kernelpath")
    extras = {
        extra
        for requirement in course
        if requirement.name == "warpcheck"
        and (not requirement.marker or any(requirement.marker.evaluate({"extra": x}) for x in everything.extras))
        for extra in requirement.extras
    }
    assert extras == {"cuda", "cute", "torch", "triton"}
    required = map(Requirement, metadata.requires("warpcheck") or [])
    applicable = [
        requirement
        for requirement in required
        if requirement.marker and any(requirement.marker.evaluate({"extra": x}) for x in extras)
    ]
    specified = {requirement.name: requirement.specifier for requirement in applicable}
    for package, version_range in packages.TRIED_VERSIONS.items():
        if package != "python":
            major, minor = packages._minor(version_range.lowest)
            assert version_range.lowest in specified[package]
            assert version_range.newest in specified[package]
            assert f"{major}.{minor - 1}.99" not in specified[package]
    python = (metadata.metadata("kernelpath")["Requires-Python"] or "").removeprefix(">=")
    assert python == packages.TRIED_VERSIONS["python"].lowest


def test_the_constraints_name_one_version_or_a_range() -> None:
    """A CUDA build of torch pins Triton and NVRTC, so only a range of versions works with every build."""
    assert packages.constraints("lowest").splitlines() == [
        f"torch=={packages.TRIED_VERSIONS['torch'].lowest}",
        "triton==3.6.0",
        "cuda-bindings==13.3.1",
        "nvidia-cuda-nvrtc==13.0.88",
        "nvidia-cutlass-dsl==4.8.1",
    ]
    assert packages.constraints("newest").splitlines() == shlex.split(RANGES)


UNTRIED = """
import sys
sys.path.insert(0, {folder!r})
from kernelpath import cli, doctor
found = doctor.versions()
print(found.detail, found.remedy)
cli.main(["check", "bias_relu", "--tree", "solutions", "--device", "cpu"])
"""


def test_a_newer_version_is_reported_and_still_grades(tmp_path: Path) -> None:
    """A platform such as Colab may install newer versions than were tried, here Triton 3.11.0 and torch 2.19.0."""
    for name, version in (("triton", "3.11.0"), ("torch", "2.19.0")):
        dist_info = tmp_path / f"{name}-{version}.dist-info"
        dist_info.mkdir()
        (dist_info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (dist_info / "entry_points.txt").write_text(metadata.distribution(name).read_text("entry_points.txt") or "")
    process = subprocess.run(
        [sys.executable, "-c", UNTRIED.format(folder=str(tmp_path))],
        capture_output=True,
        text=True,
        env={**os.environ, "XDG_STATE_HOME": str(tmp_path)},
    )
    diagnosis, _, grading_output = process.stdout.partition("\n")
    oldest = packages.TRIED_VERSIONS["torch"].lowest
    untried = f"untried: torch 2.19.0 (tried: {oldest} to 2.15.0); triton 3.11.0 (tried: 3.6.0 to 3.9.0)"
    assert diagnosis == f"{untried} {packages.install_tried()}"
    assert process.returncode == 0, process.stdout + process.stderr
    assert "PASSED" in grading_output
