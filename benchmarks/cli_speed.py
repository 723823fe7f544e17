"""Print how long a learner waits for the command line, without a GPU.

python benchmarks/cli_speed.py
"""

from __future__ import annotations

import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from kernelpath.course import registry
from kernelpath.verdict import Verdict

RUNS = 7
SAVES = 11
TYPING_SECONDS = 3.0
VERDICTS = {verdict.value for verdict in Verdict}
KP = (sys.executable, "-m", "kernelpath.cli")


def main() -> None:
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start")
    with tempfile.TemporaryDirectory() as folder:
        checkout = solved_checkout(Path(folder))
        environment = {**os.environ, "KERNELPATH_CACHE": str(Path(folder) / "cache")}
        for command in (("list",), ("hint", "vector_add"), ("progress",)):
            times = [run(checkout, environment, *command) for _ in range(RUNS)]
            show(f"kp {' '.join(command)}", statistics.median(times))
        for cache in ("empty", "filled"):
            seconds = run(checkout, environment, "check", "vector_add", "--device", "cpu")
            show(f"kp check vector_add, {cache} kernel cache", seconds)
        times = watch(checkout, environment)
        show("kp watch vector_add, save to verdict, median", statistics.median(times))
        show("kp watch vector_add, save to verdict, worst", max(times))


def show(label: str, seconds: float) -> None:
    print(f"{label:48s} {seconds:6.2f} s", flush=True)


def solved_checkout(folder: Path) -> Path:
    """Return a copy of the exercises in which the learner's files are the solutions."""
    root = registry.root()
    checkout = folder / "course"
    shutil.copytree(root / "checks", checkout / "checks")
    for tree in ("phases", "solutions"):
        shutil.copytree(root / "solutions", checkout / tree)
    return checkout


def run(checkout: Path, environment: dict[str, str], *command: str) -> float:
    """Return the seconds of a command."""
    begun = time.perf_counter()
    subprocess.run([*KP, *command], cwd=checkout, env=environment, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - begun


def watch(checkout: Path, environment: dict[str, str]) -> list[float]:
    """Return the seconds from each save to its verdict.

    Every save moves the kernel's lines, so the kernel is compiled again.
    """
    kernel = checkout / "phases" / "1_architecture" / "w01b_vector_add.cu"
    source = kernel.read_text()
    times = []
    command = [*KP, "watch", "vector_add", "--device", "cpu"]
    with subprocess.Popen(command, cwd=checkout, env=environment, stdout=subprocess.PIPE, text=True) as watching:
        await_verdict(watching)
        for save in range(1, SAVES + 1):
            time.sleep(TYPING_SECONDS)
            begun = time.perf_counter()
            kernel.write_text("//\n" * save + source)
            await_verdict(watching)
            times.append(time.perf_counter() - begun)
        watching.send_signal(signal.SIGINT)
    return times


def await_verdict(watching: subprocess.Popen[str]) -> None:
    assert watching.stdout is not None
    for line in watching.stdout:
        if line.partition(" ")[0] in VERDICTS:
            if not line.startswith("PASSED"):
                raise SystemExit(f"the reference kernel did not pass: {line}")
            return
    raise SystemExit("kp watch has ended without a verdict")


if __name__ == "__main__":
    main()
