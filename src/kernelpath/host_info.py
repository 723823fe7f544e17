"""Determine where this process runs: on Linux itself, or in a container, a virtual machine or an emulator."""

from __future__ import annotations

import contextlib
import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from warpcheck import threads

_ROOT = Path("/")

# The kinds of containers, by the file that each leaves at its root.
_CONTAINERS = {".dockerenv": "Docker container", "run/.containerenv": "Podman container"}

# The cloud services, by the variable that each sets.
_SERVICES = {
    "CODESPACES": "Codespaces",
    "COLAB_RELEASE_TAG": "Colab",
    "KAGGLE_KERNEL_RUN_TYPE": "Kaggle",
    "KUBERNETES_SERVICE_HOST": "Kubernetes",
}

# Host memory of one grading: fork server, PTX machine and two workers with a compiler each.
JOB_BYTES = 3 << 29


@dataclass(frozen=True)
class HostInfo:
    """Reads facts about the host from files below `root` and from the environment."""

    root: Path = _ROOT
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)

    @property
    def container(self) -> str:
        """The kind of container that this is; empty outside of a container."""
        for mark, name in _CONTAINERS.items():
            if (self.root / mark).exists():
                return name
        return "container" if self.environment.get("container") else ""

    @property
    def service(self) -> str:
        return next((name for variable, name in _SERVICES.items() if self.environment.get(variable)), "")

    @property
    def default_jobs(self) -> int:
        """The number of gradings that run at the same time by default."""
        return max(1, min(self.usable_cores, self.free_memory // JOB_BYTES))

    @property
    def memory_shortage(self) -> str:
        """A warning that less memory is free than one grading uses; empty where there is enough."""
        free = self.free_memory
        if free >= JOB_BYTES:
            return ""
        return (
            f"{free / 1e9:.1f} GB of memory are free, and a grading takes up to {JOB_BYTES / 1e9:.1f} GB, without "
            "which it may end as CRASHED: choose a container with 2 GB"
        )

    @property
    def usable_cores(self) -> int:
        """The cores that this process may use: by its affinity, and by the quota of its control groups (cpu.max)."""
        return threads.usable_cores(self.root)

    @property
    def free_memory(self) -> int:
        """Bytes that this process may still allocate: of the computer, and within the limits of its control groups.

        Memory that the kernel can reclaim at once counts as free: pages of files that nobody used lately.
        """
        available = (self.root / "proc/meminfo").read_text(encoding="ascii")
        free = 1024 * _field(available, "MemAvailable:")
        names = (
            ("memory.max", "memory.current", "inactive_file"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        )
        for group in threads.control_groups("memory", self.root):
            for limit, usage, droppable in names:
                with contextlib.suppress(OSError, ValueError):
                    unused = int((group / limit).read_text()) - int((group / usage).read_text())
                    free = min(free, unused + _field((group / "memory.stat").read_text(), droppable))
        return max(0, free)

    @property
    def wsl(self) -> int:
        """The version of the Windows Subsystem for Linux; 0 outside of it. A container of Docker for Windows is inside
        it.

        Its kernels carry the name: 4.4.0-19041-Microsoft in version 1, which has no Linux kernel, and
        6.6.87.2-microsoft-standard-WSL2 in version 2.
        """
        release = self._kernel("osrelease")
        if "microsoft" not in release.lower():
            return 0
        return 2 if "wsl2" in release.lower() else 1

    @property
    def machine(self) -> str:
        """The architecture that programs are compiled for, such as x86_64."""
        return platform.machine()

    @property
    def emulated_on(self) -> str:
        """The architecture of the machine that emulates this one; empty where programs run natively.

        Emulators of one process (qemu-user, Rosetta) intercept uname, but not this file, which the kernel has since
        6.1.
        """
        host_architecture = self._kernel("arch")
        return host_architecture if host_architecture not in ("", self.machine) else ""

    @property
    def shared_bytes(self) -> int:
        """The size of /dev/shm; 0 without one."""
        try:
            status = os.statvfs(self.root / "dev/shm")
        except OSError:
            return 0
        return status.f_blocks * status.f_frsize

    @property
    def description(self) -> str:
        """A phrase with all of this: "Docker container in WSL2, aarch64"."""
        windows = f"WSL{self.wsl}" if self.wsl else ""
        location = " in ".join(filter(None, (self.container, self.service or windows))) or "Linux"
        machine = f"{self.machine} emulated on {self.emulated_on}" if self.emulated_on else self.machine
        return f"{location}, {machine}"

    @property
    def assessment(self) -> tuple[bool, str, str]:
        """The assessment: whether checks run here as they should, a description of the host, and a remedy."""
        if self.emulated_on:
            native = "arm64" if self.emulated_on == "aarch64" else "amd64"
            slow = f"{self.description}: some 10 times slower, so that a check may run out of time"
            return False, slow, f"build and run the image with --platform linux/{native}"
        if self.wsl == 1:
            return False, f"{self.description}: not a Linux kernel", "in Windows: wsl --set-version NAME 2"
        return True, self.description, ""

    def _kernel(self, name: str) -> str:
        try:
            return (self.root / "proc/sys/kernel" / name).read_text(encoding="ascii", errors="replace").strip()
        except OSError:
            return ""


def _field(text: str, name: str) -> int:
    """Return the number after a name in a file with a name and a number in each line. Raise ValueError without the
    name.
    """
    for line in text.splitlines():
        if line.startswith(f"{name} "):
            return int(line.split()[1])
    raise ValueError(f"no {name}")
