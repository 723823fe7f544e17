"""The reference kernels' outputs on the PTX machine and on a GPU, from the same inputs.

    python benchmarks/agreement.py --device cpu outputs.pt
    python benchmarks/agreement.py --device cuda outputs.pt results/h200_agreement.json

The first writes the outputs, the second compares. Integers, copies and fused multiply-adds have to be equal bit for
bit; where an approximate function takes part, the table shows by how many units in the last place they differ. The
approximate functions themselves are compared too.
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

# PTX's approximate functions of one float32, where they are tried, and the error that the PTX ISA allows (as log2).
#
# The first four are tried at 2^x for x between these bounds.
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
    """Every reference kernel's outputs by exercise and case, on the CPU. Inputs are drawn there."""
    found: Outputs = {}
    for item in registry.exercises():
        exercise = registry.load(item)
        if not exercise.runs_on_gpu:
            continue
        entry = _entry(item, exercise.entry, device)
        for index, case in enumerate(exercise.cases):
            inputs = generate_inputs(exercise, case, derive_seed(1, index), "cpu")
            result = entry(*peers.moved(inputs, device))
            tensors = result if isinstance(result, tuple) else (result,)
            found[f"{item.name} {dict(case)}"] = [tensor.cpu() for tensor in tensors]
    return found


def functions(device: str) -> Outputs:
    """Every approximate function at 2^18 places, on the CPU."""
    count = 1 << 18
    found: Outputs = {}
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
        found[name] = [y.cpu()]
    return found


def difference(ours: torch.Tensor, theirs: torch.Tensor, measure: str) -> dict[str, float | str]:
    """How far a function's values lie apart at most, and the share that is equal bit for bit."""
    apart = (ours.double() - theirs.double()).abs()
    size = theirs.double().abs()
    if measure == "relative":
        apart /= size
    elif measure == "relative beyond 1":
        apart /= size.clamp(min=1)
    return {"equal": float((ours == theirs).double().mean()), "measure": measure, "largest": float(apart.max())}


def _entry(item: ExerciseRef, name: str, device: str) -> Any:
    if item.lane == "triton":
        from warpcheck.frontends import triton

        triton.activate(device)
    return getattr(registry.import_file(item.reference, f"agreement_{item.name}"), name)


def units_in_the_last_place(ours: torch.Tensor, theirs: torch.Tensor) -> int:
    """The largest distance in representable numbers; 0 means equal bit for bit."""
    if not ours.is_floating_point():
        return int((ours.long() - theirs.long()).abs().max()) if ours.numel() else 0
    bits = {2: torch.int16, 4: torch.int32, 8: torch.int64}[ours.element_size()]
    ordered = [_ordered(tensor.contiguous().view(bits).long(), bits) for tensor in (ours, theirs)]
    return int((ordered[0] - ordered[1]).abs().max()) if ours.numel() else 0


def _ordered(bits: torch.Tensor, kind: torch.dtype) -> torch.Tensor:
    """Floating-point bits as integers in the order of the numbers that they stand for."""
    return torch.where(bits >= 0, bits, torch.iinfo(kind).min - bits)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], required=True)
    parser.add_argument("outputs", type=Path)
    parser.add_argument("table", type=Path, nargs="?", help="compare with the outputs and write this")
    options = parser.parse_args()
    found, of_functions = outputs(options.device), functions(options.device)
    if options.table is None:
        torch.save([found, of_functions], options.outputs)
        return
    saved, functions_saved = torch.load(options.outputs, weights_only=True)
    table = {name: max(map(units_in_the_last_place, saved[name], found[name])) for name in found}
    for name, units in table.items():
        print(f"{units:>8}  {name}")
    differences = {
        name: difference(functions_saved[name][0], of_functions[name][0], measure) | {"allowed": 2**allowed}
        for name, (_, _, measure, allowed) in FUNCTIONS.items()
    }
    print(*differences.items(), sep="\n")
    recorded = peers.machine(Stopwatch()) | {"units_in_the_last_place": table, "functions": differences}
    options.table.write_text(json.dumps(recorded, indent=1) + "\n")


if __name__ == "__main__":
    main()
