"""Where a process runs is read from what each place leaves there."""

from __future__ import annotations

import ctypes
import errno
import json
import platform
import struct
from pathlib import Path

import pytest

from kernelpath import doctor
from kernelpath.device import gpu
from kernelpath.host_info import HostInfo
from kernelpath.work import confine, landlock, seccomp
from tests import fresh_process

MACHINE = platform.machine()
WSL2 = "6.6.87.2-microsoft-standard-WSL2"
DOCKER, RELEASE, ARCH = ".dockerenv", "proc/sys/kernel/osrelease", "proc/sys/kernel/arch"


def place(root: Path, files: dict[str, str], environment: dict[str, str] | None = None) -> HostInfo:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return HostInfo(root, environment or {})


@pytest.mark.parametrize(
    ("files", "environment", "told"),
    [
        ({}, {}, "Linux"),
        ({RELEASE: "6.8.0-45-generic\n", ARCH: f"{MACHINE}\n"}, {}, "Linux"),
        ({RELEASE: f"{WSL2}\n"}, {}, "WSL2"),
        ({RELEASE: f"{WSL2}\n", DOCKER: ""}, {}, "Docker container in WSL2"),
        ({"run/.containerenv": ""}, {"container": "podman"}, "Podman container"),
        ({}, {"container": "lxc"}, "container"),
        ({DOCKER: ""}, {"CODESPACES": "true"}, "Docker container in Codespaces"),
        ({}, {"COLAB_RELEASE_TAG": "release-colab"}, "Colab"),
    ],
)
def test_a_place_is_known_by_what_it_leaves(
    tmp_path: Path, files: dict[str, str], environment: dict[str, str], told: str
) -> None:
    assert place(tmp_path, files, environment).assessment == (True, f"{told}, {MACHINE}", "")


def test_an_emulated_machine_is_told_with_the_image_that_runs_natively(tmp_path: Path) -> None:
    """The kernel's own machine is not what uname says there."""
    here = place(tmp_path, {ARCH: "riscv64\n", DOCKER: ""})
    fine, told, remedy = here.assessment
    assert not fine
    assert told.startswith(f"Docker container, {MACHINE} emulated on riscv64: some 10 times slower")
    assert place(tmp_path, {ARCH: "aarch64" if MACHINE == "x86_64" else "x86_64"}).assessment[2] == (
        f"build and run the image with --platform linux/{'arm64' if MACHINE == 'x86_64' else 'amd64'}"
    )
    assert "linux/" in remedy


def test_the_first_windows_subsystem_is_not_linux(tmp_path: Path) -> None:
    fine, told, remedy = place(tmp_path, {RELEASE: "4.4.0-19041-Microsoft"}).assessment
    assert (fine, remedy) == (False, "in Windows: wsl --set-version NAME 2")
    assert told.startswith("WSL1")


@pytest.mark.parametrize(
    ("files", "card", "detail", "remedy"),
    [
        ({}, False, "no NVIDIA GPU: everything but speed is graded", ""),
        ({DOCKER: ""}, False, "no NVIDIA GPU, or none that was passed in: everything but speed is graded", ""),
        ({RELEASE: WSL2}, False, "no NVIDIA GPU, or Windows has no driver for it: everything but speed is graded", ""),
        ({DOCKER: ""}, True, "an NVIDIA GPU that was not passed in", "docker run --gpus all"),
        (
            {"run/.containerenv": ""},
            True,
            "an NVIDIA GPU that was not passed in",
            "podman run --device nvidia.com/gpu=all",
        ),
    ],
)
def test_a_gpu_may_be_kept_outside(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, files: dict[str, str], card: bool, detail: str, remedy: str
) -> None:
    monkeypatch.setattr(doctor, "_has_nvidia_gpu", lambda: card)
    monkeypatch.setattr(gpu, "driver", lambda: "unknown")
    found = doctor._no_gpu("13.0", place(tmp_path, files))
    assert (found.detail, found.remedy) == (detail, remedy)


