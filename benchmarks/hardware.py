"""What the PTX machine is held against: ncu's counters and compute-sanitizer's findings, on a GPU.

    python benchmarks/hardware.py results/h200_hardware.json

Every access pattern of tests/simt/patterns.py is launched under ncu, every planted bug of tests/simt/test_faults.py
under the tool of compute-sanitizer for its kind. tests/simt/test_hardware.py replays the counters without a GPU.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from kernelpath import registry

HERE = registry.root()
sys.path.insert(0, str(HERE / "tests" / "simt"))

import peers  # noqa: E402
from patterns import BLOCK, FLOATS, GRID, PATTERNS  # noqa: E402
from test_faults import BUGS, Bug  # noqa: E402

METRICS = {
    "global_load_requests": "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
    "global_load_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "global_store_requests": "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum",
    "global_store_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
    "shared_load_requests": "smsp__inst_executed_op_shared_ld.sum",
    "shared_load_wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
    "shared_store_requests": "smsp__inst_executed_op_shared_st.sum",
    "shared_store_wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
}
TOOLS = {
    "OUT_OF_BOUNDS": "memcheck",
    "MISALIGNED": "memcheck",
    "RACE": "racecheck",
    "UNINITIALIZED": "initcheck",
    "BARRIER": "synccheck",
    "BAD_MASK": "synccheck",
}


def launch() -> None:
    """Every pattern once, for ncu to watch."""
    import torch

    from kernelpath.lanes import cuda

    a, b = torch.zeros(2, FLOATS, device="cuda")
    for pattern in PATTERNS:
        cuda.Kernel(f"{pattern.name}.cu", pattern.source, pattern.name)[GRID, BLOCK](a, b)
    torch.cuda.synchronize()


def counters() -> dict[str, dict[str, int]]:
    """ncu's counts by pattern and by the name that the PTX machine gives them."""
    names = "|".join(pattern.name for pattern in PATTERNS)
    command = ["ncu", "--clock-control", "none", "--csv", "--page", "raw", "-k", f"regex:^({names})$"]
    command += ["--metrics", ",".join(METRICS.values()), sys.executable, __file__, "--launch"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    table = done.stdout[done.stdout.index('"ID"') :].splitlines()
    rows = [row for row in csv.DictReader(table) if row["ID"]]
    return {
        row["Kernel Name"].partition("(")[0]: {
            ours: int(float(row[theirs].replace(",", ""))) for ours, theirs in METRICS.items()
        }
        for row in rows
    }


def machine() -> dict[str, dict[str, int]]:
    """What the PTX machine counts for the same launches."""
    import torch

    from kernelpath import lanes
    from kernelpath.lanes import cuda

    a, b = torch.zeros(2, FLOATS)
    found: dict[str, dict[str, int]] = {}
    for pattern in PATTERNS:
        launched: list[lanes.Launched] = []
        with lanes.observe(launched.append):
            cuda.Kernel(f"{pattern.name}.cu", pattern.source, pattern.name)[GRID, BLOCK](a, b)
        counted = launched[0].counted
        assert counted is not None
        found[pattern.name] = {name: getattr(counted.totals, name) for name in METRICS}
    return found


def program(bugs: list[Bug]) -> str:
    """A CUDA program that runs the bug whose number it is given."""
    kernels = "\n".join(
        f'namespace bug_{k} {{\n#line 1 "{bug.name}.cu"\n{bug.source}\n}}' for k, bug in enumerate(bugs)
    )
    cases = "\n".join(
        f"case {k}: {''.join(f'fresh({x});' for x in bug.fresh)}"
        f" bug_{k}::kernel<<<{bug.grid}, {bug.block}>>>(p[0], p[1], p[2], 1000); break;"
        for k, bug in enumerate(bugs)
    )
    return f"""#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>
{kernels}
#line 1 "main.cu"
float* p[3];
void fresh(int k) {{ cudaFree(p[k]); cudaMalloc(&p[k], 4000); }}
int main(int count, char** arguments) {{
    for (int k = 0; k < 3; ++k) {{ cudaMalloc(&p[k], 4000); cudaMemset(p[k], 0, 4000); }}
    switch (atoi(arguments[1])) {{ {cases} }}
    return cudaDeviceSynchronize() != cudaSuccess;
}}
"""


def sanitizer() -> dict[str, dict[str, object]]:
    """For each planted bug: the tool for its kind, whether it complained, and whether it named the line."""
    bugs = [bug for bug in BUGS if bug.kind.name in TOOLS]
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "bugs.cu")
        source.write_text(program(bugs))
        subprocess.run(["nvcc", "-arch=native", "-lineinfo", "-o", folder + "/bugs", str(source)], check=True)
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            found = pool.map(lambda k: _examine(Path(folder, "bugs"), k, bugs[k]), range(len(bugs)))
            return dict(zip((bug.name for bug in bugs), found, strict=True))


def _examine(executable: Path, number: int, bug: Bug) -> dict[str, object]:
    tool = TOOLS[bug.kind.name]
    command = ["compute-sanitizer", "--tool", tool, "--error-exitcode", "9", str(executable), str(number)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        said, status = done.stdout + done.stderr, done.returncode
    except subprocess.TimeoutExpired as expired:
        said, status = str(expired.stdout), -1
    return {"tool": tool, "found": status == 9, "line": f"{bug.name}.cu:{bug.line}" in said, "hung": status == -1}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path, nargs="?")
    parser.add_argument("--launch", action="store_true", help="only launch the patterns")
    options = parser.parse_args()
    if options.launch:
        launch()
        return
    from kernelpath.timing import Stopwatch

    recorded = peers.machine(Stopwatch()) | {"counters": counters(), "machine": machine()}
    for name, counted in recorded["counters"].items():
        ours = recorded["machine"][name]
        print(
            f"{name:<24}", {key: (ours[key], counted[key]) for key in METRICS if ours[key] != counted[key]} or "equal"
        )
    options.path.write_text(json.dumps(recorded, indent=1) + "\n")
    recorded["sanitizer"] = sanitizer()
    for name, row in recorded["sanitizer"].items():
        print(f"{name:<40}", row)
    options.path.write_text(json.dumps(recorded, indent=1) + "\n")


if __name__ == "__main__":
    main()
