"""Test reference GEMMs without rows, columns or terms: torch's values, and no launch that a GPU would refuse."""

import multiprocessing
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

from kernelpath.course import registry
from kernelpath.dev import cards
from kernelpath.grading import devices
from warpcheck import backend, simulated_gpu

# m, n and k.
SIZES = {"no rows": (0, 16, 32), "no columns": (8, 0, 32), "no terms": (8, 16, 0)}


def float_product(dtype: torch.dtype, m: int, n: int, k: int) -> tuple[list[Any], list[torch.Tensor]]:
    """Return the arguments of a plain GEMM, and its expected outputs."""
    a = torch.ones(m, k, dtype=dtype)
    b = torch.ones(k, n, dtype=dtype)
    return [a, b], [a @ b]


def product_by_columns(m: int, n: int, k: int) -> tuple[list[Any], list[torch.Tensor]]:
    a = torch.ones(m, k, dtype=torch.bfloat16)
    b = torch.ones(n, k, dtype=torch.bfloat16).T
    return [a, b], [a @ b]


def product_with_transpose(m: int, n: int, k: int) -> tuple[list[Any], list[torch.Tensor]]:
    a = torch.ones(m, k, dtype=torch.bfloat16)
    b = torch.ones(n, k, dtype=torch.bfloat16)
    return [a, b], [a @ b.T]


def int8_product(m: int, n: int, k: int) -> tuple[list[Any], list[torch.Tensor]]:
    a = torch.ones(m, k, dtype=torch.int8)
    b = torch.ones(n, k, dtype=torch.int8)
    return [a, b, torch.ones(m), torch.ones(n)], [torch.zeros(m, n, dtype=torch.bfloat16)]


def fp8_product(m: int, n: int, k: int) -> tuple[list[Any], list[torch.Tensor]]:
    a, b = (torch.ones(rows, k).to(torch.float8_e4m3fn) for rows in (m, n))
    scales = torch.ones(-(-k // 128), m), torch.ones(-(-n // 128), -(-k // 128))
    return [a, b, *scales], [torch.zeros(m, n, dtype=torch.bfloat16)]


def product_with_epilogue(m: int, n: int, k: int) -> tuple[list[Any], list[torch.Tensor]]:
    a, b, bias, residual = (torch.ones(shape, dtype=torch.bfloat16) for shape in ((m, k), (k, n), (n,), (m, n)))
    aux = a.float() @ b.float() + bias
    out = 2 * torch.nn.functional.gelu(aux, approximate="tanh") + residual
    return [a, b, bias, torch.full((m,), 2.0), residual], [out.bfloat16(), aux.bfloat16()]


def product_with_bias(m: int, n: int, k: int) -> tuple[list[Any], list[torch.Tensor]]:
    a, b, bias = (torch.ones(shape, dtype=torch.bfloat16) for shape in ((m, k), (k, n), (n,)))
    return [a, b, bias, "relu"], [torch.relu(a @ b + bias)]


def product_with_one_output(m: int, n: int, k: int) -> tuple[list[Any], list[torch.Tensor]]:
    arguments, (out, _) = product_with_epilogue(m, n, k)
    return arguments, [out]


single = partial(float_product, torch.float32)
half = partial(float_product, torch.bfloat16)
PRODUCTS: dict[str, Callable[[int, int, int], tuple[list[Any], list[torch.Tensor]]]] = {
    **dict.fromkeys(("matmul_naive", "matmul_tiled", "sgemm_registers", "sgemm_async", "sgemm_cute"), single),
    **dict.fromkeys(("tensor_cores", "matmul_persistent", "tensorop_gemm", "persistent_gemm"), half),
    "matmul": product_with_bias,
    "cute_cpp": product_by_columns,
    "wgmma_gemm": product_with_transpose,
    "int8_matmul": int8_product,
    "fp8_matmul": fp8_product,
    "fp8_gemm": fp8_product,
    "gemm_epilogue": product_with_one_output,
    "gemm_epilogue_cute": product_with_epilogue,
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_a_reference_takes_empty_operands(name: str) -> None:
    failures: Any = multiprocessing.get_context("fork").SimpleQueue()
    process = multiprocessing.get_context("fork").Process(target=_put_failures, args=(name, failures), daemon=True)
    process.start()
    process.join(120)
    assert not process.is_alive(), "the reference hangs"
    assert process.exitcode == 0
    assert failures.get() == []


def _put_failures(name: str, failures: Any) -> None:
    """Put the sizes whose result differs from torch's into `failures`, each with its error."""
    torch.set_num_threads(1)
    item = registry.find(name)
    exercise = registry.load(item)
    simulated_gpu.show({"multi_processor_count": 132}, devices.choose_target(exercise, "cpu", None))
    backend.use(_StrictAboutGrids())
    entry = cards.load_entry(item, exercise)
    failed = []
    for label, size in SIZES.items():
        arguments, expected = PRODUCTS[name](*size)
        try:
            result = entry(*arguments)
            results = [result] if isinstance(result, torch.Tensor) else list(result)
            for tensor, reference in zip(results, expected, strict=True):
                torch.testing.assert_close(tensor, reference)
        except Exception as error:
            failed.append(f"{label}: {type(error).__name__}: {error}".partition("\n")[0])
    failures.put(failed)


class _StrictAboutGrids(backend.Local):
    """A backend that refuses an empty grid, as a GPU does."""

    def load(self, text: str, source: str | None = None) -> Any:
        return _Module(super().load(text, source))


class _Module:
    def __init__(self, module: Any) -> None:
        self.module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self.module, name)

    def launch(self, name: str, *, grid: backend.Dim3, **options: Any) -> backend.LaunchResult:
        if 0 in grid:
            raise ValueError(f"invalid configuration: {name} has a grid of {grid}")
        result: backend.LaunchResult = self.module.launch(name, grid=grid, **options)
        return result
