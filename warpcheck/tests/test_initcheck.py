"""Test unwritten memory from torch.empty, and reversed schedules, in launches of this process."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest
import torch

from warpcheck import backend, frontends, initcheck, simt
from warpcheck.frontends import cuda

ALLOCATORS = {
    "empty": lambda: torch.empty(64),
    "empty_like": lambda: torch.empty_like(torch.zeros(64)),
    "empty_strided": lambda: torch.empty_strided((64,), (1,)),
    "new_empty": lambda: torch.zeros(1).new_empty(64),
}
ADD = "__global__ void add(const float* x, float* out, int n) { if (threadIdx.x < n) out[threadIdx.x] += x[0]; }"
SET = "__global__ void set(float* out, int n) { if (threadIdx.x < n) out[threadIdx.x] = 1; }"
LAST = "__global__ void last(int* out) { if (threadIdx.x == 0) atomicExch(out, blockIdx.x); }"
RACE = """__global__ void race(float* out) {
    __shared__ float s;
    if (threadIdx.x == 32) s = 1;
    __syncthreads();
    if (threadIdx.x == 0) asm volatile("st.volatile.shared.f32 [%0], 2.0;" :: "r"((int)__cvta_generic_to_shared(&s)));
    if (threadIdx.x == 32) out[0] = atomicAdd(&s, 0.0f);
}"""
SUM = "__global__ void sum(const float* x, float* out) { atomicAdd(out, x[64 * blockIdx.x + threadIdx.x]); }"


@pytest.fixture(autouse=True)
def _restore_torch(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Restore the functions of torch that the checks replace."""
    for name in initcheck._FUNCTIONS:
        monkeypatch.setattr(torch, name, getattr(torch, name))
    for name in initcheck._METHODS:
        monkeypatch.setattr(torch.Tensor, name, getattr(torch.Tensor, name))
    monkeypatch.setattr(initcheck, "_is_watching", False)
    monkeypatch.setattr(backend, "checks", backend.Checks())
    yield
    initcheck._allocations.clear()


def kernel(source: str, name: str) -> cuda.Kernel:
    return cuda.Kernel("kernel.cu", source, name)


@pytest.mark.parametrize("name", ALLOCATORS)
def test_reading_unwritten_memory_is_a_fault(name: str) -> None:
    frontends.check()
    x = torch.ones(1)
    out = ALLOCATORS[name]()
    with pytest.raises(simt.Fault, match=r"out\[0\], which nothing has written") as caught:
        kernel(ADD, "add")[1, 64](x, out, 64)
    assert caught.value.kind == simt.FaultKind.UNINITIALIZED


def test_memory_written_by_the_host_or_an_earlier_launch_may_be_read() -> None:
    frontends.check()
    x = torch.ones(1)
    out = torch.empty(64)
    out[:8] = 5
    kernel(ADD, "add")[1, 64](x, out, 8)
    assert out[:8].tolist() == [6.0] * 8
    with pytest.raises(simt.Fault, match=r"out\[8\], which nothing has written"):
        kernel(ADD, "add")[1, 64](x, out, 9)
    kernel(SET, "set")[1, 64](out, 64)
    kernel(ADD, "add")[1, 64](x, out[8:], 56)
    assert out[8:].tolist() == [2.0] * 56


def test_reallocated_memory_is_unwritten_again() -> None:
    frontends.check()
    x = torch.ones(1)
    for _ in range(5):
        out = torch.empty(64)
        with pytest.raises(simt.Fault, match="which nothing has written"):
            kernel(ADD, "add")[1, 64](x, out, 64)
        kernel(SET, "set")[1, 64](out, 64)
        del out


def test_a_result_that_depends_on_the_order_of_blocks_is_a_warning() -> None:
    frontends.check(reverse=True)
    out = torch.zeros(1, dtype=torch.int32)
    with pytest.warns(UserWarning, match=r"last leaves another out\[0\] when its blocks and warps run in the opposite"):
        kernel(LAST, "last")[4, 32](out)
    assert out.item() == 3


def test_a_race_that_the_forward_order_hides_is_found_in_reverse() -> None:
    out = torch.zeros(1)
    kernel(RACE, "race")[1, 64](out)
    frontends.check(reverse=True)
    with pytest.raises(simt.Fault) as caught:
        kernel(RACE, "race")[1, 64](out)
    assert caught.value.kind == simt.FaultKind.RACE


def test_running_both_orders_gives_the_result_of_one() -> None:
    frontends.check(reverse=True)
    x = torch.randn(256)
    out = torch.empty(1)
    out.zero_()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kernel(SUM, "sum")[4, 64](x, out)
    torch.testing.assert_close(out[0], x.sum(), rtol=1e-4, atol=1e-4)
