"""The counters that ncu read on a GPU, replayed: requests, sectors and wavefronts of the same launches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from machine import hopper_patterns
from machine.corpus import KERNELS, inputs
from machine.launching import buffer, compile_ptx
from machine.patterns import PATTERNS, Pattern
from machine.test_counters import launch

# The measurements of the repository: benchmarks/hardware.py writes them.
RESULTS = Path(__file__).parents[3] / "results"

RECORDED = [(path.stem, json.loads(path.read_text())["counters"]) for path in sorted(RESULTS.glob("*_hardware.json"))]


# Where the two are known to differ; warpcheck/docs/ptx-machine.md says why.
DIFFERENT = {
    "async_copy_16": {"shared_load_requests", "shared_store_wavefronts"},
    "async_copy_4": {"shared_load_requests"},
    "async_copy_stride_8": {"shared_load_requests", "shared_store_wavefronts"},
}


def test_a_gpu_has_been_recorded() -> None:
    assert RECORDED
    assert all(set(counters) == {pattern.name for pattern in PATTERNS} for _, counters in RECORDED)


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.name)
@pytest.mark.parametrize(("gpu", "counters"), RECORDED, ids=[gpu for gpu, _ in RECORDED])
def test_counts_what_the_hardware_counts(gpu: str, counters: dict[str, Any], pattern: Pattern) -> None:
    totals = launch(pattern).totals
    found = {name for name, counted in counters[pattern.name]["ncu"].items() if getattr(totals, name) != counted}
    assert found == DIFFERENT.get(pattern.name, set())


# Kernels of the corpus with counters more than NEAR apart; warpcheck/docs/ptx-machine.md says why.
FAR = {
    "compact": {"global_store_sectors"},
    "histogram_weights": {
        "shared_load_requests",
        "shared_load_wavefronts",
        "shared_store_requests",
        "shared_store_wavefronts",
    },
    "rank_of_each": {"global_store_sectors"},
    "rows_by_warps": {"global_load_requests"},
    "rows_shared_flat": {"shared_load_requests", "shared_load_wavefronts"},
    "transpose_edges": {"shared_store_requests"},
}

NEAR = 0.02


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*_corpus.json")), ids=lambda p: p.stem)
def test_counts_of_usual_kernels_are_near_those_of_the_hardware(path: Any) -> None:
    pytest.importorskip("triton", reason="ptxas comes with Triton")
    counters = json.loads(path.read_text())["corpus"]
    assert set(counters) == {one.name for one in KERNELS}
    found = {}
    for one in KERNELS:
        module, name = compile_ptx(one.source, one.name)
        arrays = dict(zip("acb", inputs(), strict=True))
        totals = module.launch(
            name,
            grid=one.grid,
            block=one.block,
            args=[*(array.ctypes.data for array in arrays.values()), one.n],
            buffers=[buffer(*named) for named in arrays.items()],
        ).totals
        ncu = counters[one.name]["ncu"].items()
        if far := {key for key, counted in ncu if abs(getattr(totals, key) - counted) > NEAR * counted}:
            found[one.name] = far
    assert found == FAR


# Where the two are known to differ on sm_90a; warpcheck/docs/ptx-machine.md says why.
OF_HOPPER = {
    "load_past_the_end": {"bulk_load_sectors"},
    "load_past_the_beginning": {"bulk_load_sectors"},
    "peer_add": {"shared_store_wavefronts"},
    "peer_add_one_place": {"shared_store_wavefronts"},
    **{one.name: {"shared_load_requests"} for one in hopper_patterns.PATTERNS if one.name.startswith("ldmatrix")},
    **{one.name: {"shared_store_requests"} for one in hopper_patterns.PATTERNS if one.name.startswith("stmatrix")},
}


@pytest.mark.parametrize("pattern", hopper_patterns.PATTERNS, ids=lambda pattern: pattern.name)
@pytest.mark.parametrize("path", sorted(RESULTS.glob("*_hopper.json")), ids=lambda p: p.stem)
def test_counts_of_hopper_are_those_of_the_hardware(path: Any, pattern: hopper_patterns.HopperPattern) -> None:
    ncu = json.loads(path.read_text())["hopper"][pattern.name]["ncu"]
    assert set(json.loads(path.read_text())["hopper"]) == set(hopper_patterns.NAMES)
    totals = pattern.launch().totals
    found = {name for name, counted in ncu.items() if getattr(totals, name) != counted}
    if totals.multicast_sectors:  # ncu counts them for each block that they reach
        assert ncu["bulk_load_sectors"] == totals.bulk_load_sectors + totals.multicast_sectors
        found -= {"bulk_load_sectors"}
    assert found == OF_HOPPER.get(pattern.name, set())


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*_agreement.json")), ids=lambda p: p.stem)
def test_approximate_functions_differ_by_what_the_manual_allows(path: Any) -> None:
    functions = json.loads(path.read_text())["functions"]
    assert functions.keys() == {"rcp", "sqrt", "rsqrt", "lg2", "ex2", "sin", "cos", "tanh"}
    assert [name for name, found in functions.items() if found["largest"] > found["allowed"] + 2.0**-24] == []
