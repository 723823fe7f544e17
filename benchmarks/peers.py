"""Compare the reference kernels of all phases with the best other kernels on this GPU, in one process.

    python benchmarks/peers.py --part 1 --json results/h200_peers.json      7 minutes each; the second adds to the file
    python benchmarks/peers.py --part 2 --json results/h200_peers.json
    python benchmarks/peers.py softmax fp8_gemm                             only these, printed

The contestants of a case run once in each round, in a random order, with a cold L2, on the same inputs, which are those
that the grader generates. A ratio is the peer's time divided by ours, paired by round: above 1 ours is faster. "copy"
is PyTorch's device-to-device copy of the bytes that the kernel has to move. It is no peer: its ratio is the share of
the copy's bandwidth. A peer whose package is not installed is left out, and named in the file under "absent".
"""

from __future__ import annotations

import argparse
import importlib
import json
import statistics
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from functools import cache, partial
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from kernelpath.course import registry
from kernelpath.course.problem import Case, arguments
from kernelpath.course.problems import add_rmsnorm, cross_entropy, gelu, layernorm_backward
from kernelpath.grading.grade import versions
from kernelpath.grading.timing import CONFIDENCE, implementation_order, paired_ratio
from kernelpath.show.results import PeerComparison
from kernelpath.work import ceilings
from kernelpath.work.stopwatch import Stopwatch

Kernel = Callable[..., Any]
Peers = Mapping[str, Kernel]

WARM_UP = 3
ROUNDS = 48
LONG = 1.0
"""Seconds of one case after which its rounds end, but not before LEAST of them."""
LEAST = 15
PACKAGES = ("liger-kernel", "quack-kernels", "flash-attn-4", "cuda-cccl")
absent: dict[str, str] = {}
"""Peers that could not be imported or refused a case, with the reason."""


@dataclass(frozen=True)
class Race:
    """Cases of some exercises that have the same operator.

    Attributes:
        exercises: Exercises whose reference kernels take part. The first one generates the inputs.
        peers: Kernels that take the same arguments.
        part: The run to which the race belongs.
    """

    exercises: tuple[str, ...]
    cases: Sequence[Case]
    peers: Peers
    part: int = 1


def optional(module: str, name: str, use: Callable[[Kernel], Kernel] = lambda kernel: kernel) -> Kernel | None:
    """Return a kernel of a package, adapted by `use` to our arguments, or None if the package is not installed."""
    try:
        return use(getattr(importlib.import_module(module), name))
    except (ImportError, AttributeError, RuntimeError) as error:
        absent[f"{module}.{name}"] = f"{type(error).__name__}: {error}"
        return None


def present(**kernels: Kernel | None) -> Peers:
    return {name: kernel for name, kernel in kernels.items() if kernel is not None}


def compiled(function: Kernel) -> Kernel:
    """Return the function compiled by PyTorch, at its first call."""
    make = cache(lambda: torch.compile(function, dynamic=False, mode="max-autotune-no-cudagraphs"))
    return lambda *inputs: make()(*inputs)


def with_compiled(function: Kernel, **kernels: Kernel | None) -> Peers:
    """Return an operator of PyTorch, eager and compiled, and other kernels."""
    return present(eager=function, compiled=compiled(function), **kernels)


def grid(**values: Sequence[Any]) -> list[Case]:
    """Return the cases in which the arguments of equal index go together; a single value goes with each."""
    count = max(map(len, values.values()))
    return [{name: options[index % len(options)] for name, options in values.items()} for index in range(count)]


