"""Compare the outputs of reference kernels on the PTX machine and on a GPU, for the same inputs.

    python benchmarks/agreement.py --device cpu outputs.pt
    python benchmarks/agreement.py --device cuda outputs.pt results/h200_agreement.json

The first command writes the outputs, and the second one compares. Integers, copies, and fused multiply-adds have to be
equal bit for bit. For approximate functions, the table shows the differences in units in the last place. The
approximate functions themselves are compared, too.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import peers
import torch

from kernelpath.course import registry
from kernelpath.course.registry import ExerciseRef
from kernelpath.grading.ground_truth import derive_seed, generate_inputs
from kernelpath.work.stopwatch import Stopwatch
from warpcheck.frontends import cuda

Outputs = dict[str, list[torch.Tensor]]

# PTX's approximate functions of one float32: the range of arguments, and the error that the PTX ISA allows (as log2).
# The range of the first four is that of the exponent: they are evaluated at 2^x.
FUNCTIONS = {
    "rcp": (-120.0, 120.0, "relative", -23.0),
    "sqrt": (-120.0, 120.0, "relative", -23.0),
    "rsqrt": (-120.0, 120.0, "relative", -22.9),
    "lg2": (-120.0, 120.0, "relative beyond 1", -22.0),
    "ex2": (-120.0, 120.0, "relative", -22.5),
    "sin": (-3.14, 3.14, "absolute", -20.5),
    "cos": (-3.14, 3.14, "absolute", -20.5),
    "tanh": (-9.0, 9.0, "relative", -11.0),
}


def outputs(device: str) -> Outputs:
    """Return the outputs of every reference kernel by exercise and case, on the CPU. Inputs are generated there."""
    by_case: Outputs = {}
    for item in registry.exercises():
        exercise = registry.load(item)
        if not exercise.runs_on_gpu:
            continue
        entry = _entry(item, exercise.entry, device)
        for index, case in enumerate(exercise.cases):
            inputs = generate_inputs(exercise, case, derive_seed(1, index), "cpu")
            result = entry(*peers.move_inputs(inputs, device))
            tensors = result if isinstance(result, tuple) else (result,)
            by_case[f"{item.name} {dict(case)}"] = [tensor.cpu() for tensor in tensors]
    return by_case


def functions(device: str) -> Outputs:
    """Return every approximate function at 2^18 values, on the CPU."""
    count = 1 << 18
    by_name: Outputs = {}
    for name, (low, high, *_) in FUNCTIONS.items():
        x = low + (high - low) * torch.rand(count, generator=torch.Generator().manual_seed(1))
        x = x if name in ("ex2", "sin", "cos", "tanh") else x.exp2()
        flush = "" if name == "tanh" else ".ftz"
        source = f"""extern "C" __global__ void {name}_of(const float* x, float* y) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    asm("{name}.approx{flush}.f32 %0, %1;" : "=f"(y[i]) : "f"(x[i]));
}}"""
        x = x.to(device)
        y = torch.empty_like(x)
        cuda.Kernel(f"{name}.cu", source, f"{name}_of")[count // 256, 256](x, y)
        by_name[name] = [y.cpu()]
    return by_name


def difference(ours: torch.Tensor, theirs: torch.Tensor, measure: str) -> dict[str, float | str]:
    """Return the largest difference of a function's values, and the share of values that are equal bit for bit."""
    error = (ours.double() - theirs.double()).abs()
    magnitude = theirs.double().abs()
    if measure == "relative":
        error /= magnitude
    elif measure == "relative beyond 1":
        error /= magnitude.clamp(min=1)
    return {"equal": float((ours == theirs).double().mean()), "measure": measure, "largest": float(error.max())}


def _entry(item: ExerciseRef, name: str, device: str) -> Any:
    if item.lane == "triton":
        from warpcheck.frontends import triton

        triton.activate(device)
    return getattr(registry.import_file(item.reference, f"agreement_{item.name}"), name)


def units_in_the_last_place(ours: torch.Tensor, theirs: torch.Tensor) -> int:
    """Return the largest distance in representable numbers. 0 means equal bit for bit."""
    if not ours.is_floating_point():
        return int((ours.long() - theirs.long()).abs().max()) if ours.numel() else 0
    bits = {2: torch.int16, 4: torch.int32, 8: torch.int64}[ours.element_size()]
    ordered = [_ordered(tensor.contiguous().view(bits).long(), bits) for tensor in (ours, theirs)]
    return int((ordered[0] - ordered[1]).abs().max()) if ours.numel() else 0


def _ordered(bits: torch.Tensor, kind: torch.dtype) -> torch.Tensor:
    """Return floating-point bits as integers that have the order of the numbers."""
    return torch.where(bits >= 0, bits, torch.iinfo(kind).min - bits)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], required=True)
    parser.add_argument("outputs", type=Path)
    parser.add_argument("table", type=Path, nargs="?", help="compare with the outputs and write this")
    options = parser.parse_args()
    ours = outputs(options.device)
    our_functions = functions(options.device)
    if options.table is None:
        torch.save([ours, our_functions], options.outputs)
        return
    saved, saved_functions = torch.load(options.outputs, weights_only=True)
    table = {name: max(map(units_in_the_last_place, saved[name], ours[name])) for name in ours}
    for name, units in table.items():
        print(f"{units:>8}  {name}")
    differences = {
        name: difference(saved_functions[name][0], our_functions[name][0], measure) | {"allowed": 2**allowed}
        for name, (_, _, measure, allowed) in FUNCTIONS.items()
    }
    print(*differences.items(), sep="\n")
    recorded = peers.machine(Stopwatch()) | {"units_in_the_last_place": table, "functions": differences}
    options.table.write_text(json.dumps(recorded, indent=1) + "\n")


if __name__ == "__main__":
    main()
