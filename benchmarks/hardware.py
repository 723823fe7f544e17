"""Record ncu's counters and compute-sanitizer's findings on a GPU, to compare the PTX machine with them.

    python benchmarks/hardware.py results/h200_hardware.json
    python benchmarks/hardware.py results/h200_corpus.json --only corpus

The access patterns, the kernels of the corpus, and the planted bugs are in warpcheck/tests/machine (patterns.py,
corpus, bugs.py). Patterns, the corpus, and every reference kernel are launched under ncu, and each bug under the tool
of compute-sanitizer for its kind. test_hardware.py compares patterns and corpus without a GPU. Reference kernels are
compiled for the GPU when they run on it, and for sm_80 on the PTX machine.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from kernelpath.course import registry
from warpcheck import frontends

HERE = registry.root()
sys.path.insert(0, str(HERE / "warpcheck" / "tests"))

import peers  # noqa: E402

from machine import corpus  # noqa: E402
from machine import hopper_patterns as hopper  # noqa: E402
from machine.bugs import BUGS, Bug  # noqa: E402
from machine.patterns import BLOCK, FLOATS, GRID, PATTERNS  # noqa: E402

Launchable = tuple[str, Callable[[], object]]

# ncu's metrics that add up to each counter of the PTX machine. Metrics with a minus are subtracted: wavefronts of
# asynchronous copies have no metric of their own.
METRICS = {
    "global_load_requests": ["l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"],
    "global_load_sectors": ["l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"],
    "global_store_requests": [f"l1tex__t_requests_pipe_lsu_mem_global_op_{op}.sum" for op in ("st", "red", "atom")],
    "global_store_sectors": [f"l1tex__t_sectors_pipe_lsu_mem_global_op_{op}.sum" for op in ("st", "red", "atom")],
    "shared_load_requests": ["smsp__inst_executed_op_shared_ld_pred_on_any.sum"],
    "shared_load_wavefronts": ["l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum"],
    "shared_store_requests": [
        f"smsp__inst_executed_op_{op}_pred_on_any.sum" for op in ("shared_st", "shared_atom", "ldgsts")
    ],
    "shared_store_wavefronts": [
        "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
        "-l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
        "-l1tex__data_pipe_lsu_wavefronts_mem_shared_op_misc.sum",
    ],
}

# Without asynchronous copies, because ncu's total has wavefronts that belong to no instruction.
CORPUS_METRICS = METRICS | {
    "shared_store_wavefronts": [f"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{op}.sum" for op in ("st", "atom")]
}

# With boxes and spans. A load is counted once for each block of a cluster that it reaches.
HOPPER_METRICS = CORPUS_METRICS | {
    "bulk_load_sectors": ["l1tex__m_xbar2l1tex_read_sectors_mem_global_op_tma_ld.sum"],
    "bulk_store_sectors": [f"l1tex__m_l1tex2xbar_write_sectors_mem_global_op_tma_{op}.sum" for op in ("st", "red")],
}

SUMS = {"corpus": CORPUS_METRICS, "hopper": HOPPER_METRICS}

TOOLS = {
    "OUT_OF_BOUNDS": "memcheck",
    "MISALIGNED": "memcheck",
    "RACE": "racecheck",
    "UNINITIALIZED": "initcheck",
    "BARRIER": "synccheck",
    "BAD_MASK": "synccheck",
}


def patterns(device: str) -> Iterator[Launchable]:
    """Yield the launch of every access pattern."""
    import torch

    from warpcheck.frontends import cuda

    a, b = torch.zeros(2, FLOATS, device=device)
    for pattern in PATTERNS:
        kernel = cuda.Kernel(f"{pattern.name}.cu", pattern.source, pattern.name)[GRID, BLOCK]
        yield pattern.name, partial(kernel, a, b)


def hopper_patterns(device: str) -> Iterator[Launchable]:
    """Yield the launch of every pattern for sm_90a."""
    import torch

    from warpcheck.frontends import cuda

    for pattern in hopper.PATTERNS:
        mapped, source, out = torch.zeros(3, hopper.SIDE, hopper.SIDE, device=device)
        box = cuda.tensor_map(mapped, pattern.box, swizzle=pattern.swizzle)
        cluster = (pattern.blocks, 1, 1) if pattern.blocks > 1 else None
        attributes = cuda.LaunchAttributes(cluster=cluster)
        kernel = cuda.Kernel(f"{pattern.name}.cu", pattern.source, "kernel", attributes=attributes)
        yield pattern.name, partial(kernel[pattern.blocks, pattern.threads, hopper.SHARED], box, source, out)


def usual_kernels(device: str) -> Iterator[Launchable]:
    """Yield the launch of every kernel in the corpus."""
    import torch

    from warpcheck.frontends import cuda

    for usual in corpus.KERNELS:
        a, c, b = (torch.from_numpy(array).to(device) for array in corpus.inputs())
        kernel = cuda.Kernel(f"{usual.name}.cu", usual.source, usual.name)[usual.grid, usual.block]
        yield usual.name, partial(kernel, a, c, b, usual.n)


def reference_kernels(device: str) -> Iterator[Launchable]:
    """Yield the call of every reference kernel on its largest declared case, after a first call that compiles."""
    from kernelpath.grading.ground_truth import generate_inputs
    from warpcheck.frontends import triton

    triton.activate(device)
    for item in registry.exercises():
        exercise = registry.load(item)
        if not exercise.runs_on_gpu:
            continue
        case = max(exercise.cases, key=lambda case: exercise.compulsory_bytes(**case))
        inputs = peers.move_inputs(generate_inputs(exercise, case, 1, "cpu"), device)
        entry = getattr(registry.import_file(item.reference, f"hardware_{item.name}"), exercise.entry)
        entry(*inputs)
        yield item.name, partial(entry, *inputs)


PARTS = {"counters": patterns, "corpus": usual_kernels, "hopper": hopper_patterns, "kernels": reference_kernels}


def launch(part: str, log: Path) -> None:
    """Make the launches of a part on the GPU under ncu, and log the names that belong to each kernel."""
    import torch

    launches: list[tuple[str, str]] = []
    for name, call in PARTS[part]("cuda"):
        torch.cuda.synchronize()
        torch.cuda.profiler.start()
        records: list[frontends.Launched] = []
        with frontends.observe(records.append):
            call()
        launches += [(name, record.name) for record in records]
        torch.cuda.synchronize()
        torch.cuda.profiler.stop()
    log.write_text(json.dumps(launches))


def counters(part: str) -> dict[str, dict[str, int]]:
    """Return ncu's counters of a part's launches, by the name of the launch and of the PTX machine's counter."""
    sums = SUMS.get(part, METRICS)
    metrics = sorted({metric.lstrip("-") for terms in sums.values() for metric in terms})
    command = ["ncu", "--clock-control", "none", "--csv", "--page", "raw", "--metrics", ",".join(metrics)]
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "names")
        command += ["--profile-from-start", "off", sys.executable, __file__, "--launch", part, str(log)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        launches = json.loads(log.read_text())
    rows = [row for row in csv.DictReader(done.stdout[done.stdout.index('"ID"') :].splitlines()) if row["ID"]]
    by_launch: dict[str, dict[str, int]] = {}
    for (name, kernel), row in zip(launches, rows, strict=True):
        assert kernel.partition("<")[0] in row["Kernel Name"]
        totals = by_launch.setdefault(name, dict.fromkeys(sums, 0))
        for ours, terms in sums.items():
            totals[ours] += sum(_number(row, term) for term in terms)
    return by_launch


def _number(row: dict[str, str], term: str) -> int:
    count = int(float(row[term.lstrip("-")].replace(",", "")))
    return -count if term.startswith("-") else count


def machine(part: str) -> dict[str, dict[str, int]]:
    """Return the PTX machine's counters of the same launches."""
    by_launch: dict[str, dict[str, int]] = {}
    for name, call in PARTS[part]("cpu"):
        records: list[frontends.Launched] = []
        with frontends.observe(records.append):
            call()
        totals = [record.counted.totals for record in records if record.counted is not None]
        by_launch[name] = {ours: sum(getattr(total, ours) for total in totals) for ours in SUMS.get(part, METRICS)}
    return by_launch


def program(bugs: list[Bug]) -> str:
    """Return a CUDA program that runs the bug with the number in its argument."""
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
    """Return, for each planted bug, the tool for its kind, whether the tool reported it, and whether with the line."""
    bugs = [bug for bug in BUGS if bug.kind.name in TOOLS]
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "bugs.cu")
        source.write_text(program(bugs))
        subprocess.run(
            ["nvcc", "-arch=native", "-lineinfo", "-diag-suppress", "177", "-o", folder + "/bugs", str(source)],
            check=True,
        )
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            results = pool.map(lambda k: _examine(Path(folder, "bugs"), k, bugs[k]), range(len(bugs)))
            return dict(zip((bug.name for bug in bugs), results, strict=True))


