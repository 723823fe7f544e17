"""Where this process runs: on Linux itself, or on a Linux that something else provides, and what that leaves out."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

_ROOT = Path("/")
_CONTAINERS = {".dockerenv": "Docker container", "run/.containerenv": "Podman container"}
"""By the file that each leaves at its root."""

_SERVICES = {
    "CODESPACES": "Codespaces",
    "COLAB_RELEASE_TAG": "Colab",
    "KAGGLE_KERNEL_RUN_TYPE": "Kaggle",
    "KUBERNETES_SERVICE_HOST": "Kubernetes",
}
"""The variable that each sets."""


@dataclass(frozen=True)
class Surroundings:
    """What a process can learn of where it runs, from files below `root` and from its environment."""

    root: Path = _ROOT
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)

    @property
    def container(self) -> str:
        """The kind of container that this is; empty outside of one."""
        for mark, name in _CONTAINERS.items():
            if (self.root / mark).exists():
                return name
        return "container" if self.environment.get("container") else ""

    @property
    def service(self) -> str:
        return next((name for variable, name in _SERVICES.items() if self.environment.get(variable)), "")

    @property
    def wsl(self) -> int:
        """The version of the Windows Subsystem for Linux; 0 outside of it. A container of Docker for Windows is in it.

        Its kernels carry the name: 4.4.0-19041-Microsoft in the first version, which has no Linux underneath,
        6.6.87.2-microsoft-standard-WSL2 in the second.
        """
        release = self._kernel("osrelease")
        return 0 if "microsoft" not in release.lower() else 2 if "wsl2" in release.lower() else 1

    @property
    def machine(self) -> str:
        """What programs are compiled for, as x86_64."""
        return platform.machine()

    @property
    def emulated_on(self) -> str:
        """The machine that emulates this one; empty where programs run natively.

        Emulators of one process (qemu-user, Rosetta) answer uname, but not this file, which the kernel has since 6.1.
        """
        beneath = self._kernel("arch")
        return beneath if beneath not in ("", self.machine) else ""

    @property
    def shared_bytes(self) -> int:
        """The size of /dev/shm; 0 without one."""
        try:
            status = os.statvfs(self.root / "dev/shm")
        except OSError:
            return 0
        return status.f_blocks * status.f_frsize

    @property
    def told(self) -> str:
        """All of it in one phrase: "Docker container in WSL2, aarch64"."""
        windows = f"WSL{self.wsl}" if self.wsl else ""
        place = " in ".join(filter(None, (self.container, self.service or windows))) or "Linux"
        machine = f"{self.machine} emulated on {self.emulated_on}" if self.emulated_on else self.machine
        return f"{place}, {machine}"

    @property
    def judged(self) -> tuple[bool, str, str]:
        """Whether checks run here as they should, what this is, and what to do about it."""
        if self.emulated_on:
            native = "arm64" if self.emulated_on == "aarch64" else "amd64"
            slow = f"{self.told}: some 10 times slower, so that a check may run out of time"
            return False, slow, f"build and run the image with --platform linux/{native}"
        if self.wsl == 1:
            return False, f"{self.told}: not a Linux kernel", "in Windows: wsl --set-version NAME 2"
        return True, self.told, ""

    def _kernel(self, name: str) -> str:
        try:
            return (self.root / "proc/sys/kernel" / name).read_text(encoding="ascii", errors="replace").strip()
        except OSError:
            return ""
