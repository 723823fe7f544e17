"""Test that reference kernels have no stack frame and no register spills on Hopper."""

import re
from collections.abc import Sequence
from typing import Any

import pytest

from kernelpath.course import registry
from kernelpath.course.inputs import generate_inputs
from kernelpath.course.problem import Case
from kernelpath.dev import cards
from warpcheck import backend, simt, simulated_gpu
from warpcheck.assembler import assembled
from warpcheck.frontends import cuda
from warpcheck.frontends import triton as triton_lane
from warpcheck.frontends.cubin import resources

HOPPER = "sm_90"
ATTENTION = {"batch": 1, "heads": 2, "kv_heads": 1, "tokens": 130, "dtype": "bfloat16"}

# The references that once spilled, with a case for each of their kernels.
REFERENCES: dict[str, list[Case]] = {
    "custom_operator": [
        {"rows": 1, "columns": 32_768, "dtype": "bfloat16"},
        {"rows": 2, "columns": 1024, "dtype": "float32"},
        {"rows": 2, "columns": 333, "dtype": "bfloat16"},
    ],
    "histogram": [
        {"n": 100, "bins": 256, "dtype": "uint8", "distribution": "uniform"},
        {"n": 100, "bins": 7, "dtype": "int32", "distribution": "uniform"},
        {"n": 100, "bins": 1000, "dtype": "int32", "distribution": "uniform"},
    ],
    "flash_attention_backward": [
        {**ATTENTION, "head": head, "causal": causal} for head in (64, 128) for causal in (True, False)
    ],
    "int8_matmul": [{"m": 33, "n": 65, "k": 31, "dtype": "int8"}],
    "gemm_epilogue": [{"m": 33, "n": 65, "k": 31, "dtype": "bfloat16"}],
    "gemm_epilogue_cute": [{"m": 1, "n": 8, "k": 8, "dtype": "bfloat16"}],
}


@pytest.mark.parametrize("name", REFERENCES)
def test_a_reference_spills_nothing_on_hopper(name: str) -> None:
    spilled = cards.run_in_fork(lambda: spilling_kernels(name, REFERENCES[name]))
    assert spilled == []


def spilling_kernels(name: str, cases: Sequence[Case]) -> list[str]:
    """Return the kernels that a solution launches for these cases and that use local memory, according to ptxas.

    The caller runs it in a forked process, because it replaces parts of the lanes.
    """
    item = registry.find(name)
    exercise = registry.load(item)
    target = cards.target(HOPPER)
    compiled: dict[str, int] = {}
    simulated_gpu.show(cards.properties(target), target)
    backend.use(_Compiled(compiled))
    _watch_cubins(compiled)
    entry = cards.load_entry(item, exercise)
    for case in cases:
        entry(*generate_inputs(exercise, case, 1, "cpu"))
    if not compiled:
        return ["no kernel was compiled"]
    return [f"{kernel}: {local_bytes} bytes" for kernel, local_bytes in compiled.items() if local_bytes]


def _watch_cubins(compiled: dict[str, int]) -> None:
    """Record the local memory of the cubins that NVRTC and Triton compile, which a GPU would load."""
    compile_cuda = cuda.Kernel.binary
    load_triton = triton_lane._Driver.load_binary

    def binary(self: cuda.Kernel, architecture: str) -> Any:
        result = compile_cuda(self, architecture)
        compiled[self.name] = resources(result.cubin).local_bytes
        return result

    def load_binary(self: Any, name: str, cubin: bytes, shared: int, device: int) -> Any:
        kernel = f"{name}, number {len(compiled)}"
        compiled[kernel] = resources(cubin).local_bytes
        return load_triton(self, name, cubin, shared, device)

    cuda.Kernel.binary = binary  # type: ignore[method-assign]
    triton_lane._Driver.load_binary = load_binary  # type: ignore[method-assign, assignment]


class _Compiled(backend.Local):
    """A backend that loads modules and launches nothing. It receives the kernels of the CuTe DSL as PTX of sm_90a."""

    def __init__(self, compiled: dict[str, int]) -> None:
        self.compiled = compiled

    def load(self, text: str, source: str | None = None) -> Any:
        module = simt.load(text, source, simulated_gpu.target())
        from_dsl = re.search(r"^\s*\.target\s+sm_90a", text, re.MULTILINE) and source is None
        for kernel in module.kernels if from_dsl else ():
            code = assembled(text, kernel)
            assert code is not None
            self.compiled[kernel] = code.stack + code.spill_stores + code.spill_loads
        return _Unlaunched(module)


class _Unlaunched:
    def __init__(self, module: simt.Module) -> None:
        self.kernels = module.kernels

    def compile(self, name: str) -> None:
        pass

    def launch(self, name: str, **_: Any) -> backend.LaunchResult:
        return backend.LaunchResult(0)
