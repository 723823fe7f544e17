"""Compare the reference kernels of all phases with the best other kernels on this GPU, in one process.

    python benchmarks/peers.py --part 1 --json results/h200_peers.json      7 minutes each; the second adds to the file
    python benchmarks/peers.py --part 2 --json results/h200_peers.json
    python benchmarks/peers.py softmax fp8_gemm                             only these, printed
    python benchmarks/peers.py --part 1 --json FILE --resume                only cases that the file doesn't have yet

The contestants of a case run once in each round, in a random order, with a cold L2, on the same inputs, which are those
that the grader generates. A ratio is the peer's time divided by ours, paired by round: above 1 ours is faster. "copy"
is PyTorch's device-to-device copy of the bytes that the kernel has to move. It is no peer: its ratio is the share of
the copy's bandwidth. A peer whose package is not installed is left out, and named in the file under "absent", as is a
contestant that raises, computes something else, or needs more than FIRST_CALL seconds for its first call.

The file is written after each case and before each first call. If a kernel ends the process or leaves the GPU in an
error (exit code 75), `--resume` continues with the next case and skips the contestant that was running.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timezone
from functools import cache, partial
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from kernelpath.course import registry
from kernelpath.course.problem import Case, arguments
from kernelpath.course.problems import (
    add_rmsnorm,
    cross_entropy,
    fp8_decode,
    gelu,
    layernorm_backward,
    moe_combine,
    moe_route,
    stencil,
    w4a16,
)
from kernelpath.grading.grade import versions
from kernelpath.grading.timing import CONFIDENCE, implementation_order, paired_ratio
from kernelpath.show.results import PeerComparison
from kernelpath.work import ceilings
from kernelpath.work.stopwatch import Stopwatch

Kernel = Callable[..., Any]
Peers = Mapping[str, Kernel]

WARM_UP = 3
ROUNDS = 48
# Seconds of one case after which its rounds end, but not before MIN_ROUNDS of them.
LONG = 1.0

MIN_ROUNDS = 15
# Rounds in which the host's work counts, too.
ELAPSED_ROUNDS = 7
# Cases of each race that come before the others of any race.
FIRST_CASES = 2
# Seconds after which a first call, which compiles and tunes, is interrupted.
FIRST_CALL = 75.0
# Seconds that a first call may run on the GPU after that.
HANG = 15.0
# The exit code if the GPU is in an error state, which only a new process leaves.
GPU_ERROR = 75

INTERRUPTED = "its first call did not return"
PACKAGES = ("liger-kernel", "quack-kernels", "flash-attn-4", "cuda-cccl", "nvidia-matmul-heuristics")
# Contestants that could not be imported or refused a case, with the reason.
absent: dict[str, str] = {}


@dataclass(frozen=True)
class Race:
    """Cases of some exercises that have the same operator.

    Attributes:
        exercises: Exercises whose reference kernels take part. The first one generates the inputs.
        peers: Kernels that take the same arguments.
        part: The run to which the race belongs.
        adapt: A function that makes of a reference kernel one that takes these arguments.
    """

    exercises: tuple[str, ...]
    cases: Sequence[Case]
    peers: Peers
    part: int = 1
    adapt: Callable[[Kernel], Kernel] = lambda kernel: kernel


def optional(module: str, name: str, use: Callable[[Kernel], Kernel] = lambda kernel: kernel) -> Kernel | None:
    """Return a kernel of a package, adapted by `use` to our arguments, or None if the package is not installed."""
    try:
        return use(getattr(importlib.import_module(module), name))
    except Exception as error:  # a package that was built for another version fails in many ways
        absent[f"{module}.{name}"] = describe(error)
        return None


def describe(error: BaseException) -> str:
    """Return the type and the beginning of the message of an error."""
    return f"{type(error).__name__}: {error}"[:300]


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
    """Run the integer GEMM alone, without the scales that ours applies."""
    return torch._int_mm(a, b.t())


def cudnn_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> tuple[torch.Tensor, ...]:
    k, v = (_repeated_heads(x, q.shape[1] // x.shape[1]) for x in (k, v))
    result = torch.ops.aten._scaled_dot_product_cudnn_attention(q, k, v, None, True, 0.0, causal, False)
    return result[0], result[1].squeeze(-1)


def flash2_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> tuple[torch.Tensor, ...]:
    k, v = (_repeated_heads(x, q.shape[1] // x.shape[1]) for x in (k, v))
    result = torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, 0.0, causal, False)
    return result[0], result[1]


def flash4_attention(kernel: Kernel) -> Kernel:
    """Return FlashAttention for our order of dimensions.

    Its tensors have tokens before heads. For a fair race it gets the same values in that order, which the first call
    creates untimed.
    """

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
        out = kernel(*(_tokens_first(x) for x in (q, k, v)), causal=causal)
        out = out[0] if isinstance(out, tuple) else out
        return out.transpose(1, 2)  # type: ignore[no-any-return]

    return attend


_reordered: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
_repeated: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}


def _tokens_first(x: torch.Tensor) -> torch.Tensor:
    """Return x with the order of its dimensions 1 and 2 changed in memory. The first call makes it, untimed."""
    if id(x) not in _reordered or _reordered[id(x)][0] is not x:
        _reordered[id(x)] = x, x.transpose(1, 2).contiguous()
    return _reordered[id(x)][1]


def _repeated_heads(x: torch.Tensor, group: int) -> torch.Tensor:
    """Return x with each head `group` times, for operators without grouped heads. The first call makes it, untimed."""
    if group == 1:
        return x
    if id(x) not in _repeated or _repeated[id(x)][0] is not x:
        _repeated[id(x)] = x, x.repeat_interleave(group, 1)
    return _repeated[id(x)][1]


_graphs: dict[tuple[int, str], tuple[torch.Tensor, list[torch.Tensor], torch.Tensor]] = {}


def through_autograd(forward: Kernel) -> Kernel:
    """Return the backward pass of an operator of PyTorch. The first call runs the forward pass, untimed."""

    def gradients(
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        out: torch.Tensor,
        lse: torch.Tensor,
        dout: torch.Tensor,
        causal: bool,
    ) -> tuple[torch.Tensor, ...]:
        key = id(q), forward.__name__
        if key not in _graphs or _graphs[key][0] is not q:
            leaves = [x.detach().requires_grad_() for x in (q, k, v)]
            _graphs[key] = q, leaves, forward(*leaves, causal)[0]
        _, leaves, result = _graphs[key]
        return torch.autograd.grad(result, leaves, dout, retain_graph=True)

    return gradients


def flash4_gradients_in_fixed_order(kernel: Kernel) -> Kernel:
    """Return FlashAttention 4's backward pass with the same bits in every run, as ours has."""
    return flash4_gradients(partial(kernel, deterministic=True))


