"""Measure the latency of a decoder's attention for one token, end to end, in microseconds.

    python benchmarks/latency.py --json results/h200_latency.json        two minutes on an H200
    python benchmarks/latency.py --heads 32 --tokens 512                 one size, printed

A step is the attention half of a decoder layer (course.problems.decoder_attention), repeated for LAYERS layers, each of
which gets the output of the layer before. It is executed as operators of PyTorch, as a CUDA graph of these operators,
compiled with mode="reduce-overhead", and as one launch of the megakernel for each layer, by itself and in a graph. The
time runs from the call on the host to the end of the last kernel, with a host that waits for each step, as a decoder
does that has to look at its token.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch

from kernelpath.course import registry
from kernelpath.course.problems import decoder_attention
from kernelpath.grading.grade import versions

LAYERS = 16
WARM_UP = 5
STEPS = 200
# Heads and tokens of the cache: a small, a middle, and a large layer.
SIZES = ((16, 128), (32, 512), (64, 4096))

Layer = Callable[..., torch.Tensor]
Step = Callable[[], torch.Tensor]


def layers(device: str, heads: int, tokens: int, count: int = LAYERS) -> list[decoder_attention.Inputs]:
    """Return the inputs of each layer. Only the x of the first one is used."""
    rng = torch.Generator(device).manual_seed(26)
    return [decoder_attention.inputs(rng, heads, tokens) for _ in range(count)]


def chain(layer: Layer, inputs: Sequence[decoder_attention.Inputs]) -> Step:
    """Return a step in which each layer gets the output of the layer before."""

    def step() -> torch.Tensor:
        x = inputs[0][0]
        for _, *layer_inputs in inputs:
            x = layer(x, *layer_inputs)
        return x

    return step


def as_graph(step: Step) -> Step:
    """Return a step that replays what the given step launches; its result is overwritten by the next replay."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # kernels are compiled and memory is allocated before the capture
        for _ in range(WARM_UP):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = step()

    def replay() -> torch.Tensor:
        graph.replay()
        return result

    return replay


def steps(inputs: Sequence[decoder_attention.Inputs], megakernel: Layer) -> Mapping[str, Step]:
    """Return the ways to execute a step, by name."""
    operators = chain(decoder_attention.library, inputs)
    ours = chain(megakernel, inputs)
    return {
        "operators": operators,
        "operators in a graph": as_graph(operators),
        "torch.compile, reduce-overhead": torch.compile(operators, mode="reduce-overhead"),
        "megakernels": ours,
        "megakernels in a graph": as_graph(ours),
    }


def check_agreement(results: Mapping[str, torch.Tensor], tolerance: float = 0.02) -> None:
    """Raise ValueError if a result differs from the first one by more than `tolerance` of its root mean square.

    Operators round between kernels to bfloat16, and the difference grows with the number of layers.
    """
    (first_name, first), *rest_of_results = results.items()
    scale = first.double().square().mean().sqrt()
    for name, result in rest_of_results:
        error = (result.double() - first.double()).square().mean().sqrt() / scale
        if not error <= tolerance:
            raise ValueError(f"{name} differs from {first_name} by {error:.3g} of the root mean square")


def measure(
    step: Callable[[], object],
    synchronize: Callable[[], None],
    count: int = STEPS,
    clock: Callable[[], int] = time.perf_counter_ns,
) -> list[float]:
    """Return the microseconds of each of `count` calls, from the call to the end of what it has launched."""
    microseconds = []
    for _ in range(WARM_UP):
        step()
    synchronize()
    for _ in range(count):
        start = clock()
        step()
        synchronize()
        microseconds.append((clock() - start) / 1e3)
    return microseconds


def summarize(microseconds: Sequence[float]) -> dict[str, float]:
    """Return the median, and the 1st and 99th percentiles, of at least two values."""
    percentiles = statistics.quantiles(microseconds, n=100, method="inclusive")
    return {"p01": percentiles[0], "median": statistics.median(microseconds), "p99": percentiles[-1]}


def reference_kernel() -> Layer:
    """Return the reference kernel of the exercise `megakernel`."""
    item = registry.find("megakernel")
    kernel: Layer = getattr(registry.import_file(item.reference, "latency_megakernel"), registry.load(item).entry)
    return kernel


def run(heads: int, tokens: int, count: int = STEPS) -> dict[str, dict[str, float]]:
    """Measure all ways to execute a step at one size on the current GPU."""
    ways = steps(layers("cuda", heads, tokens), reference_kernel())
    check_agreement({name: step().clone() for name, step in ways.items()})
    return {name: summarize(measure(step, torch.cuda.synchronize, count)) for name, step in ways.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--heads", type=int, help="one size instead of all")
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    sizes = [(options.heads, options.tokens)] if options.heads else SIZES
    report: dict[str, Any] = {
        "device": torch.cuda.get_device_name(),
        "date": f"{datetime.now(timezone.utc):%Y-%m-%d}",
        "versions": versions(),
        "layers": LAYERS,
        "microseconds": {},
    }
    for heads, tokens in sizes:
        by_name = report["microseconds"][f"heads={heads} tokens={tokens}"] = run(heads, tokens)
        for name, values in by_name.items():
            spread = f"{values['p01']:.0f} to {values['p99']:.0f}"
            print(f"heads={heads} tokens={tokens}  {name:<32} {values['median']:8.1f} us  ({spread})", flush=True)
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
