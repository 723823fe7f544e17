"""Test the detection of containers, WSL, emulation, and missing sandbox features of the host."""

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
DOCKER = ".dockerenv"
RELEASE = "proc/sys/kernel/osrelease"
ARCH = "proc/sys/kernel/arch"


def make_host(root: Path, files: dict[str, str], environment: dict[str, str] | None = None) -> HostInfo:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return HostInfo(root, environment or {})


@pytest.mark.parametrize(
    ("files", "environment", "description"),
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
def test_a_host_is_recognized_by_its_files_and_environment(
    tmp_path: Path, files: dict[str, str], environment: dict[str, str], description: str
) -> None:
    assert make_host(tmp_path, files, environment).assessment == (True, f"{description}, {MACHINE}", "")


def test_emulation_is_reported_with_the_native_platform(tmp_path: Path) -> None:
    """Under emulation, uname names the emulated machine; /proc names the machine of the kernel."""
    host = make_host(tmp_path, {ARCH: "riscv64\n", DOCKER: ""})
    fine, description, remedy = host.assessment
    assert not fine
    assert description.startswith(f"Docker container, {MACHINE} emulated on riscv64: some 10 times slower")
    assert make_host(tmp_path, {ARCH: "aarch64" if MACHINE == "x86_64" else "x86_64"}).assessment[2] == (
        f"build and run the image with --platform linux/{'arm64' if MACHINE == 'x86_64' else 'amd64'}"
    )
    assert "linux/" in remedy


def test_the_first_windows_subsystem_is_not_linux(tmp_path: Path) -> None:
    fine, description, remedy = make_host(tmp_path, {RELEASE: "4.4.0-19041-Microsoft"}).assessment
    assert (fine, remedy) == (False, "in Windows: wsl --set-version NAME 2")
    assert description.startswith("WSL1")


@pytest.mark.parametrize(
    ("files", "has_gpu", "detail", "remedy"),
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
def test_a_gpu_hidden_from_the_container_is_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, files: dict[str, str], has_gpu: bool, detail: str, remedy: str
) -> None:
    monkeypatch.setattr(doctor, "_has_nvidia_gpu", lambda: has_gpu)
    monkeypatch.setattr(gpu, "driver", lambda: "unknown")
    assessment = doctor._no_gpu("13.0", make_host(tmp_path, files))
    assert (assessment.detail, assessment.remedy) == (detail, remedy)


class Kernel:
    """A libc whose kernel gives this answer to the query for Landlock's version."""

    def __init__(self, answer: int) -> None:
        self.answer = answer

    def syscall(self, *_: object) -> int:
        return self.answer


@pytest.mark.parametrize(
    ("answer", "description"),
    [
        (7, "Landlock 7: files, TCP, signals"),
        (4, "Landlock 4: files, TCP; too old to hold signals"),
        (1, "Landlock 1: files; too old to hold TCP and signals"),
    ],
)
def test_an_old_landlock_reports_what_it_cannot_restrict(
    monkeypatch: pytest.MonkeyPatch, answer: int, description: str
) -> None:
    monkeypatch.setattr(landlock, "_libc", lambda: Kernel(answer))
    monkeypatch.setattr(landlock, "_use_is_forbidden", lambda: False)
    assert landlock.describe_support() == (True, description, "")


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (errno.EOPNOTSUPP, "Landlock is off in this kernel"),
        (errno.EPERM, "this container forbids Landlock"),
        (errno.ENOSYS, "no Landlock in this kernel"),
    ],
)
def test_a_missing_landlock_is_explained(monkeypatch: pytest.MonkeyPatch, error: int, why: str) -> None:
    monkeypatch.setattr(landlock, "_libc", lambda: Kernel(-1))
    monkeypatch.setattr("ctypes.get_errno", lambda: error)
    fine, description, remedy = landlock.describe_support()
    assert (fine, description) == (False, f"{why}: a submission can read and write every file that you can")
    assert remedy