def of_rows(*columns: int, elements: int = 1 << 27, dtype: str = "bfloat16") -> list[Case]:
    return [{"rows": elements // length, "columns": length, "dtype": dtype} for length in columns]


def products(*sizes: tuple[int, int, int], **constant: Any) -> list[Case]:
    return [{"m": m, "n": n, "k": k, **constant} for m, n, k in sizes]


def cubes(*sizes: int) -> list[tuple[int, int, int]]:
    return [(size, size, size) for size in sizes]


def attention(*shapes: tuple[int, int, int, int], causal: Sequence[bool] = (True, False)) -> list[Case]:
    """Return cases for shapes of (batch, query heads for each key head, tokens, head), with 2048 columns in total."""
    return [
        {
            "batch": batch,
            "heads": 2048 // head,
            "kv_heads": 2048 // head // group,
            "tokens": tokens,
            "head": head,
            "causal": flag,
            "dtype": "bfloat16",
        }
        for batch, group, tokens, head in shapes
        for flag in causal
    ]


def layer_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> tuple[torch.Tensor, ...]:
    y, mean, rstd = torch.native_layer_norm(x, weight.shape, weight, bias, eps)
    return y, mean.flatten(), rstd.flatten()


def scaled_blocks(a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor) -> torch.Tensor:
    return torch._scaled_mm(a, b.t(), scale_a.t(), scale_b.t(), out_dtype=torch.bfloat16)


def int_product(a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor) -> torch.Tensor:
    """The integer GEMM alone, without the scales that ours applies."""
    return torch._int_mm(a, b.t())


def cudnn_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> tuple[torch.Tensor, ...]:
    group = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(group, 1) if group > 1 else x for x in (k, v))
    result = torch.ops.aten._scaled_dot_product_cudnn_attention(q, k, v, None, True, 0.0, causal, False)
    return result[0], result[1].squeeze(-1)


def flash2_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> tuple[torch.Tensor, ...]:
    result = torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, 0.0, causal, False)
    return result[0], result[1]


def flash4_attention(kernel: Kernel) -> Kernel:
    """FlashAttention's tensors have tokens before heads: for a fair race the same values in its own order."""

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
        out = kernel(*(_tokensfirst_output(x) for x in (q, k, v)), causal=causal)
        out = out[0] if isinstance(out, tuple) else out
        return out.transpose(1, 2)  # type: ignore[no-any-return]

    return attend


_reordered: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}


def _tokensfirst_output(x: torch.Tensor) -> torch.Tensor:
    """Return x with the order of its dimensions 1 and 2 changed in memory. The first call makes it, untimed."""
    if id(x) not in _reordered or _reordered[id(x)][0] is not x:
        _reordered[id(x)] = x, x.transpose(1, 2).contiguous()
    return _reordered[id(x)][1]


def attention_gradients(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    dout: torch.Tensor,
    causal: bool,
) -> tuple[torch.Tensor, ...]:
    empty = torch.empty(0, dtype=torch.int64, device=q.device)
    return torch.ops.aten._scaled_dot_product_cudnn_attention_backward(  # type: ignore[no-any-return]
        *(dout, q, k, v, out, lse[..., None], empty, empty, None, None, None),
        *(q.shape[2], k.shape[2], 0.0, causal),
    )


def flash4_gradients(kernel: Kernel) -> Kernel:
    def gradients(*tensors: Any) -> tuple[torch.Tensor, ...]:
        q, k, v, out, lse, dout, causal = tensors
        q, k, v, out, dout = (_tokensfirst_output(x) for x in (q, k, v, out, dout))
        found = kernel(q, k, v, out, dout, lse, causal=causal)
        return tuple(x.transpose(1, 2) for x in found[:3])

    return gradients


def varlen(kernel: Kernel) -> Kernel:
    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, cu_seqlens: torch.Tensor) -> Any:
        longest = _longest(cu_seqlens)
        lengths = {"cu_seqlens_q": cu_seqlens, "cu_seqlens_k": cu_seqlens}
        out = kernel(q, k, v, **lengths, max_seqlen_q=longest, max_seqlen_k=longest, causal=True)
        return out[0] if isinstance(out, tuple) else out

    return attend


_longest_of: dict[int, tuple[torch.Tensor, int]] = {}


