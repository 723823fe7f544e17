"""Whether the course is the same on aarch64: tests of the PTX machine, and a check of each lane beside the one here.

`make test-aarch64` runs it, as root on x86-64. Debian's arm64 root and the packages go to the folder AARCH64_ROOT, by
default below /var/tmp; qemu-user runs them, some 10 times slower than the machine itself.

    python tests/aarch64.py                       # everything; 4 GB on the disk
    python tests/aarch64.py tests/simt/test_x.py  # these tests, and no checks
    python tests/aarch64.py --verdicts vector_add # what one machine says of an exercise, as JSON
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parents[1]
ROOT = Path(os.environ.get("AARCH64_ROOT", "/var/tmp/kernelpath-aarch64"))
PYTHON, ABI = "3.11", "manylinux_2_36"  # of Debian 12
PACKAGES = ROOT / f"usr/local/lib/python{PYTHON}/dist-packages"
TOOLS = ("debootstrap", "qemu-aarch64-static", "update-binfmts", "unshare")
TORCH = "torch<2.11"  # the newest that comes to aarch64 without CUDA
TESTS = ("kernels", "floats", "integers", "conversions", "halves", "counters", "faults", "order", "triton", "wgmma")
EXERCISES = ("vector_add", "vector_add_triton", "vector_copy", "portability", "occupancy")
"""One of each lane, and one without kernels."""

PATIENCE = 100
"""Times as long as otherwise may an answer take: an emulator shares its core with others."""


def main(arguments: Sequence[str]) -> int:
    if arguments[:1] == ["--verdicts"]:
        wait_longer()
        print(json.dumps({name: verdict(name) for name in arguments[1:]}, indent=1))
        return 0
    install()
    tests = list(arguments) or [f"tests/simt/test_{name}.py" for name in TESTS]
    failed = emulated("-m", "pytest", *tests, "-n0", "-p", "no:cacheprovider", "--timeout", "0").returncode
    return failed or (0 if arguments else compared())


def compared() -> int:
    """Whether both machines say the same of each exercise. Prints what differs."""
    asked = ("tests/aarch64.py", "--verdicts", *EXERCISES)
    here = subprocess.run([sys.executable, *asked], cwd=HERE, stdout=subprocess.PIPE, check=True)
    there = emulated(*asked, stdout=subprocess.PIPE)
    expected, found = json.loads(here.stdout), json.loads(there.stdout)
    for name in EXERCISES:
        parts = [part for part in expected[name] if expected[name][part] != found[name][part]]
        print(f"{name}: {found[name]['verdict']}, " + (f"another {', '.join(parts)}" if parts else "equal"))
    return int(expected != found)


def verdict(name: str) -> dict[str, Any]:
    """What this machine says of a solution, but for times, and with the counters of every line."""
    from kernelpath.course import registry
    from kernelpath.grading import grade

    item = registry.find(name)
    graded = grade.grade(item, item.submission("solutions"), device="cpu", seed=1)
    return {
        "verdict": graded.verdict.value,
        "cause": graded.cause,
        "stars": graded.stars,
        "cases": [(dict(one.case), one.verdict.value, one.cause) for one in graded.cases],
        "traffic": [asdict(line) for line in graded.traffic],
        "instructions": [asdict(line) for line in graded.instructions],
    }


def wait_longer() -> None:
    """Let answers take PATIENCE times as long."""
    from kernelpath.work import host, runner

    for name in ("START_SECONDS", "CASE_SECONDS", "COMPILE_SECONDS"):
        setattr(runner, name, PATIENCE * getattr(runner, name))
    for name in ("_LEAVING_SECONDS", "_TAKING_SECONDS"):
        setattr(host, name, PATIENCE * getattr(host, name))


ENTER = f"""
mkdir -p "$0/course"
mount -t proc proc "$0/proc"
mount --rbind /dev "$0/dev"
mount --bind . "$0/course"
exec chroot "$0" sh -c 'cd /course && exec python{PYTHON} "$@"' sh "$@"
"""
"""What a shell does in mounts of its own, which go with it."""


def emulated(*arguments: str, stdout: int | None = None) -> subprocess.CompletedProcess[bytes]:
    """Run Python on aarch64 in this checkout, which is mounted at /course there."""
    variables = {
        "HOME": "/root",
        "PATH": "/usr/bin:/bin:/usr/sbin:/sbin",
        "PYTHONPATH": "/course/src",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = ["unshare", "--mount", "sh", "-ec", ENTER, str(ROOT), *arguments]
    return subprocess.run(command, cwd=HERE, env=variables, stdout=stdout)


def install() -> None:
    """Make the root and put the packages into it, unless they are there. Ends with a sentence where that cannot be."""
    if os.geteuid():
        raise SystemExit("only root makes and enters a root of Debian's: sudo make test-aarch64")
    if lacking := [tool for tool in TOOLS if not shutil.which(tool)]:
        raise SystemExit(f"{', '.join(lacking)}: missing; apt install debootstrap qemu-user-static binfmt-support")
    if not (ROOT / f"usr/bin/python{PYTHON}").exists():
        subprocess.run(["update-binfmts", "--enable", "qemu-aarch64"])
        packages = f"--include=python{PYTHON},gcc,libc6-dev"
        subprocess.run(["debootstrap", "--arch=arm64", "--variant=minbase", packages, "bookworm", ROOT], check=True)
    if not (PACKAGES / "torch").exists():  # uv, not pip, heeds the markers of another platform than its own
        target = [f"--python-platform=aarch64-{ABI}", f"--python-version={PYTHON}", f"--target={PACKAGES}.part"]
        wanted = ["--only-binary=:all:", "--requirements=pyproject.toml", "--extra=test", TORCH]
        subprocess.run([sys.executable, "-m", "uv", "pip", "install", *target, *wanted], cwd=HERE, check=True)
        Path(f"{PACKAGES}.part").rename(PACKAGES)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