def flash4_gradients(kernel: Kernel) -> Kernel:
    def gradients(*tensors: Any) -> tuple[torch.Tensor, ...]:
        q, k, v, out, lse, dout, causal = tensors
        q, k, v, out, dout = (_tokens_first(x) for x in (q, k, v, out, dout))
        result = kernel(q, k, v, out, dout, lse, causal=causal)
        return tuple(x.transpose(1, 2) for x in result[:3])

    return gradients


def varlen(kernel: Kernel) -> Kernel:
    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, cu_seqlens: torch.Tensor) -> Any:
        longest = _longest(cu_seqlens)
        lengths = {"cu_seqlens_q": cu_seqlens, "cu_seqlens_k": cu_seqlens}
        out = kernel(q, k, v, **lengths, max_seqlen_q=longest, max_seqlen_k=longest, causal=True)
        return out[0] if isinstance(out, tuple) else out

    return attend


def flash2_varlen(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, cu_seqlens: torch.Tensor) -> torch.Tensor:
    longest = _longest(cu_seqlens)
    attend = torch.ops.aten._flash_attention_forward
    return attend(q, k, v, cu_seqlens, cu_seqlens, longest, longest, 0.0, True, False)[0]  # type: ignore[no-any-return]


_longest_of: dict[int, tuple[torch.Tensor, int]] = {}


def _longest(cu_seqlens: torch.Tensor) -> int:
    """Return the length of the longest sequence, which a framework knows on the host. The first call reads it."""
    if id(cu_seqlens) not in _longest_of or _longest_of[id(cu_seqlens)][0] is not cu_seqlens:
        _longest_of[id(cu_seqlens)] = cu_seqlens, int(cu_seqlens.diff().max())
    return _longest_of[id(cu_seqlens)][1]


def paged(kernel: Kernel) -> Kernel:
    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, table: torch.Tensor, tokens: torch.Tensor) -> Any:
        out = kernel(q[:, None], k, v, page_table=table, seqused_k=tokens, num_splits=1)
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


def quack_layernorm(kernel: Kernel) -> Kernel:
    """Return Quack's kernel, which takes float32 weights only. The first call converts them, untimed."""

    def normalize(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> Any:
        return kernel(x, _convert_once(weight), _convert_once(bias), eps, return_rstd=True, return_mean=True)

    return normalize


_float32_copies: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}


def _convert_once(x: torch.Tensor) -> torch.Tensor:
    if id(x) not in _float32_copies or _float32_copies[id(x)][0] is not x:
        _float32_copies[id(x)] = x, x.float()
    return _float32_copies[id(x)][1]


def quack_cross_entropy(kernel: Kernel) -> Kernel:
    """Return Quack's cross entropy, which doesn't average the losses of the rows. It spends no time on that."""

    def losses(logits: torch.Tensor, labels: torch.Tensor, ignore_index: int, gradient: bool) -> Any:
        return kernel(logits, labels, ignore_index=ignore_index, return_dx=gradient)

    return losses


def quack_product(kernel: Kernel) -> Kernel:
    """Return Quack's GEMM in the configuration that NVIDIA's matmul heuristics predict to be the fastest.

    With tuned=True it compiles 44 configurations, which takes longer than all other cases together.
    """
    return lambda a, b: kernel(a, b, tuned=False)


