"""Record one step of a program on a GPU: torch.profiler's Chrome trace, and ncu's counters of the same kernels.

The program is a Python file that defines `step()`. It runs in processes of its own (`main`), once under torch.profiler
and once under ncu, which replays each kernel for the counters of each pass.
"""

from __future__ import annotations

import os
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import kernelpath
import warpcheck

# The steps before the recorded step: libraries choose their kernels in them, and allocators cache memory.
WARM_UP = 5

STALLS = (
    *("barrier", "branch_resolving", "dispatch_stall", "drain", "gmma", "imc_miss", "lg_throttle", "long_scoreboard"),
    *("math_pipe_throttle", "membar", "mio_throttle", "misc", "no_instruction", "not_selected", "selected"),
    *("short_scoreboard", "sleeping", "tex_throttle", "wait"),
)
METRICS = (
    "gpu__time_duration.sum",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "dram__bytes_read.sum",
    "dram__bytes_write.sum",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
    "sm__warps_active.avg.pct_of_peak_sustained_active",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
    "launch__registers_per_thread",
    "launch__block_size",
    "launch__grid_size",
    *(f"smsp__average_warps_issue_stalled_{reason}_per_issue_active.ratio" for reason in STALLS),
)

_PERMISSION = "ERR_NVGPUCTRPERM"


class RecordingFailed(Exception):
    """There is no trace. The message says why."""


def record_step(file: Path, folder: Path, progress: Callable[[str], None]) -> str:
    """Write trace.json and, where ncu can, ncu.csv to the folder. Return why there are no counters, or "".

    Raises:
        RecordingFailed: There is no trace.
    """
    folder.mkdir(parents=True, exist_ok=True)
    trace = folder / "trace.json"
    counters = folder / "ncu.csv"
    for old in (trace, counters):
        old.unlink(missing_ok=True)
    program = [sys.executable, "-m", "kernelpath.work.recording", str(file.resolve())]
    progress("recording with torch.profiler")
    if failure := _failure([*program, str(trace.resolve())]):
        raise RecordingFailed(failure)
    ncu = shutil.which("ncu")
    if ncu is None:
        return "there is no ncu in PATH; install Nsight Compute, or add its folder to PATH"
    progress("recording with ncu, which runs each kernel many times")
    # By default ncu locks the GPU to its base clock, and the times would not fit the trace. Counters are collected only
    # between cudaProfilerStart and cudaProfilerStop.
    options = ("--target-processes=all", "--profile-from-start=off", "--clock-control=none")
    output = ("--csv", "--page=raw", "--print-units=base", f"--log-file={counters.resolve()}")
    failure = _failure([ncu, *options, *output, f"--metrics={','.join(METRICS)}", *program])
    csv = counters.read_text(encoding="utf-8", errors="replace") if counters.is_file() else ""
    if not failure and '"Kernel Name"' in csv:
        return ""
    counters.unlink(missing_ok=True)
    if _PERMISSION in csv + failure:
        return "this user may not read the GPU's counters; an administrator can allow it (search for ERR_NVGPUCTRPERM)"
    error = next((line for line in csv.splitlines() if "ERROR" in line), failure or "it profiled no kernel")
    return f"ncu failed: {error}"


def _failure(command: list[str]) -> str:
    """Run a command. Return the last line that it printed where it failed, else ""."""
    # The program's interpreter imports both packages from where this process has them, installed or not.
    folders = [str(Path(package.__path__[0]).parent) for package in (kernelpath, warpcheck)]
    path = os.pathsep.join(filter(None, (*folders, os.environ.get("PYTHONPATH"))))
    process = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": path}
    )
    lines = (process.stdout + process.stderr).strip().splitlines() or ["it said nothing"]
    return "" if process.returncode == 0 else lines[-1]


def main(file: str, trace: str = "") -> None:
    """Run the program's step after warm-up steps, under torch.profiler where a file for the trace is given."""
    import torch

    if not torch.cuda.is_available():
        raise SystemExit("there is no GPU that torch can use; kp doctor says why")
    step = runpy.run_path(file).get("step")
    if not callable(step):
        raise SystemExit(f"{Path(file).name} defines no function step(), which runs what is to be recorded")
    for _ in range(WARM_UP):
        step()
    torch.cuda.synchronize()
    if not trace:
        torch.cuda.cudart().cudaProfilerStart()
        step()
        torch.cuda.synchronize()
        torch.cuda.cudart().cudaProfilerStop()
        return
    profiler = torch.profiler
    activities = [profiler.ProfilerActivity.CPU, profiler.ProfilerActivity.CUDA]
    # The start of the profiler costs time, which would show in the trace. So two steps are traced and discarded.
    schedule = profiler.schedule(wait=0, warmup=2, active=1, repeat=1)
    with profiler.profile(
        activities=activities,
        schedule=schedule,
        on_trace_ready=lambda active_profiler: active_profiler.export_chrome_trace(trace),
    ) as active_profiler:
        for _ in range(3):
            step()
            torch.cuda.synchronize()
            active_profiler.step()


if __name__ == "__main__":
    main(*sys.argv[1:])