def _longest(cu_seqlens: torch.Tensor) -> int:
    """Return the length of the longest sequence, which a framework knows on the host. The first call reads it."""
    if id(cu_seqlens) not in _longest_of or _longest_of[id(cu_seqlens)][0] is not cu_seqlens:
        _longest_of[id(cu_seqlens)] = cu_seqlens, int(cu_seqlens.diff().max())
    return _longest_of[id(cu_seqlens)][1]


def paged(kernel: Kernel) -> Kernel:
    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, table: torch.Tensor, tokens: torch.Tensor) -> Any:
        out = kernel(q[:, None], k, v, page_table=table, seqused_k=tokens, num_splits=0)
        return (out[0] if isinstance(out, tuple) else out)[:, 0]

    return attend


def applied(function: Any) -> Kernel:
    """Return a torch.autograd.Function as a function."""
    apply: Kernel = function.apply
    return apply


def liger_add_rmsnorm(function: Any) -> Kernel:
    def normalize(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor) -> Any:
        return function.apply(x, residual, weight, add_rmsnorm.EPS, 0.0, "llama", False)

    return normalize


def quack_add_rmsnorm(kernel: Kernel) -> Kernel:
    def normalize(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor) -> Any:
        return kernel(x, weight, residual=residual, eps=add_rmsnorm.EPS, prenorm=True)

    return normalize


def quack_cross_entropy(kernel: Kernel) -> Kernel:
    """Its losses of the rows are not averaged, which costs it nothing."""

    def losses(logits: torch.Tensor, labels: torch.Tensor, ignore_index: int, gradient: bool) -> Any:
        return kernel(logits, labels, ignore_index=ignore_index, return_dx=gradient)

    return losses


def fused_adamw(steps: Sequence[int], *rest: Any) -> None:
    """PyTorch's fused AdamW, which torch.optim.AdamW(fused=True) calls; its step counters are on the device."""
    (lr, beta1, beta2, eps, weight_decay), tensors = rest[:5], rest[5:]
    count = len(steps)
    params, grads, moments, squares = (list(tensors[part * count : (part + 1) * count]) for part in range(4))
    settings = {"lr": lr, "beta1": beta1, "beta2": beta2, "eps": eps, "weight_decay": weight_decay}
    switches = {"amsgrad": False, "maximize": False}
    update: Kernel = torch._fused_adamw_
    update(params, grads, moments, squares, [], _counters(steps, params[0].device), **settings, **switches)


_step_counters: dict[tuple[int, ...], list[torch.Tensor]] = {}


def _counters(steps: Sequence[int], device: torch.device) -> list[torch.Tensor]:
    key = tuple(steps)
    if key not in _step_counters:
        _step_counters[key] = [torch.tensor(float(step), device=device) for step in steps]
    return _step_counters[key]