def torch_grouped(kernel: Kernel) -> Kernel:
    """Return PyTorch's grouped GEMM, which has no gather: the copy of the rows is a part of the time."""

    def multiply(x: torch.Tensor, w: torch.Tensor, source: torch.Tensor, offsets: torch.Tensor) -> Any:
        return kernel(x.index_select(0, source), w.transpose(1, 2), offs=offsets[1:])

    return multiply


def quack_grouped(kernel: Kernel) -> Kernel:
    """Return Quack's GEMM with groups along m and rows of x that it gathers itself."""

    def multiply(x: torch.Tensor, w: torch.Tensor, source: torch.Tensor, offsets: torch.Tensor) -> Any:
        return kernel(x, w.transpose(1, 2), cu_seqlens_m=offsets, A_idx=source, tuned=False)

    return multiply


_dequantized: dict[int, tuple[torch.Tensor, tuple[torch.Tensor, ...]]] = {}


def _dequantized_once(x: torch.Tensor, dequantize: Callable[[], tuple[torch.Tensor, ...]]) -> tuple[torch.Tensor, ...]:
    """Return the tensors that belong to the quantized tensor x. The first call makes them, untimed."""
    if id(x) not in _dequantized or _dequantized[id(x)][0] is not x:
        _dequantized.clear()  # those of the case before
        _dequantized[id(x)] = x, dequantize()
    return _dequantized[id(x)][1]


def product_in_16_bits(x: torch.Tensor, packed: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor) -> torch.Tensor:
    """Run cuBLAS with weights that were never quantized, which are four times the bytes."""
    (weight,) = _dequantized_once(packed, lambda: (w4a16.dequantize(packed, scale, zero, x.dtype),))
    return x @ weight.T


def tinygemm(kernel: Kernel) -> Kernel:
    """Return PyTorch's GEMM with weights of 4 bits, which torchao calls. Its own order of weights is made untimed."""

    def multiply(x: torch.Tensor, packed: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor) -> Any:
        def convert() -> tuple[torch.Tensor, ...]:
            q = w4a16.unpack(packed)
            pairs = (q[:, ::2] << 4 | q[:, 1::2]).to(torch.uint8)
            # It computes (q - 8) * scale + offset.
            offset = (8 - zero.to(scale.dtype)) * scale
            return torch.ops.aten._convert_weight_to_int4pack(pairs, 8), torch.stack([scale, offset], 2)

        words, scales = _dequantized_once(zero, convert)
        return kernel(x, words, w4a16.GROUP, scales)

    return multiply


def attention_in_16_bits(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, k_scale: torch.Tensor, v_scale: torch.Tensor
) -> torch.Tensor:
    """Run PyTorch's attention over a cache that was never quantized, which is twice the bytes."""

    def dequantize() -> tuple[torch.Tensor, ...]:
        return (k.float() * k_scale[:, :, None]).to(q.dtype), (v.float() * v_scale[..., None]).to(q.dtype)

    keys, values = _dequantized_once(k, dequantize)
    return F.scaled_dot_product_attention(q[:, :, None], keys, values)[:, :, 0]


def fused_adamw(steps: Sequence[int], *arguments: Any) -> None:
    """Run PyTorch's fused AdamW, as torch.optim.AdamW(fused=True) does, with step counters on the device."""
    lr, beta1, beta2, eps, weight_decay = arguments[:5]
    tensors = arguments[5:]
    count = len(steps)
    params, grads, moments, squares = (list(tensors[part * count : (part + 1) * count]) for part in range(4))
    settings = {"lr": lr, "beta1": beta1, "beta2": beta2, "eps": eps, "weight_decay": weight_decay}
    switches = {"amsgrad": False, "maximize": False}
    update: Kernel = torch._fused_adamw_
    update(params, grads, moments, squares, [], _counters(steps, params[0].device), **settings, **switches)


def cub_sum(kernel: Kernel) -> Kernel:
    """Return CUB's sum of a vector."""
    plus = importlib.import_module("cuda.compute").OpKind.PLUS

    def total(x: torch.Tensor) -> torch.Tensor:
        out = x.new_empty(1)
        start = np.zeros(1, np.float32)
        kernel(d_in=x, d_out=out, num_items=x.numel(), op=plus, h_init=start)
        return out

    return total


