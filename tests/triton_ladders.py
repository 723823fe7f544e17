"""Run the steps of the Triton ladders on the PTX machine, and print the names of the correct ones."""

from __future__ import annotations

import torch

from kernelpath.show import notebook
from warpcheck.frontends import triton


def check_gelu_triton() -> None:
    x = torch.randn(4096)
    exact = {"half": x / 2, "erf": torch.nn.functional.gelu(x)}
    for step in notebook.ladder("gelu_triton").values():
        right = exact.get(step.name, torch.nn.functional.gelu(x, approximate="tanh"))
        torch.testing.assert_close(step(x), right, atol=1e-6, rtol=1e-5)
        assert notebook.asked(step, x).bytes == 8 * x.numel()


def check_layernorm() -> None:
    x = torch.randn(16, 4096)
    weight = torch.randn(4096)
    bias = torch.randn(4096)
    (step,) = notebook.ladder("layernorm").values()
    right = torch.layer_norm(x, (4096,), weight, bias)
    torch.testing.assert_close(step(x, weight, bias), right, atol=1e-4, rtol=1e-4)
    # Each row reads weight and bias.
    assert notebook.asked(step, x, weight, bias).bytes == 16 * x.numel()


def check_layernorm_backward() -> None:
    dy = torch.randn(8, 300)
    x = torch.randn(8, 300)
    weight = torch.randn(300)
    mean = x.mean(1)
    rstd = (x.var(1, correction=0) + 1e-5).rsqrt()
    (step,) = notebook.ladder("layernorm_backward").values()
    right = torch.ops.aten.native_layer_norm_backward(
        dy, x, (300,), mean[:, None], rstd[:, None], weight, weight, [True] * 3
    )
    for result, expected in zip(step(dy, x, weight, mean, rstd), right, strict=True):
        torch.testing.assert_close(result, expected, atol=1e-4, rtol=1e-4)


def check_flash_attention() -> None:
    from triton.experimental.gluon import language as gl

    rng = torch.Generator().manual_seed(0)
    inputs = [torch.randn(1, 1, 128, 64, generator=rng).bfloat16() for _ in range(3)]
    q, k, v = (tensor.double() for tensor in inputs)
    right = torch.nn.functional.scaled_dot_product_attention(q, k, v)
    steps = notebook.ladder("flash_attention")
    rows = gl.BlockedLayout(size_per_thread=[1, 8], threads_per_warp=[4, 8], warps_per_cta=[4, 1], order=[1, 0])
    scores = gl.NVMMADistributedLayout(version=[2, 0], warps_per_cta=[4, 1], instr_shape=[16, 8])
    in_smem = gl.SwizzledSharedLayout(vec=8, per_phase=1, max_phase=8, order=[1, 0])
    torch.testing.assert_close(steps["whole_tiles"](*inputs).double(), right, rtol=1e-2, atol=1e-2)
    for detour in (False, True):
        result = steps["gluon"](*inputs, in_smem, scores, rows, detour)
        torch.testing.assert_close(result.double(), right, rtol=1e-2, atol=1e-2)


if __name__ == "__main__":
    triton.activate("cpu")
    for name, check in (
        ("gelu_triton", check_gelu_triton),
        ("layernorm", check_layernorm),
        ("layernorm_backward", check_layernorm_backward),
        ("flash_attention", check_flash_attention),
    ):
        check()
        print(name)
