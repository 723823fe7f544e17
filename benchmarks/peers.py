"""The reference kernels against torch.compile, Liger and PyTorch's operators, in one process, round by round.

    python benchmarks/peers.py --rounds 96 --json results/h200_peers.json [softmax ...]

Every contestant runs once in every round, in an order drawn anew, from a cold L2, on inputs of the normal distribution.
A ratio is the peer's time over ours, paired by round: above 1 we are faster. "copy" is PyTorch's device-to-device
copy of as many bytes as the kernel has to move, so its ratio is the share of the copy's bandwidth.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from functools import partial
from importlib import metadata
from operator import itemgetter
from pathlib import Path
from typing import Any

import torch

from kernelpath.course import registry
from kernelpath.course.problems import histogram, layernorm, layernorm_backward, vector_sum
from kernelpath.grading.grade import versions
from kernelpath.grading.timing import CONFIDENCE, implementation_order, paired_ratio
from kernelpath.work import ceilings
from kernelpath.work.stopwatch import Stopwatch

Kernel = Callable[..., Any]

WARM_UP = 3
SIZES = ((32_768, 1024), (16_384, 8192), (4096, 32_768))
RIVALS = {
    "copy": ("the copy", ("copy",)),
    "library": ("the better of compiled and Liger", ("compiled", "liger")),
    "eager": ("PyTorch", ("eager",)),
}
"""What a goal is measured against: in words, and which peers."""
EPSILON = 1e-6


@dataclass(frozen=True)
class Race:
    """One case. goals: by exercise, the least ratio, and to what: see RIVALS."""

    case: str
    compulsory_bytes: int
    inputs: Callable[[], tuple[Any, ...]]
    goals: Mapping[str, tuple[str, float]]
    peers: Mapping[str, Kernel]


@dataclass(frozen=True)
class Result:
    """An exercise's line: bandwidth in bytes per second, ratios by peer as (median, low, high)."""

    exercise: str
    case: str
    seconds: float
    compulsory_bytes: int
    bytes_per_second: float
    ratios: Mapping[str, tuple[float, float, float]]
    goal: str
    reached: bool


def drawn(*shapes: tuple[int, ...], dtype: torch.dtype = torch.bfloat16) -> tuple[torch.Tensor, ...]:
    return tuple(torch.randn(shape, device="cuda").to(dtype) for shape in shapes)


