"""The reference kernels' outputs on the PTX machine and on a GPU, from the same inputs.

    python benchmarks/agreement.py --device cpu outputs.pt
    python benchmarks/agreement.py --device cuda outputs.pt results/h200_agreement.json

The first writes the outputs, the second compares. Integers, copies and fused multiply-adds have to be equal bit for
bit; where an approximate function takes part, the table shows by how many units in the last place they differ.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import peers
import torch

from kernelpath import registry
from kernelpath.registry import Item
from kernelpath.timing import Stopwatch
from kernelpath.truth import derive, draw_inputs

Outputs = dict[str, list[torch.Tensor]]


def outputs(device: str) -> Outputs:
    """Every reference kernel's outputs by exercise and case, on the CPU. Inputs are drawn there."""
    found: Outputs = {}
    for item in registry.exercises():
        exercise = registry.load(item)
        if not exercise.kernel:
            continue
        entry = _entry(item, exercise.entry, device)
        for index, case in enumerate(exercise.cases):
            inputs = draw_inputs(exercise, case, derive(1, index), "cpu")
            result = entry(*(value.to(device) if isinstance(value, torch.Tensor) else value for value in inputs))
            tensors = result if isinstance(result, tuple) else (result,)
            found[f"{item.name} {dict(case)}"] = [tensor.cpu() for tensor in tensors]
    return found


def _entry(item: Item, name: str, device: str) -> Any:
    if item.lane == "triton":
        from kernelpath.lanes import triton

        triton.activate(device)
    return getattr(registry.import_file(item.solution, f"agreement_{item.name}"), name)


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
    found = outputs(options.device)
    if options.table is None:
        torch.save(found, options.outputs)
        return
    saved: Outputs = torch.load(options.outputs, weights_only=True)
    table = {name: max(map(units_in_the_last_place, saved[name], found[name])) for name in found}
    for name, units in table.items():
        print(f"{units:>8}  {name}")
    recorded = peers.machine(Stopwatch()) | {"units_in_the_last_place": table}
    options.table.write_text(json.dumps(recorded, indent=1) + "\n")


if __name__ == "__main__":
    main()