def _examine(executable: Path, number: int, bug: Bug) -> dict[str, object]:
    tool = TOOLS[bug.kind.name]
    command = ["compute-sanitizer", "--tool", tool, "--error-exitcode", "9", str(executable), str(number)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        output = done.stdout + done.stderr
        status = done.returncode
    except subprocess.TimeoutExpired as expired:
        output = str(expired.stdout)
        status = -1
    return {"tool": tool, "found": status == 9, "line": f"{bug.name}.cu:{bug.line}" in output, "hung": status == -1}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path)
    parser.add_argument("--only", choices=PARTS, help="record this part alone")
    parser.add_argument("--launch", choices=PARTS, help="only make this part's launches, and log them in PATH")
    options = parser.parse_args()
    if options.launch:
        launch(options.launch, options.path)
        return
    from kernelpath.work.stopwatch import Stopwatch

    recorded = peers.machine(Stopwatch())
    for part in [options.only] if options.only else ("counters", "kernels"):
        hardware = counters(part)
        ours = machine(part)
        recorded[part] = {name: {"ncu": hardware[name], "machine": ours[name]} for name in hardware}
        for name, values in hardware.items():
            different = {key: (ours[name][key], count) for key, count in values.items() if ours[name][key] != count}
            print(f"{name:<24}", different or "equal")
    if not options.only:
        recorded["sanitizer"] = sanitizer()
        for name, row in recorded["sanitizer"].items():
            print(f"{name:<40}", row)
    options.path.write_text(json.dumps(recorded, indent=1) + "\n")


if __name__ == "__main__":
    main()