def cub_scan(kernel: Kernel) -> Kernel:
    """Return CUB's inclusive scan of an int32 vector."""
    plus = importlib.import_module("cuda.compute").OpKind.PLUS
    zero = np.array([0], dtype=np.int32)

    def scan(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        kernel(d_in=x, d_out=out, op=plus, init_value=zero, num_items=x.numel())
        return out

    return scan


def cub_histogram(kernel: Kernel) -> Kernel:
    """Return CUB's histogram, whose counts are int32."""

    def count(x: torch.Tensor, bins: int) -> torch.Tensor:
        out = torch.empty(bins, dtype=torch.int32, device=x.device)
        levels = {"num_output_levels": bins + 1, "lower_level": np.int32(0), "upper_level": np.int32(bins)}
        kernel(d_samples=x, d_histogram=out, **levels, num_samples=x.numel())
        return out

    return count


def smooth(x: torch.Tensor) -> torch.Tensor:
    """Apply the stencil as a convolution."""
    weights = (stencil.RADIUS + 1 - torch.arange(-stencil.RADIUS, stencil.RADIUS + 1, device=x.device).abs()).float()
    weights /= (stencil.RADIUS + 1) ** 2
    return F.conv1d(x[None, None], weights[None, None], padding=stencil.RADIUS)[0, 0]


def with_gradient(operator: Kernel) -> Kernel:
    """Return an operator of one tensor together with its gradient, as autograd calls it."""

    def both_ways(x: torch.Tensor, dy: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        leaf = x.detach().requires_grad_()
        y = operator(leaf)
        return y.detach(), torch.autograd.grad(y, leaf, dy)[0]

    return both_ways


def applied_with_gradient(function: Any) -> Kernel:
    return with_gradient(function.apply)


def softmax_both_ways(x: torch.Tensor, dy: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y = torch.softmax(x, dim=1)
    return y, torch.ops.aten._softmax_backward_data(dy, y, 1, x.dtype)


_step_counters: dict[tuple[int, ...], list[torch.Tensor]] = {}


def _counters(steps: Sequence[int], device: torch.device) -> list[torch.Tensor]:
    key = tuple(steps)
    if key not in _step_counters:
        _step_counters[key] = [torch.tensor(float(step), device=device) for step in steps]
    return _step_counters[key]


def select_positive(x: torch.Tensor, out: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
    """Select as PyTorch does, which copies the count to the host and waits for it."""
    selected = x[x > 0]
    out[: selected.numel()] = selected
    return out


def sort_by_digit(keys: torch.Tensor, first: torch.Tensor, shift: int) -> torch.Tensor:
    """Sort stably by one digit with PyTorch, which sorts digits of 8 bits with indices in one pass, then gathers."""
    return keys[(keys >> shift).to(torch.uint8).sort(stable=True).indices]


def bench(name: str) -> list[Case]:
    """Return the exercise's largest case in a list, or no case."""
    case = registry.load(registry.find(name)).bench
    return [case] if case else []


def elementwise() -> Iterator[Race]:
    """Yield the races of kernels that memory bounds."""
    yield Race(("adam",), [*bench("adam"), *registry.load(registry.find("adam")).sweep], {"fused": fused_adamw})
    total = present(
        eager=partial(torch.sum, dim=0, keepdim=True),
        cub=optional("cuda.compute", "reduce_into", cub_sum),
    )
    yield Race(("reduction",), grid(n=[1 << power for power in range(20, 31, 2)]), total)
    counts = present(
        eager=lambda x, bins: torch.bincount(x, minlength=bins),
        cub=optional("cuda.compute", "histogram_even", cub_histogram),
    )
    yield Race(("histogram",), registry.load(registry.find("histogram")).sweep, counts)
    prefix_sums = present(
        eager=partial(torch.cumsum, dim=0, dtype=torch.int32),
        cub=optional("cuda.compute", "inclusive_scan", cub_scan),
    )
    yield Race(("scan",), grid(n=[1 << power for power in range(20, 29, 4)]), prefix_sums)
    yield Race(("compact",), bench("compact"), {"eager": select_positive})
    yield Race(("radix_pass",), bench("radix_pass"), {"eager": sort_by_digit})
    yield Race(("moe_route",), bench("moe_route"), {"eager": moe_route.eager})
    yield Race(("moe_combine",), bench("moe_combine"), with_compiled(moe_combine.eager))
    both_ways = with_compiled(
        softmax_both_ways,
        liger=optional("liger_kernel.ops.softmax", "LigerSoftmaxFunction", applied_with_gradient),
        quack=optional("quack.softmax", "softmax", with_gradient),
    )
    yield Race(("custom_operator",), bench("custom_operator"), both_ways, adapt=with_gradient)
    n = [1 << 20, 1 << 24, 1 << 28]
    yield Race(("vector_add", "vector_add_triton"), grid(n=n, offset=[0]), {"eager": torch.add})
    yield Race(("matrix_add", "matrix_add_triton"), bench("matrix_add"), {"eager": torch.add})
    yield Race(("stencil",), bench("stencil"), {"eager": smooth})
    gather = {"eager": lambda table, index: torch.index_select(table, 0, index)}
    yield Race(("coalescing",), bench("coalescing"), gather)
    square = {"rows": 8192, "columns": 8192}
    transposes = [{**square, "dtype": dtype} for dtype in ("float32", "bfloat16")]
    yield Race(("transpose", "transpose_cute"), transposes, with_compiled(lambda x: x.t().contiguous()))
    yield Race(("strided_copy",), bench("strided_copy"), {"eager": lambda x: x.contiguous()})
    yield Race(("ptx",), bench("ptx"), with_compiled(F.hardswish))
    activations = [{"n": 1 << 28, "dtype": dtype, "approximate": "tanh"} for dtype in ("float32", "bfloat16")]
    by_hand = compiled(gelu.by_hand)
    gelu_peers = {"eager": lambda x, approximate: F.gelu(x, approximate=approximate), "compiled": by_hand}
    yield Race(("gelu", "gelu_triton"), activations, gelu_peers)
    bias = [{"rows": 32_768, "columns": 8192, "dtype": dtype} for dtype in ("float32", "bfloat16")]
    yield Race(("bias_relu",), bias, with_compiled(lambda x, bias: torch.relu(x + bias)))
    copies = [{"n": 1 << 28, "offset": 0, "dtype": "float32"}]
    yield Race(("vector_copy",), copies, {"eager": torch.clone})
    yield Race(("tma_copy",), bench("tma_copy"), {"eager": torch.clone})


def rows() -> Iterator[Race]:
    """Yield the races of kernels that work on the rows of a matrix."""
    softmax = with_compiled(
        lambda x: torch.softmax(x, dim=1),
        liger=optional("liger_kernel.ops.softmax", "LigerSoftmaxFunction", applied),
        quack=optional("quack.softmax", "softmax_fwd"),
    )
    cases = of_rows(1024, 5000, 8192, 32_768, 131_072)
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
        quack=optional("quack.rmsnorm", "layernorm_fwd", quack_layernorm),
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
    flat = [(rows, 8192, 8192) for rows in (128, 16, 64, 256, 32)]
    sizes = [*cubes(8192), *flat, *cubes(4096, 2048, 16_384, 1024, 3072, 512)]
    quack = optional("quack.gemm_interface", "gemm", quack_product)
    half = present(cublas=torch.mm, quack=quack)
    layout = {"dtype": "bfloat16", "layout": "nt"}
    yield Race(("persistent_gemm", "matmul_persistent"), products(*sizes, **layout), half, part=2)
    float8 = {"dtype": "float8_e4m3fn", "scales": "block"}
    blocks = products(*cubes(8192), *flat[:1], *cubes(4096, 2048, 16_384), *flat[2:3], **float8)
    yield Race(("fp8_gemm", "fp8_matmul"), blocks, {"cublas": scaled_blocks}, part=2)
    integers = products(*cubes(8192), *flat[:1], *cubes(4096, 2048, 16_384), dtype="int8")
    yield Race(("int8_matmul",), integers, {"_int_mm": int_product}, part=2)
    yield Race(("cute_cpp",), products(*cubes(4096, 8192), **layout), {"cublas": torch.mm}, part=2)
    wgmma = products(*cubes(4096, 8192, 1024, 2048))
    yield Race(("wgmma_gemm",), wgmma, {"cublas": lambda a, b: torch.mm(a, b.t())}, part=2)
    mma_sync = products(*cubes(4096, 8192), dtype="bfloat16")
    yield Race(("tensor_cores", "tensorop_gemm"), mma_sync, {"cublas": torch.mm}, part=2)
    single = products(*cubes(2048, 4096, 8192))
    yield Race(("sgemm_registers", "sgemm_async", "sgemm_cute"), single, {"cublas": torch.mm}, part=2)
    grouped = present(
        loop=registry.load(registry.find("grouped_gemm")).baseline,
        torch=optional("torch.nn.functional", "grouped_mm", torch_grouped),
        quack=optional("quack.gemm_interface", "gemm", quack_grouped),
    )
    yield Race(("grouped_gemm",), bench("grouped_gemm"), grouped, part=2)
    low_bits = present(cublas=product_in_16_bits, tinygemm=optional("torch", "_weight_int4pack_mm", tinygemm))
    yield Race(("w4a16",), [*bench("w4a16"), w4a16.case(16, 28_672, 4096, "bfloat16")], low_bits, part=2)


def fused_products() -> Iterator[Race]:
    """Yield the races of GEMMs with an epilogue. torch.compile tunes its own GEMMs for them, which takes long."""
    epilogues: Peers = {
        "gemm_epilogue": gelu_epilogue,
        "gemm_epilogue_cute": gelu_epilogue_aux,
        "swiglu": swiglu_formula,
    }
    for name, formula in epilogues.items():
        exercise = registry.load(registry.find(name))
        peers = present(two_kernels=exercise.baseline, compiled=compiled(formula))
        yield Race((name,), bench(name), peers, part=2)


def gelu_epilogue(
    a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor, scale: torch.Tensor, residual: torch.Tensor
) -> torch.Tensor:
    return gelu_epilogue_aux(a, b, bias, scale, residual)[0]


def gelu_epilogue_aux(
    a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor, scale: torch.Tensor, residual: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    aux = torch.addmm(bias, a, b)
    return (F.gelu(aux.float(), approximate="tanh") * scale[:, None] + residual).to(a.dtype), aux


def swiglu_formula(x: torch.Tensor, w: torch.Tensor, dh: torch.Tensor | None) -> torch.Tensor:
    gate, up = (x @ w.T).chunk(2, dim=1)
    return F.silu(gate) * up


def attentions() -> Iterator[Race]:
    """Yield the races of attention."""
    shapes = [(4, 1, 4096, 128), (16, 1, 1024, 128), (1, 1, 16_384, 128), (4, 1, 4096, 64), (4, 4, 4096, 128)]
    forward = present(
        cudnn=cudnn_attention,
        flash2=flash2_attention,
        flash4=optional("flash_attn.cute", "flash_attn_func", flash4_attention),
    )
    yield Race(("flash_attention_cute", "flash_attention"), attention(*shapes), forward, part=2)
    backward = present(
        cudnn=through_autograd(cudnn_attention),
        flash2=through_autograd(flash2_attention),
        flash4=optional("flash_attn.cute.interface", "_flash_attn_bwd", flash4_gradients),
        flash4_fixed=optional("flash_attn.cute.interface", "_flash_attn_bwd", flash4_gradients_in_fixed_order),
    )
    no_groups = [shape for shape in shapes if shape[1] == 1]
    names = ("flash_attention_backward_cute", "flash_attention_backward")
    yield Race(names, attention(*no_groups), backward, part=2)
    for name, use in (("long_context", varlen), ("paged_decode", paged)):
        exercise = registry.load(registry.find(name))
        peers = present(
            flash2=flash2_varlen if name == "long_context" else None,
            flash4=optional("flash_attn.cute", "flash_attn_varlen_func", use),
        )
        yield Race((name,), [*bench(name), *exercise.sweep[:4]], peers, part=2)
    over_cache = {"eager": fp8_decode.dequantize_then_attend, "sdpa": attention_in_16_bits}
    yield Race(("fp8_decode",), bench("fp8_decode"), over_cache, part=2)


def races() -> Iterator[Race]:
    for family in (rows, elementwise, attentions, matrix_products, fused_products):
        yield from family()


@cache
def entry(name: str) -> Kernel:
    """Return the reference kernel of an exercise, loaded by its path."""
    item = registry.find(name)
    kernel: Kernel = getattr(registry.import_file(item.reference, f"reference_{name}"), registry.load(item).entry)
    return kernel


@dataclass
class Recorder:
    """Results of this run, and the file to which they are added, if any.

    Attributes:
        conditions: Properties of the machine and the measurement.
        resume: Whether cases that are in the file, and contestants that ended an earlier run, are skipped.
        before: The content of the file before this run.
        telemetry: The largest reading of each sensor after a case.
    """

    path: Path | None = None
    conditions: Mapping[str, Any] = field(default_factory=dict)
    resume: bool = False
    results: list[PeerComparison] = field(default_factory=list)
    before: dict[str, Any] = field(default_factory=dict)
    telemetry: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.path is not None and self.path.exists():
            self.before = json.loads(self.path.read_text())

    def add(self, result: PeerComparison, telemetry: Mapping[str, float]) -> None:
        self.results.append(result)
        for sensor, reading in telemetry.items():
            self.telemetry[sensor] = max(reading, self.telemetry.get(sensor, reading))
        self.save()

    def has(self, exercise: str, case: str) -> bool:
        """Return whether the file had the case before this run, which resumes an earlier one."""
        rows = self.before.get("peers", []) if self.resume else []
        return any((row["exercise"], row["case"]) == (exercise, case) for row in rows)

    def was_interrupted(self, label: str) -> bool:
        """Return whether an earlier run ended in the contestant's first call."""
        return self.resume and self.before.get("absent", {}).get(label) == INTERRUPTED

    def forget(self, label: str) -> None:
        """Remove the reason for which a case or a contestant was absent."""
        absent.pop(label, None)
        self.before.get("absent", {}).pop(label, None)

    def save(self) -> None:
        """Write the file, with results of other cases that were in it already."""
        if self.path is None:
            return
        by_case = {(row["exercise"], row["case"]): row for row in self.before.get("peers", [])}
        by_case |= {(result.exercise, result.case): asdict(result) for result in self.results}
        content = {**self.before, **self.conditions, "telemetry": self.telemetry}
        content["peers"] = list(by_case.values())
        content["absent"] = {**self.before.get("absent", {}), **absent}
        part = self.path.with_suffix(".part")
        part.write_text(json.dumps(content, indent=1) + "\n")
        part.replace(self.path)


class FirstCallTimeoutError(Exception):
    """A first call took longer than FIRST_CALL."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise FirstCallTimeoutError in the block after some seconds, as soon as Python code runs.

    If none runs for HANG seconds more, a kernel hangs. The process then ends with GPU_ERROR.
    """

    def interrupt(*_: object) -> None:
        raise FirstCallTimeoutError(f"its first call took more than {seconds:.0f} s")

    hang = threading.Timer(seconds + HANG, os._exit, (GPU_ERROR,))
    hang.daemon = True
    hang.start()
    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        hang.cancel()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@dataclass
class Outcome:
    """The first output of a case: that of the first reference kernel, with which all others are compared.

    Attributes:
        in_place: Whether the kernels change their inputs, so that no two calls have the same outcome.
    """

    in_place: bool
    expected: torch.Tensor | None = None

    def compare(self, outputs: Any) -> None:
        """Compare up to a few roundings of bfloat16. Raises AssertionError.

        In 1% of the elements the error may be half of the root mean square: gradients of attention depend on the
        rounding of the output from which each kernel starts, most of all where terms cancel.

        An integer GEMM without scales and losses before their average are less work than ours, and not compared.
        """
        if self.in_place:
            return
        out = first_output(outputs)
        if self.expected is None:
            self.expected = out
            return
        if out.shape != self.expected.shape:
            return
        if out.dtype.is_floating_point and self.expected.dtype.is_floating_point:
            scale = self.expected.float().square().mean().sqrt().item()
            close = torch.isclose(out.to(self.expected.dtype), self.expected, rtol=0.04, atol=0.04 * scale)
            if close.float().mean().item() < 0.99:
                torch.testing.assert_close(out, self.expected, rtol=0.04, atol=0.04 * scale, check_dtype=False)
            torch.testing.assert_close(out, self.expected, rtol=0.04, atol=0.5 * scale, check_dtype=False)
        elif not out.dtype.is_floating_point and not self.expected.dtype.is_floating_point:
            torch.testing.assert_close(out, self.expected, rtol=0, atol=0, check_dtype=False)


def is_ready(label: str, kernel: Kernel, inputs: Sequence[Any], expected: Outcome, recorder: Recorder) -> bool:
    """Call a contestant for the first time, and return whether it computes `expected`. If not, record why.

    Raises:
        SystemExit: The GPU is in an error state.
    """
    if recorder.was_interrupted(label):
        absent[label] = INTERRUPTED
        return False
    absent[label] = INTERRUPTED  # which stays in the file if the kernel ends this process
    recorder.save()
    try:
        with time_limit(FIRST_CALL):
            outputs = kernel(*inputs)
            torch.cuda.synchronize()
        expected.compare(outputs)
        recorder.forget(label)
        return True
    except Exception as error:
        absent[label] = describe(error)
    recorder.save()
    try:
        torch.cuda.synchronize()
    except Exception:
        print(f"GPU error: {label}: {absent[label]}", flush=True)
        sys.exit(GPU_ERROR)
    return False


def run(
    race: Race, stopwatch: Stopwatch, rounds: int = ROUNDS, recorder: Recorder | None = None, until: float = 1e30
) -> Iterator[PeerComparison]:
    """Time the cases of a race that the recorder's file does not have, until time.perf_counter() is `until`."""
    recorder = recorder or Recorder()
    torch.compiler.reset()
    references = {}
    for name in race.exercises:
        try:
            references[name] = race.adapt(entry(name))
        except Exception as error:
            absent[name] = describe(error)
    problem = registry.load(registry.find(race.exercises[0])).problem
    too_slow: set[str] = set()
    for case in race.cases:
        if all(recorder.has(name, arguments(case)) for name in race.exercises):
            continue
        label = f"{race.exercises[0]} {arguments(case)}"
        if time.perf_counter() > until:
            absent[label] = "not begun in the time given"
            continue
        for remembered in (_reordered, _repeated, _float32_copies, _graphs, _longest_of, _step_counters):
            remembered.clear()
        contestants = {**references, **{name: race.peers[name] for name in race.peers if name not in too_slow}}
        recorder.forget(label)
        try:
            yield from _run_case(label, contestants, tuple(references), problem, case, stopwatch, rounds, recorder)
        except Exception as error:  # one case less is better than none of the others
            absent[label] = describe(error)
            recorder.save()
        too_slow |= {name for name in race.peers if "took more than" in absent.get(f"{name}: {label}", "")}
        torch.cuda.empty_cache()


def _run_case(
    label: str,
    candidates: Mapping[str, Kernel],
    references: Sequence[str],
    problem: Any,
    case: Case,
    stopwatch: Stopwatch,
    rounds: int,
    recorder: Recorder,
) -> Iterator[PeerComparison]:
    # A kernel that works in place changes its inputs, so each contestant has the same right to any of the sets.
    sets = [problem.inputs(torch.Generator(stopwatch.device).manual_seed(seed), **case) for seed in (1, 2)]
    moved_bytes = problem.compulsory_bytes(**case)
    outcome = Outcome(problem.in_place is not None)
    contestants = {
        name: kernel
        for name, kernel in candidates.items()
        if is_ready(f"{name}: {label}", kernel, sets[0], outcome, recorder)
    }
    outcome.expected = None
    ready = [name for name in references if name in contestants]
    if not ready:
        return
    source = torch.empty(max(1, moved_bytes // 8), device=stopwatch.device)
    target = torch.empty_like(source)
    contestants["copy"] = lambda *_: target.copy_(source)
    seconds = _rounds(contestants, sets, stopwatch, rounds)
    elapsed, host = _elapsed(contestants, sets)
    for name in ready:
        rivals = [rival for rival in contestants if rival not in references]
        intervals = {rival: paired_ratio(seconds[rival], seconds[name], CONFIDENCE) for rival in rivals}
        median = statistics.median(seconds[name])
        yield PeerComparison(
            exercise=name,
            case=arguments(case),
            seconds=median,
            compulsory_bytes=moved_bytes,
            bytes_per_second=moved_bytes / median,
            ratios={rival: (interval.median, interval.low, interval.high) for rival, interval in intervals.items()},
            flops=problem.flops(**case) if problem.flops else 0,
            host_seconds=host[name],
            elapsed_ratios={rival: elapsed[rival] / elapsed[name] for rival in rivals},
        )


def _rounds(
    contestants: Mapping[str, Kernel], sets: Sequence[Sequence[Any]], stopwatch: Stopwatch, rounds: int
) -> dict[str, list[float]]:
    """Return the seconds of each contestant, round by round, on the GPU alone and with a cold L2."""
    names = list(contestants)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    began = time.perf_counter()
    for index in range(WARM_UP + rounds):
        if index >= WARM_UP + MIN_ROUNDS and time.perf_counter() - began > LONG:
            break
        turns = [names[turn] for turn in implementation_order(index, len(names))]
        timed, _ = stopwatch.round([partial(contestants[name], *sets[index % len(sets)]) for name in turns])
        for name, duration in zip(turns, timed, strict=True):
            seconds[name].append(duration)
    return {name: durations[WARM_UP:] for name, durations in seconds.items()}


def _elapsed(
    contestants: Mapping[str, Kernel], sets: Sequence[Sequence[Any]]
) -> tuple[dict[str, float], dict[str, float]]:
    """Return each contestant's medians of the seconds until the GPU is idle again, and until the call returns."""
    names = list(contestants)
    until_idle: dict[str, list[float]] = {name: [] for name in names}
    until_return: dict[str, list[float]] = {name: [] for name in names}
    for index in range(ELAPSED_ROUNDS):
        for turn in implementation_order(index, len(names)):
            torch.cuda.synchronize()
            start = time.perf_counter()
            contestants[names[turn]](*sets[index % len(sets)])
            until_return[names[turn]].append(time.perf_counter() - start)
            torch.cuda.synchronize()
            until_idle[names[turn]].append(time.perf_counter() - start)
    elapsed = {name: statistics.median(durations) for name, durations in until_idle.items()}
    return elapsed, {name: statistics.median(durations) for name, durations in until_return.items()}


def first_output(outputs: Any) -> torch.Tensor:
    first: torch.Tensor = outputs[0] if isinstance(outputs, (tuple, list)) else outputs
    return first


def move_inputs(inputs: Sequence[Any], device: str) -> list[Any]:
    """Return inputs generated on the CPU, so that they are the same everywhere, on another device."""
    to: dict[type, Callable[[Any], Any]] = {
        torch.Tensor: lambda tensor: tensor.to(device),
        torch.device: lambda _: torch.device(device),
    }
    return [to.get(type(value), lambda unchanged: unchanged)(value) for value in inputs]


def machine(stopwatch: Stopwatch) -> dict[str, Any]:
    """Return the conditions of a measurement: GPU, driver, versions, date, clocks."""
    query = subprocess.run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"], capture_output=True)
    installed = {distribution.name.replace("_", "-") for distribution in metadata.distributions()}
    return {
        "gpu": torch.cuda.get_device_name(stopwatch.device),
        "driver": query.stdout.decode().partition("\n")[0],
        "versions": versions() | {name: metadata.version(name) for name in PACKAGES if name in installed},
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }


def show(result: PeerComparison) -> None:
    place = f"{result.exercise:<24} {result.case:<48} {result.seconds * 1e6:9.1f} µs"
    rate = f"{result.bytes_per_second / 1e9:6.0f} GB/s"
    if result.flops:
        rate += f" {result.flops / result.seconds / 1e12:6.0f} TFLOP/s"
    ratios = [f"{peer} {middle:.3f} ({low:.3f}..{high:.3f})" for peer, (middle, low, high) in result.ratios.items()]
    print(place, rate, *ratios, sep="  ", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("exercises", nargs="*", metavar="NAME", help="only the races of these")
    parser.add_argument("--part", type=int, choices=(1, 2), help="half of the races; together 14 minutes")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seconds", type=float, default=400.0, help="begin no case after this time")
    parser.add_argument("--json", type=Path, help="the file to which results are added")
    parser.add_argument("--resume", action="store_true", help="skip cases that are in the file")
    options = parser.parse_args()
    until = time.perf_counter() + options.seconds
    stopwatch = Stopwatch()
    rates = ceilings.measure(stopwatch)
    print("  ".join(f"{name} {rate / 1e9:.0f} GB/s" for name, rate in rates.items()), flush=True)
    conditions = machine(stopwatch) | {"ceilings": rates, "rounds": options.rounds, "confidence": CONFIDENCE}
    recorder = Recorder(options.json, conditions, resume=options.resume)
    selected = [
        race
        for race in races()
        if (not options.exercises or set(options.exercises) & set(race.exercises)) and options.part in (None, race.part)
    ]
    # If the time does not suffice, every kernel has its first cases.
    for cases in (slice(FIRST_CASES), slice(FIRST_CASES, None)):
        for race in selected:
            for result in run(replace(race, cases=race.cases[cases]), stopwatch, options.rounds, recorder, until):
                show(result)
                recorder.add(result, stopwatch.telemetry())
    recorder.save()
    for label, reason in absent.items():
        print(f"absent: {label}: {reason}")
    print("finished", flush=True)  # libraries of peers have ended the process with an error after this


if __name__ == "__main__":
    main()
