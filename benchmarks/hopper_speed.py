"""Measure how long the PTX machine takes for three kernels for Hopper, with an empty cache and then again.

    python benchmarks/hopper_speed.py

The kernels are a GEMM of 128 x 128 x 128 with TMA and wgmma in CUDA C++, the persistent warp-specialized GEMM of week
22 at 256 x 512 x 192, and the attention of week 23 with 256 tokens and heads of 64. Each runs in a fresh process.
Prints wall-clock and processor seconds of the machine, which compiles and runs the PTX, and processor seconds of the
whole process, with its imports and with NVRTC or the CuTe DSL.

The cold run compiles the machine's own functions as well. A new kernel compiles only its own code, which "new kernel"
shows: the cache then has the code that another kernel has left there.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).parents[1]
KERNELS = ("product", "persistent", "attention")


def solution(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "solutions" / "5_cute" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def call_of(name: str) -> tuple[Callable[[], Any], Any]:
    """Return a function that runs a kernel on its operands, and the expected result."""
    import torch

    from warpcheck.frontends import cuda

    random = torch.Generator().manual_seed(1)
    if name == "product":
        a, b = (torch.randn(128, 128, generator=random).half() for _ in range(2))
        c = torch.empty(128, 128)

        def product() -> torch.Tensor:
            maps = (cuda.tensor_map(x, (64, 64), swizzle=128) for x in (a, b))
            source = ROOT / "warpcheck" / "tests" / "machine" / "hopper_kernels.cu"
            cuda.kernel(source, "gemm")[(2, 2), 160, 2 * 16384 + 1024](*maps, c, 128, 128)
            return c

        return product, a.float() @ b.float().T
    if name == "persistent":
        a = torch.randn(256, 192, generator=random).bfloat16()
        b = torch.randn(512, 192, generator=random).bfloat16()
        gemm = solution("w22a_persistent_gemm")
        return lambda: gemm.matmul(a, b.T), a.float() @ b.float().T
    q, k, v = (torch.randn(1, 1, 256, 64, generator=random).bfloat16() for _ in range(3))
    expected = torch.nn.functional.scaled_dot_product_attention(q.float(), k.float(), v.float())
    attention = solution("w23a_flash_attention_cute")
    return lambda: attention.flash_attention(q, k, v, False)[0], expected


def run(name: str) -> None:
    """Run a kernel in this process, and print the times."""
    import torch

    from warpcheck import simulated_gpu
    from warpcheck.simt import Module

    simulated_gpu.show({}, "sm_90a")
    spent = [0.0, 0.0]

    def timed(method: Callable[..., Any]) -> Callable[..., Any]:
        def call_timed(*args: Any, **options: Any) -> Any:
            depth.append(method)
            wall, processor = time.perf_counter(), sum(os.times()[:4])
            try:
                return method(*args, **options)
            finally:
                depth.pop()
                if not depth:
                    spent[0] += time.perf_counter() - wall
                    spent[1] += sum(os.times()[:4]) - processor

        return call_timed

    depth: list[Any] = []
    for method in ("__init__", "compile", "launch"):
        setattr(Module, method, timed(getattr(Module, method)))
    call, expected = call_of(name)
    torch.testing.assert_close(call().float(), expected, rtol=1e-2, atol=5e-2)
    print(json.dumps([*spent, sum(os.times()[:4])]))


def measure(name: str, cache: str) -> list[float]:
    environment = os.environ | {"XDG_CACHE_HOME": cache}
    done = subprocess.run(
        [sys.executable, __file__, name], env=environment, capture_output=True, text=True, check=True, cwd=ROOT
    )
    times: list[float] = json.loads(done.stdout.splitlines()[-1])
    return times


def main() -> None:
    for name in KERNELS:
        with tempfile.TemporaryDirectory() as cold, tempfile.TemporaryDirectory() as warm:
            measure(KERNELS[KERNELS.index(name) - 1], warm)
            for state, cache in (("cold", cold), ("again", cold), ("new kernel", warm)):
                wall, machine, process = measure(name, cache)
                print(f"{name:12} {state:12} machine {wall:6.2f} s, {machine:5.2f} s CPU; process {process:5.2f} s CPU")


if __name__ == "__main__":
    run(sys.argv[1]) if len(sys.argv) > 1 else main()