def restrict_filtered(call: int, error: int) -> tuple[int, int, int, str, str]:
    """Restrict this process where a system call of Landlock ends in an error.

    Return the version before and after, the version that holds, what doctor says, and what a report says.
    """
    # SECCOMP_RET_ALLOW, and SECCOMP_RET_ERRNO with the error in its low 16 bits.
    allow = 0x7FFF0000
    refuse = 0x00050000 | error
    # A classic BPF program: load the number of the system call, refuse if it equals `call`, allow any other.
    steps = ((0x20, 0, 0, 0), (0x15, 0, 1, call), (0x06, 0, 0, refuse), (0x06, 0, 0, allow))
    program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    libc = ctypes.CDLL(None)
    before = landlock.version()
    # PR_SET_NO_NEW_PRIVS, without which the kernel accepts no filter; then PR_SET_SECCOMP with SECCOMP_MODE_FILTER.
    libc.prctl(38, 1, 0, 0, 0)
    assert libc.prctl(22, 2, ctypes.create_string_buffer(struct.pack("HP", len(steps), ctypes.addressof(program)))) == 0
    effective_version = landlock.restrict([Path("/usr")], [])
    return (
        before,
        landlock.version(),
        effective_version,
        landlock.describe_support()[1],
        confine.missing_protections()[0],
    )


@pytest.mark.skipif(landlock.version() == 0, reason="this kernel has no Landlock, or forbids it")
@pytest.mark.parametrize("call", [445, 446])  # landlock_add_rule, landlock_restrict_self
@pytest.mark.parametrize("error", [errno.EPERM, errno.ENOSYS])
def test_a_container_that_permits_only_the_version_query_has_no_landlock(call: int, error: int) -> None:
    """A regression: no worker started in such a container, although kp doctor reported Landlock as usable."""
    before, after, effective_version, doctor_text, report_text = fresh_process.call(restrict_filtered, call, error)
    assert before > 0
    assert (after, effective_version) == (0, 0)
    assert doctor_text == "this container forbids Landlock: a submission can read and write every file that you can"
    assert "without Landlock" in report_text


def test_a_report_lists_missing_protections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landlock, "version", lambda: 0)
    monkeypatch.setattr(seccomp, "is_supported", lambda: False)
    files, disk = confine.missing_protections()
    assert "without Landlock" in files
    assert "without a seccomp filter" in disk
    monkeypatch.setattr(landlock, "version", lambda: 1)
    monkeypatch.setattr(seccomp, "is_supported", lambda: True)
    assert confine.missing_protections() == ()


def test_an_emulated_process_gets_no_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    """A filter contains the system call numbers of one machine; the kernel of another would refuse every call."""
    monkeypatch.setattr(HostInfo, "emulated_on", "aarch64")
    assert not seccomp.is_supported()
    assert not seccomp.restrict()
    assert not seccomp.describe_support()[0]


def test_the_dev_container_is_built_from_the_dockerfile() -> None:
    """The image contains a checkout, and the editor opens another, whose sources must be imported first."""
    root = Path(__file__).resolve().parents[1]
    dev_container = json.loads((root / ".devcontainer" / "devcontainer.json").read_text())
    dockerfile = (root / ".devcontainer" / dev_container["build"]["dockerfile"]).resolve()
    assert dockerfile == root / "Dockerfile"
    lines = dockerfile.read_text().splitlines()
    assert f"USER {dev_container['remoteUser']}" in lines
    venv = next(line.partition("=")[2] for line in lines if line.startswith("ENV VIRTUAL_ENV="))
    assert (
        dev_container["customizations"]["vscode"]["settings"]["python.defaultInterpreterPath"] == f"{venv}/bin/python"
    )
    sources = ["${containerWorkspaceFolder}/src", "${containerWorkspaceFolder}/warpcheck/src"]
    assert dev_container["remoteEnv"]["PYTHONPATH"].split(":") == sources
    assert "ENV PATH=$VIRTUAL_ENV/bin:$PATH" in lines