def add_rmsnorm(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    h = x + residual
    return torch.nn.functional.rms_norm(h, h.shape[-1:], weight, EPSILON), h


def layernorm_gradients(rows: int, columns: int) -> tuple[torch.Tensor, ...]:
    dy, x, weight = drawn((rows, columns), (rows, columns), (columns,))
    _, mean, rstd = normalized(x, weight, weight)
    return dy, x, weight, mean, rstd


def normalized(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y, mean, rstd = torch.native_layer_norm(x, weight.shape, weight, bias, layernorm.EPS)
    return y, mean.flatten(), rstd.flatten()


def liger() -> dict[str, Kernel]:
    """Liger's kernels by the name of ours, where it is installed."""
    try:
        from liger_kernel.ops.fused_add_rms_norm import LigerFusedAddRMSNormFunction
        from liger_kernel.ops.layer_norm import layer_norm_backward, layer_norm_forward
        from liger_kernel.ops.softmax import LigerSoftmaxFunction
    except ImportError:
        return {}
    return {
        "softmax": LigerSoftmaxFunction.apply,
        "add_rmsnorm": lambda *tensors: LigerFusedAddRMSNormFunction.apply(*tensors, EPSILON, 0.0, "llama", False),
        "layernorm": lambda x, weight, bias: itemgetter(0, 2, 3)(layer_norm_forward(x, weight, bias, layernorm.EPS)),
        "layernorm_backward": lambda dy, x, weight, *kept: layer_norm_backward(dy, x, weight, weight, *kept),
    }


def peers(name: str, eager: Kernel) -> dict[str, Kernel]:
    compiled = torch.compile(eager, dynamic=False, mode="max-autotune-no-cudagraphs")
    found = {"eager": eager, "compiled": compiled}
    if name in liger():
        found["liger"] = liger()[name]
    return found


def races() -> Iterator[Race]:
    count = 1 << 28
    yield Race(
        case=f"{count} float32",
        compulsory_bytes=12 * count,
        inputs=partial(drawn, (count,), (count,), dtype=torch.float32),
        goals={"vector_add": ("copy", 0.98)},
        peers={"eager": torch.add},
    )
    yield Race(
        case=f"{count} float32",
        compulsory_bytes=8 * count,
        inputs=partial(drawn, (count,), dtype=torch.float32),
        goals={"vector_copy": ("copy", 0.97)},
        peers={"eager": torch.clone},
    )
    for dtype in (torch.float32, torch.bfloat16):
        yield Race(
            case=f"8192 x 8192 {str(dtype).removeprefix('torch.')}",
            compulsory_bytes=2 * 8192**2 * dtype.itemsize,
            inputs=partial(drawn, (8192, 8192), dtype=dtype),
            goals={"transpose": ("copy", 0.92)},
            peers=peers("transpose", lambda x: x.t().contiguous()),
        )
    for rows, columns in SIZES:
        yield Race(
            case=f"{rows} x {columns} bfloat16",
            compulsory_bytes=4 * rows * columns,
            inputs=partial(drawn, (rows, columns)),
            goals={"softmax": ("library", 1.0), "fused_softmax": ("library", 1.0)},
            peers=peers("softmax", lambda x: torch.softmax(x, dim=1)),
        )
    for rows, columns in SIZES:
        yield Race(
            case=f"{rows} x {columns} bfloat16",
            compulsory_bytes=8 * rows * columns + 2 * columns,
            inputs=partial(drawn, (rows, columns), (rows, columns), (columns,)),
            goals={"add_rmsnorm": ("library", 1.0)},
            peers=peers("add_rmsnorm", add_rmsnorm),
        )
    for rows, columns in SIZES:
        yield Race(
            case=f"{rows} x {columns} bfloat16",
            compulsory_bytes=layernorm.PROBLEM.compulsory_bytes(rows, columns, "bfloat16"),
            inputs=partial(drawn, (rows, columns), (columns,), (columns,)),
            goals={"layernorm": ("library", 1.0)},
            peers=peers("layernorm", normalized),
        )
        yield Race(
            case=f"{rows} x {columns} bfloat16",
            compulsory_bytes=layernorm_backward.PROBLEM.compulsory_bytes(rows, columns, "bfloat16"),
            inputs=partial(layernorm_gradients, rows, columns),
            goals={"layernorm_backward": ("library", 1.0)},
            peers=peers("layernorm_backward", layernorm_backward.operator),
        )
    for power in range(20, 31, 2):
        yield Race(
            case=f"2^{power} float32",
            compulsory_bytes=4 << power,
            inputs=partial(vector_sum.inputs, torch.Generator("cuda").manual_seed(1), 1 << power),
            goals={"reduction": ("eager", 1.0)},
            peers={"eager": partial(torch.sum, dim=0, keepdim=True)},
        )
    for case in registry.load(registry.find("histogram")).sweep:
        n, bins, dtype, distribution = (case[key] for key in ("n", "bins", "dtype", "distribution"))
        yield Race(
            case=f"{n} {dtype}, {bins} bins, {distribution}",
            compulsory_bytes=histogram.PROBLEM.compulsory_bytes(**case),
            inputs=partial(histogram.inputs, torch.Generator("cuda").manual_seed(1), **case),
            goals={"histogram": ("eager", 1.0)},
            peers={"eager": lambda x, bins: torch.bincount(x, minlength=bins)},
        )


def entry(name: str) -> Kernel:
    """The reference kernel of an exercise, loaded by its path."""
    item = registry.find(name)
    found: Kernel = getattr(registry.import_file(item.reference, f"reference_{name}"), registry.load(item).entry)
    return found


def run(race: Race, stopwatch: Stopwatch, rounds: int) -> list[Result]:
    torch.compiler.reset()
    half = torch.randn(race.compulsory_bytes // 8, device=stopwatch.device)
    target = torch.empty_like(half)
    contestants: dict[str, Kernel] = {name: entry(name) for name in race.goals}
    contestants |= {"copy": lambda *_: target.copy_(half), **race.peers}
    sets = [race.inputs() for _ in range(2)]
    _agree(race, contestants, sets[0])
    names = list(contestants)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for index in range(WARM_UP + rounds):
        turns = [names[turn] for turn in implementation_order(index, len(names))]
        timed, _ = stopwatch.round([partial(contestants[name], *sets[index % len(sets)]) for name in turns])
        for name, took in zip(turns, timed, strict=True):
            seconds[name].append(took)
    kept = {name: took[WARM_UP:] for name, took in seconds.items()}
    return [_result(race, name, kept) for name in race.goals]


def _agree(race: Race, contestants: Mapping[str, Kernel], inputs: tuple[torch.Tensor, ...]) -> None:
    """Refuse to race kernels that compute different things, up to a few roundings of bfloat16."""
    expected = race.peers["eager"](*inputs)
    for name, call in contestants.items():
        if name != "copy":
            try:
                torch.testing.assert_close(call(*inputs), expected, rtol=0.04, atol=0.04, check_dtype=False)
            except AssertionError as differs:
                raise AssertionError(f"{name}: {differs}") from None


def _result(race: Race, name: str, seconds: Mapping[str, list[float]]) -> Result:
    against = [peer for peer in seconds if peer not in race.goals]
    found = {peer: paired_ratio(seconds[peer], seconds[name], CONFIDENCE) for peer in against}
    kind, least = race.goals[name]
    told, rivals = RIVALS[kind]
    took = statistics.median(seconds[name])
    return Result(
        exercise=name,
        case=race.case,
        seconds=took,
        compulsory_bytes=race.compulsory_bytes,
        bytes_per_second=race.compulsory_bytes / took,
        ratios={peer: (interval.median, interval.low, interval.high) for peer, interval in found.items()},
        goal=f"{least} of {told}",
        reached=all(found[rival].median >= least for rival in rivals if rival in found),
    )


def moved(inputs: Sequence[Any], device: str) -> list[Any]:
    """Inputs drawn on the CPU, so that they are the same everywhere, on another device."""
    to: dict[type, Callable[[Any], Any]] = {
        torch.Tensor: lambda tensor: tensor.to(device),
        torch.device: lambda _: torch.device(device),
    }
    return [to.get(type(value), lambda other: other)(value) for value in inputs]


def machine(stopwatch: Stopwatch) -> dict[str, Any]:
    """What a measurement has to be read with: GPU, driver, versions, date, clocks."""
    asked = subprocess.run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"], capture_output=True)
    installed = {"liger-kernel"} & {entry.name for entry in metadata.distributions()}
    return {
        "gpu": torch.cuda.get_device_name(stopwatch.device),
        "driver": asked.stdout.decode().partition("\n")[0],
        "versions": versions() | {name: metadata.version(name) for name in installed},
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "telemetry": stopwatch.telemetry(),
    }


def show(result: Result) -> None:
    place = f"{result.exercise:<14} {result.case:<24} {result.seconds * 1e6:8.1f} µs"
    ratios = [f"{peer} {middle:.3f} ({low:.3f}..{high:.3f})" for peer, (middle, low, high) in result.ratios.items()]
    end = f"{'reached' if result.reached else 'MISSED'}: {result.goal}"
    print(place, f"{result.bytes_per_second / 1e9:6.0f} GB/s", *ratios, end, sep="  ", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("exercises", nargs="*", metavar="NAME", help="only the races of these")
    parser.add_argument("--rounds", type=int, default=96)
    parser.add_argument("--json", type=Path, help="where the results go")
    options = parser.parse_args()
    stopwatch = Stopwatch()
    found = ceilings.measure(stopwatch)
    print("  ".join(f"{name} {rate / 1e9:.0f} GB/s" for name, rate in found.items()))
    results: list[Result] = []
    for race in races():
        if not options.exercises or set(options.exercises) & set(race.goals):
            results += run(race, stopwatch, options.rounds)
            for result in results[-len(race.goals) :]:
                show(result)
    if options.json:
        measured = {"ceilings": found, "rounds": options.rounds, "confidence": CONFIDENCE}
        raced = {"peers": [asdict(result) for result in results]}
        options.json.write_text(json.dumps(machine(stopwatch) | measured | raced, indent=1))


if __name__ == "__main__":
    main()
