"""Compare the machine's counters with recorded counters of ncu on a GPU, for the same launches."""

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

# benchmarks/hardware.py measures these counters on a GPU and writes the files.
RESULTS = Path(__file__).parents[3] / "results"

RECORDED = [(path.stem, json.loads(path.read_text())["counters"]) for path in sorted(RESULTS.glob("*_hardware.json"))]


# Counters of patterns that are known to differ. warpcheck/docs/ptx-machine.md explains the reasons.
PATTERN_DIFFERENCES = {
    "async_copy_16": {"shared_load_requests", "shared_store_wavefronts"},
    "async_copy_4": {"shared_load_requests"},
    "async_copy_stride_8": {"shared_load_requests", "shared_store_wavefronts"},
}


def test_recordings_cover_all_patterns() -> None:
    assert RECORDED
    assert all(set(counters) == {pattern.name for pattern in PATTERNS} for _, counters in RECORDED)


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.name)
@pytest.mark.parametrize(("gpu", "counters"), RECORDED, ids=[gpu for gpu, _ in RECORDED])
def test_counters_of_patterns_equal_the_hardware(gpu: str, counters: dict[str, Any], pattern: Pattern) -> None:
    totals = launch(pattern).totals
    differing = {name for name, measured in counters[pattern.name]["ncu"].items() if getattr(totals, name) != measured}
    assert differing == PATTERN_DIFFERENCES.get(pattern.name, set())


# Counters of the corpus that differ by more than TOLERANCE. warpcheck/docs/ptx-machine.md explains the reasons.
CORPUS_DIFFERENCES = {
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

TOLERANCE = 0.02


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*_corpus.json")), ids=lambda p: p.stem)
def test_counters_of_the_corpus_are_close_to_the_hardware(path: Any) -> None:
    pytest.importorskip("triton", reason="ptxas comes with Triton")
    counters = json.loads(path.read_text())["corpus"]
    assert set(counters) == {kernel.name for kernel in KERNELS}
    differing = {}
    for kernel in KERNELS:
        module, name = compile_ptx(kernel.source, kernel.name)
        arrays = dict(zip("acb", inputs(), strict=True))
        totals = module.launch(
            name,
            grid=kernel.grid,
            block=kernel.block,
            args=[*(array.ctypes.data for array in arrays.values()), kernel.n],
            buffers=[buffer(*item) for item in arrays.items()],
        ).totals
        ncu = counters[kernel.name]["ncu"].items()
        if counter_names := {
            counter for counter, measured in ncu if abs(getattr(totals, counter) - measured) > TOLERANCE * measured
        }:
            differing[kernel.name] = counter_names
    assert differing == CORPUS_DIFFERENCES


# Counters that are known to differ on sm_90a. warpcheck/docs/ptx-machine.md explains the reasons.
HOPPER_DIFFERENCES = {
    "load_past_the_end": {"bulk_load_sectors"},
    "load_past_the_beginning": {"bulk_load_sectors"},
    "peer_add": {"shared_store_wavefronts"},
    "peer_add_one_place": {"shared_store_wavefronts"},
    **{name: {"shared_load_requests"} for name in hopper_patterns.NAMES if name.startswith("ldmatrix")},
    **{name: {"shared_store_requests"} for name in hopper_patterns.NAMES if name.startswith("stmatrix")},
}


@pytest.mark.parametrize("pattern", hopper_patterns.PATTERNS, ids=lambda pattern: pattern.name)
@pytest.mark.parametrize("path", sorted(RESULTS.glob("*_hopper.json")), ids=lambda p: p.stem)
def test_counters_of_hopper_patterns_equal_the_hardware(path: Any, pattern: hopper_patterns.HopperPattern) -> None:
    ncu = json.loads(path.read_text())["hopper"][pattern.name]["ncu"]
    assert set(json.loads(path.read_text())["hopper"]) == set(hopper_patterns.NAMES)
    totals = pattern.launch().totals
    differing = {name for name, measured in ncu.items() if getattr(totals, name) != measured}
    if totals.multicast_sectors:  # ncu counts a multicast sector once for each block that receives it
        assert ncu["bulk_load_sectors"] == totals.bulk_load_sectors + totals.multicast_sectors
        differing -= {"bulk_load_sectors"}
    assert differing == HOPPER_DIFFERENCES.get(pattern.name, set())


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*_agreement.json")), ids=lambda p: p.stem)
def test_errors_of_approximate_functions_are_within_the_manual(path: Any) -> None:
    functions = json.loads(path.read_text())["functions"]
    assert functions.keys() == {"rcp", "sqrt", "rsqrt", "lg2", "ex2", "sin", "cos", "tanh"}
    assert [name for name, errors in functions.items() if errors["largest"] > errors["allowed"] + 2.0**-24] == []
