"""Test which of two faults is reported, and how messages name the kernel."""

from __future__ import annotations

import re

import pytest

from machine.launching import Run, aligned
from warpcheck import simt
from warpcheck.runtime import symbols
from warpcheck.runtime.symbols import source_name
from warpcheck.simt import FaultKind


def test_out_of_bounds_is_reported_rather_than_the_earlier_uninitialized_read(run: Run) -> None:
    source = """__global__ void kernel(const float* a, float* c) {
        __shared__ float tile[256];
        int t = threadIdx.x;
        c[t] = tile[255 - t];
        tile[t] = a[t];
    }"""
    with pytest.raises(simt.Fault) as caught:
        run(source, 1, 256, aligned(100), aligned(256))
    assert (caught.value.kind, caught.value.line) == (FaultKind.OUT_OF_BOUNDS, 5)
    assert re.search(
        r"^thread 100 of block 0 reads 4 bytes past the end of a .*; before that, in line 4, "
        r"thread 0 of block 0 reads 4 bytes at tile\[255\] .*, which nothing has written$",
        caught.value.message,
    )


SYMBOLS = {
    "_Z7softmaxPf": "softmax",
    "_Z7softmaxIfEvPT_": "softmax",
    "_ZZ7softmaxIfEvPfE3red": "red",
    "_ZN1n1kILi3EEEvPf": "n::k",
    "_ZN3one3two6kernelIfNS0_4TileILi3ELi4EEEEEvPT_i": "one::two::kernel",
    "_ZZN1n1kILi3EEEvPfE4tile": "tile",
    "_ZN12_GLOBAL__N_11kEv": "k",
    "kernel_cutlass_copy": "kernel_cutlass_copy",
    "_Z_no_symbol": "_Z_no_symbol",
}


@pytest.mark.parametrize(("symbol", "name"), SYMBOLS.items())
def test_a_mangled_symbol_gets_its_name_in_the_source(symbol: str, name: str) -> None:
    assert source_name(symbol) == name


def test_without_a_demangler_names_outside_namespaces_are_still_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(symbols, "_runtime", lambda: None)
    names = [symbols.source_name.__wrapped__(symbol) for symbol in ("_Z7softmaxIfEvPT_", "_ZZ7softmaxIfEvPfE3red")]
    assert names == ["softmax", "red"]


def test_a_fault_in_a_template_of_a_namespace_names_it(run: Run) -> None:
    source = """namespace tiles { template <int N> __global__ void fill(float* a) { a[threadIdx.x + N] = 1; } }"""
    with pytest.raises(simt.Fault) as caught:
        run(source, 1, 32, aligned(32), name="tiles::fill<3>")
    assert caught.value.kernel == "tiles::fill"
