"""Autotuned as in Triton's matrix product: configurations, a key, a pruner, and a hook before each trial."""

import torch
import triton
import triton.language as tl


def clear(arguments, reset_only=False):
    arguments["out"].zero_()


def configurations():
    return [triton.Config({"BLOCK": block}, num_warps=warps) for block, warps in ((256, 2), (512, 4), (2048, 8))]


def small_enough(configs, named_args, **kwargs):
    most = max(triton.next_power_of_2(named_args["n"]), 512)
    return [config for config in configs if config.kwargs["BLOCK"] <= most]


@triton.autotune(
    configs=configurations(), key=["n"], pre_hook=clear, prune_configs_by={"early_config_prune": small_enough}
)
@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + offsets, tl.load(x + offsets, offsets < n) + tl.load(y + offsets, offsets < n), offsets < n)


def vector_add(x, y):
    out = torch.empty_like(x)
    add_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, out, x.numel())
    return out