class Kernel:
    """A libc on a kernel that answers the question for Landlock's version so."""

    def __init__(self, answer: int) -> None:
        self.answer = answer

    def syscall(self, *_: object) -> int:
        return self.answer


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (7, "Landlock 7: files, TCP, signals"),
        (4, "Landlock 4: files, TCP; too old to hold signals"),
        (1, "Landlock 1: files; too old to hold TCP and signals"),
    ],
)
def test_what_an_old_landlock_does_not_hold_is_said(monkeypatch: pytest.MonkeyPatch, answer: int, told: str) -> None:
    monkeypatch.setattr(landlock, "_libc", lambda: Kernel(answer))
    monkeypatch.setattr(landlock, "_use_is_forbidden", lambda: False)
    assert landlock.describe_support() == (True, told, "")


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (errno.EOPNOTSUPP, "Landlock is off in this kernel"),
        (errno.EPERM, "this container forbids Landlock"),
        (errno.ENOSYS, "no Landlock in this kernel"),
    ],
)
def test_why_there_is_no_landlock_is_said(monkeypatch: pytest.MonkeyPatch, error: int, why: str) -> None:
    monkeypatch.setattr(landlock, "_libc", lambda: Kernel(-1))
    monkeypatch.setattr("ctypes.get_errno", lambda: error)
    fine, told, remedy = landlock.describe_support()
    assert (fine, told) == (False, f"{why}: a submission can read and write every file that you can")
    assert remedy


def restrict_filtered(call: int, error: int) -> tuple[int, int, int, str, str]:
    """Restrict this process where a system call of Landlock ends in an error.

    Return the version before and after, the version that holds, what doctor says, and what a report says.
    """
    allow, refuse = 0x7FFF0000, 0x00050000 | error
    steps = ((0x20, 0, 0, 0), (0x15, 0, 1, call), (0x06, 0, 0, refuse), (0x06, 0, 0, allow))
    program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    libc = ctypes.CDLL(None)
    before = landlock.version()
    libc.prctl(38, 1, 0, 0, 0)
    assert libc.prctl(22, 2, ctypes.create_string_buffer(struct.pack("HP", len(steps), ctypes.addressof(program)))) == 0
    held = landlock.restrict([Path("/usr")], [])
    return before, landlock.version(), held, landlock.describe_support()[1], confine.missing_protections()[0]


@pytest.mark.skipif(landlock.version() == 0, reason="this kernel has no Landlock, or forbids it")
@pytest.mark.parametrize("call", [445, 446])  # landlock_add_rule, landlock_restrict_self
@pytest.mark.parametrize("error", [errno.EPERM, errno.ENOSYS])
def test_a_container_that_permits_the_question_alone_holds_nothing(call: int, error: int) -> None:
    """No worker started there, and doctor said that all was well."""
    before, after, held, said, reported = fresh_process.call(restrict_filtered, call, error)
    assert before > 0
    assert (after, held) == (0, 0)
    assert said == "this container forbids Landlock: a submission can read and write every file that you can"
    assert "without Landlock" in reported


def test_a_report_says_what_is_not_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landlock, "version", lambda: 0)
    monkeypatch.setattr(seccomp, "is_supported", lambda: False)
    files, disk = confine.missing_protections()
    assert "without Landlock" in files
    assert "without a seccomp filter" in disk
    monkeypatch.setattr(landlock, "version", lambda: 1)
    monkeypatch.setattr(seccomp, "is_supported", lambda: True)
    assert confine.missing_protections() == ()


def test_an_emulated_process_gets_no_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    """A filter knows the calls of one machine, and the kernel sees those of another: it would forbid them all."""
    monkeypatch.setattr(HostInfo, "emulated_on", "aarch64")
    assert not seccomp.is_supported()
    assert not seccomp.restrict()
    assert not seccomp.describe_support()[0]


def test_the_dev_container_is_built_from_the_dockerfile() -> None:
    """The image has a checkout of its own; the editor's lies elsewhere, and its sources go first."""
    root = Path(__file__).resolve().parents[1]
    declared = json.loads((root / ".devcontainer" / "devcontainer.json").read_text())
    recipe = (root / ".devcontainer" / declared["build"]["dockerfile"]).resolve()
    assert recipe == root / "Dockerfile"
    lines = recipe.read_text().splitlines()
    assert f"USER {declared['remoteUser']}" in lines
    venv = next(line.partition("=")[2] for line in lines if line.startswith("ENV VIRTUAL_ENV="))
    assert declared["customizations"]["vscode"]["settings"]["python.defaultInterpreterPath"] == f"{venv}/bin/python"
    sources = ["${containerWorkspaceFolder}/src", "${containerWorkspaceFolder}/warpcheck/src"]
    assert declared["remoteEnv"]["PYTHONPATH"].split(":") == sources
    assert "ENV PATH=$VIRTUAL_ENV/bin:$PATH" in lines