def select_positive(x: torch.Tensor, out: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
    """Select as PyTorch does, which copies the count to the host and waits for it."""
    kept = x[x > 0]
    out[: kept.numel()] = kept
    return out


def sort_by_digit(keys: torch.Tensor, first: torch.Tensor, shift: int) -> torch.Tensor:
    """Sort stably by one digit with PyTorch, which sorts digits of 8 bits with indices in one pass, then gathers."""
    return keys[(keys >> shift).to(torch.uint8).sort(stable=True).indices]


def elementwise() -> Iterator[Race]:
    """Yield the races of kernels that memory bounds."""
    n = [1 << 20, 1 << 24, 1 << 28]
    yield Race(("vector_add", "vector_add_triton"), grid(n=n, offset=[0]), {"eager": torch.add})
    square = {"rows": 8192, "columns": 8192}
    transposes = [{**square, "dtype": dtype} for dtype in ("float32", "bfloat16")]
    yield Race(("transpose", "transpose_cute"), transposes, with_compiled(lambda x: x.t().contiguous()))
    total = partial(torch.sum, dim=0, keepdim=True)
    yield Race(("reduction",), grid(n=[1 << power for power in range(20, 31, 2)]), {"eager": total})
    sweep = registry.load(registry.find("histogram")).sweep
    yield Race(("histogram",), sweep, {"eager": lambda x, bins: torch.bincount(x, minlength=bins)})
    prefix_sums = partial(torch.cumsum, dim=0, dtype=torch.int32)  # CUB's DeviceScan
    yield Race(("scan",), grid(n=[1 << power for power in range(20, 29, 4)]), {"eager": prefix_sums})
    halves = grid(n=[1 << 20, 1 << 28], share=[0.5], order=["mixed"])
    yield Race(("compact",), halves, {"eager": select_positive})
    passes = grid(n=[1 << 20, 1 << 27], shift=[0], distribution=["uniform"])
    yield Race(("radix_pass",), passes, {"eager": sort_by_digit})
    activations = [{"n": 1 << 28, "dtype": dtype, "approximate": "tanh"} for dtype in ("float32", "bfloat16")]
    by_hand = compiled(gelu.by_hand)
    gelu_peers = {"eager": lambda x, approximate: F.gelu(x, approximate=approximate), "compiled": by_hand}
    yield Race(("gelu", "gelu_triton"), activations, gelu_peers)
    bias = [{"rows": 32_768, "columns": 8192, "dtype": dtype} for dtype in ("float32", "bfloat16")]
    yield Race(("bias_relu",), bias, with_compiled(lambda x, bias: torch.relu(x + bias)))
    copies = [{"n": 1 << 28, "offset": 0, "dtype": "float32"}]
    yield Race(("vector_copy",), copies, {"eager": torch.clone})
    model = registry.load(registry.find("adam"))
    yield Race(("adam",), [model.bench, *model.sweep] if model.bench else model.sweep, {"fused": fused_adamw})


def rows() -> Iterator[Race]:
    """Yield the races of kernels that work on the rows of a matrix."""
    softmax = with_compiled(
        lambda x: torch.softmax(x, dim=1),
        liger=optional("liger_kernel.ops.softmax", "LigerSoftmaxFunction", applied),
        quack=optional("quack.softmax", "softmax_fwd"),
    )
    cases = of_rows(1024, 5000, 8192, 32_768, 65_536, 131_072)
    yield Race(("softmax", "fused_softmax"), cases, softmax)
    norm = with_compiled(
        lambda x, residual, weight: (F.rms_norm(x + residual, x.shape[1:], weight, add_rmsnorm.EPS), x + residual),
        liger=optional("liger_kernel.ops.fused_add_rms_norm", "LigerFusedAddRMSNormFunction", liger_add_rmsnorm),
        quack=optional("quack.rmsnorm", "rmsnorm", quack_add_rmsnorm),
    )
    yield Race(("add_rmsnorm",), cases, norm)
    forward = with_compiled(
        layer_norm,
        liger=optional(
            "liger_kernel.ops.layer_norm",
            "layer_norm_forward",
            lambda kernel: lambda x, weight, bias, eps: [kernel(x, weight, bias, eps)[i] for i in (0, 2, 3)],
        ),
        quack=optional(
            "quack.rmsnorm",
            "layernorm_fwd",
            lambda kernel: (
                lambda x, weight, bias, eps: kernel(x, weight, bias, eps, return_rstd=True, return_mean=True)
            ),
        ),
    )
    yield Race(("layernorm",), cases, forward)
    backward = with_compiled(
        layernorm_backward.operator,
        liger=optional(
            "liger_kernel.ops.layer_norm",
            "layer_norm_backward",
            lambda kernel: lambda dy, x, weight, *statistics: kernel(dy, x, weight, weight, *statistics),
        ),
    )
    yield Race(("layernorm_backward",), of_rows(1024, 8192, 32_768), backward)
    losses = [
        {**case, "gradient": gradient}
        for case in registry.load(registry.find("cross_entropy")).sweep[:1]
        for gradient in (False, True)
    ]
    losses = [{**case, "rows": (1 << 29) // size, "classes": size} for case in losses for size in (32_000, 128_256)]
    entropy = present(
        eager=cross_entropy.operators,
        quack=optional("quack.cross_entropy", "cross_entropy_fwd", quack_cross_entropy),
    )
    yield Race(("cross_entropy",), losses, entropy)


def matrix_products() -> Iterator[Race]:
    """Yield the races of GEMMs."""
    flat = [(rows, 8192, 8192) for rows in (16, 32, 64, 128, 256)]
    sizes = [*cubes(512, 1024, 2048, 3072, 4096, 8192, 16_384), *flat]
    quack = optional("quack.gemm_interface", "gemm", lambda kernel: lambda a, b: kernel(a, b))
    half = present(cublas=torch.mm, quack=quack)
    layout = {"dtype": "bfloat16", "layout": "nt"}
    yield Race(("persistent_gemm", "matmul_persistent"), products(*sizes, **layout), half, part=2)
    yield Race(("cute_cpp",), products(*cubes(4096, 8192), **layout), {"cublas": torch.mm}, part=2)
    wgmma = products(*cubes(1024, 2048, 4096, 8192))
    yield Race(("wgmma_gemm",), wgmma, {"cublas": lambda a, b: torch.mm(a, b.t())}, part=2)
    mma_sync = products(*cubes(4096, 8192), dtype="bfloat16")
    yield Race(("tensor_cores", "tensorop_gemm"), mma_sync, {"cublas": torch.mm}, part=2)
    single = products(*cubes(2048, 4096, 8192))
    yield Race(("sgemm_registers", "sgemm_async", "sgemm_cute"), single, {"cublas": torch.mm}, part=2)
    blocks = products(*cubes(2048, 4096, 8192, 16_384), *flat[2:4], dtype="float8_e4m3fn", scales="block")
    yield Race(("fp8_gemm", "fp8_matmul"), blocks, {"cublas": scaled_blocks}, part=2)
    integers = products(*cubes(2048, 4096, 8192, 16_384), (128, 8192, 8192), dtype="int8")
    yield Race(("int8_matmul",), integers, {"_int_mm": int_product}, part=2)
    for name in ("gemm_epilogue", "swiglu"):
        exercise = registry.load(registry.find(name))
        cases = [exercise.bench] if exercise.bench else []
        names = ("gemm_epilogue", "gemm_epilogue_cute") if name == "gemm_epilogue" else (name,)
        if exercise.baseline is not None:
            yield Race(names, cases, with_compiled(exercise.baseline), part=2)


def attentions() -> Iterator[Race]:
    """Yield the races of attention."""
    shapes = [(4, 1, 4096, 128), (16, 1, 1024, 128), (1, 1, 16_384, 128), (4, 4, 4096, 128), (4, 1, 4096, 64)]
    forward = present(
        cudnn=cudnn_attention,
        flash2=flash2_attention,
        flash4=optional("flash_attn.cute", "flash_attn_func", flash4_attention),
    )
    yield Race(("flash_attention_cute", "flash_attention"), attention(*shapes), forward, part=2)
    backward = present(
        cudnn=attention_gradients,
        flash4=optional("flash_attn.cute.interface", "_flash_attn_bwd", flash4_gradients),
    )
    no_groups = [shape for shape in shapes if shape[1] == 1]
    yield Race(("flash_attention_backward",), attention(*no_groups), backward, part=2)
    for name, use in (("long_context", varlen), ("paged_decode", paged)):
        exercise = registry.load(registry.find(name))
        cases = [exercise.bench, *exercise.sweep[:4]] if exercise.bench else exercise.sweep[:4]
        flash4 = optional("flash_attn.cute", "flash_attn_varlen_func", use)
        if flash4 is not None:
            yield Race((name,), cases, {"flash4": flash4}, part=2)


def races() -> Iterator[Race]:
    for family in (elementwise, rows, matrix_products, attentions):
        yield from family()


def entry(name: str) -> Kernel:
    """Return the reference kernel of an exercise, loaded by its path."""
    item = registry.find(name)
    kernel: Kernel = getattr(registry.import_file(item.reference, f"reference_{name}"), registry.load(item).entry)
    return kernel


def run(race: Race, stopwatch: Stopwatch, rounds: int = ROUNDS) -> Iterator[PeerComparison]:
    """Time all cases of a race."""
    torch.compiler.reset()
    references = {name: entry(name) for name in race.exercises}
    exercises = {name: registry.load(registry.find(name)) for name in race.exercises}
    for case in race.cases:
        for remembered in (_reordered, _longest_of, _step_counters):
            remembered.clear()
        yield from _run_case(race, case, references, exercises[race.exercises[0]].problem, stopwatch, rounds)


def _run_case(
    race: Race, case: Case, references: Mapping[str, Kernel], problem: Any, stopwatch: Stopwatch, rounds: int
) -> Iterator[PeerComparison]:
    # A kernel that works in place changes its inputs, so each contestant has the same right to any of the sets.
    sets = [problem.inputs(torch.Generator(stopwatch.device).manual_seed(seed), **case) for seed in (1, 2)]
    moved_bytes = problem.compulsory_bytes(**case)
    source = torch.empty(max(1, moved_bytes // 8), device=stopwatch.device)
    target = torch.empty_like(source)
    contestants: dict[str, Kernel] = {**references, "copy": lambda *_: target.copy_(source)}
    expected = None if problem.in_place else first_output(contestants[race.exercises[0]](*sets[0]))
    for name, kernel in race.peers.items():
        if _agrees(f"{name}: {race.exercises[0]} {arguments(case)}", kernel, sets[0], expected):
            contestants[name] = kernel
    names = list(contestants)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    host: dict[str, list[float]] = {name: [] for name in references}
    began = time.perf_counter()
    for index in range(WARM_UP + rounds):
        if index >= WARM_UP + LEAST and time.perf_counter() - began > LONG:
            break
        turns = [names[turn] for turn in implementation_order(index, len(names))]
        timed, _ = stopwatch.round([partial(contestants[name], *sets[index % len(sets)]) for name in turns])
        for name, duration in zip(turns, timed, strict=True):
            seconds[name].append(duration)
    for name in references:
        for _ in range(5):
            torch.cuda.synchronize()
            start = time.perf_counter()
            references[name](*sets[0])
            host[name].append(time.perf_counter() - start)
    after = {name: durations[WARM_UP:] for name, durations in seconds.items()}
    peers = [name for name in names if name not in references]
    for name in references:
        intervals = {peer: paired_ratio(after[peer], after[name], CONFIDENCE) for peer in peers}
        median = statistics.median(after[name])
        yield PeerComparison(
            exercise=name,
            case=arguments(case),
            seconds=median,
            compulsory_bytes=moved_bytes,
            bytes_per_second=moved_bytes / median,
            ratios={peer: (interval.median, interval.low, interval.high) for peer, interval in intervals.items()},
            flops=problem.flops(**case) if problem.flops else 0,
            host_seconds=statistics.median(host[name]),
        )


def first_output(outputs: Any) -> torch.Tensor:
    first: torch.Tensor = outputs[0] if isinstance(outputs, (tuple, list)) else outputs
    return first


def _agrees(label: str, kernel: Kernel, inputs: Sequence[Any], expected: torch.Tensor | None) -> bool:
    """Return whether a peer computes what ours does, up to a few roundings of bfloat16; if not, record why."""
    try:
        out = first_output(kernel(*inputs)) if expected is not None else kernel(*inputs)
        torch.cuda.synchronize()
        comparable = expected is not None and out.shape == expected.shape and expected.dtype.is_floating_point
        # An integer GEMM without scales and losses before their average are less work than ours, and not compared.
        if comparable and expected is not None and out.dtype.is_floating_point:
            scale = expected.float().square().mean().sqrt().item()
            torch.testing.assert_close(out, expected, rtol=0.04, atol=0.04 * scale, check_dtype=False)
    except (AssertionError, RuntimeError, TypeError, ValueError) as error:
        absent[label] = f"{type(error).__name__}: {error}"[:300]
        return False
    return True


def moved(inputs: Sequence[Any], device: str) -> list[Any]:
    """Return inputs generated on the CPU, so that they are the same everywhere, on another device."""
    to: dict[type, Callable[[Any], Any]] = {
        torch.Tensor: lambda tensor: tensor.to(device),
        torch.device: lambda _: torch.device(device),
    }
    return [to.get(type(value), lambda other: other)(value) for value in inputs]


def machine(stopwatch: Stopwatch) -> dict[str, Any]:
    """Return the conditions of a measurement: GPU, driver, versions, date, clocks."""
    query = subprocess.run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"], capture_output=True)
    installed = {distribution.name for distribution in metadata.distributions()}
    return {
        "gpu": torch.cuda.get_device_name(stopwatch.device),
        "driver": query.stdout.decode().partition("\n")[0],
        "versions": versions() | {name: metadata.version(name) for name in PACKAGES if name in installed},
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "telemetry": stopwatch.telemetry(),
    }


def show(result: PeerComparison) -> None:
    place = f"{result.exercise:<24} {result.case:<48} {result.seconds * 1e6:9.1f} µs"
    rate = f"{result.bytes_per_second / 1e9:6.0f} GB/s"
    if result.flops:
        rate += f" {result.flops / result.seconds / 1e12:6.0f} TFLOP/s"
    ratios = [f"{peer} {middle:.3f} ({low:.3f}..{high:.3f})" for peer, (middle, low, high) in result.ratios.items()]
    print(place, rate, *ratios, sep="  ", flush=True)


def merge(path: Path, results: Iterable[PeerComparison], conditions: Mapping[str, Any]) -> None:
    """Write the results to a file, beside results of other cases that are in it already."""
    content: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    by_case = {(result["exercise"], result["case"]): result for result in content.get("peers", [])}
    by_case |= {(result.exercise, result.case): asdict(result) for result in results}
    content |= conditions
    content["peers"] = list(by_case.values())
    content["absent"] = {**content.get("absent", {}), **absent}
    path.write_text(json.dumps(content, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("exercises", nargs="*", metavar="NAME", help="only the races of these")
    parser.add_argument("--part", type=int, choices=(1, 2), help="half of the races; together 14 minutes")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seconds", type=float, default=400.0, help="begin no race after this time")
    parser.add_argument("--json", type=Path, help="where the results go")
    options = parser.parse_args()
    began = time.perf_counter()
    stopwatch = Stopwatch()
    rates = ceilings.measure(stopwatch)
    print("  ".join(f"{name} {rate / 1e9:.0f} GB/s" for name, rate in rates.items()))
    results: list[PeerComparison] = []
    for race in races():
        wanted = not options.exercises or set(options.exercises) & set(race.exercises)
        if not wanted or options.part not in (None, race.part):
            continue
        if time.perf_counter() - began > options.seconds:
            absent[", ".join(race.exercises)] = f"not begun after {options.seconds:.0f} s"
            continue
        for result in run(race, stopwatch, options.rounds):
            show(result)
            results.append(result)
            if options.json:  # after each case, so that nothing is lost when the time is up
                conditions = machine(stopwatch) | {"ceilings": rates, "rounds": options.rounds}
                merge(options.json, results, {**conditions, "confidence": CONFIDENCE})
    for label, reason in absent.items():
        print(f"absent: {label}: {reason}")


if __name__ == "__main__":
    main()
