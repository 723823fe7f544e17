"""Test that facts about layouts agree with the compiler of Triton."""

from __future__ import annotations

import gzip
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import triton
from triton.backends.compiler import GPUTarget

from kernelpath.course.problems import ttgir_facts
from kernelpath.course.traces import Malformed, ttgir
from kernelpath.course.traces.ttgir import LANES, REGISTERS, WARPS, Blocked, Tensor

FOLDER = Path(__file__).parents[1] / "results" / "traces" / "ttgir"

# Set the option for fusion, because Triton 3.9 warns that its default will change.
OPTIONS = {"num_warps": 4, "enable_fp_fusion": True}

ROWS = Blocked((1, 4), (4, 8), (4, 1), (1, 0))
COLUMNS = Blocked((4, 1), (8, 4), (1, 4), (0, 1))


def test_threads_hold_the_elements_of_the_documentation() -> None:
    """The example of TritonGPUAttrDefs.td: 2 x 2 elements, 8 x 4 lanes, 1 x 2 warps on a tensor of 16 x 16."""
    table = ttgir.owned(Tensor((16, 16), "f32", Blocked((2, 2), (8, 4), (1, 2), (1, 0))))
    assert [element.nonzero()[0].tolist() for element in (table[0, 0], table[0, 1], table[1, 0], table[0, 4])] == [
        [0, 1, 16, 17],
        [2, 3, 18, 19],
        [8, 9, 24, 25],
        [32, 33, 48, 49],
    ]


def test_a_small_tensor_has_several_owners_and_a_large_one_repeats() -> None:
    assert ttgir.owned(Tensor((4, 8), "f32", ROWS)).sum(axis=(0, 1)).tolist() == [16] * 32
    assert ttgir.owned(Tensor((128, 64), "f32", ROWS)).sum(axis=2).tolist() == [[64] * 32] * 4
    sums = Tensor((16,), "f32", ROWS, removed=1)
    assert ttgir.owned(sums)[0, 7].nonzero()[0].tolist() == [0]
    assert ttgir.owned(sums)[1, 8].nonzero()[0].tolist() == [5]


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        (ROWS, Blocked((1, 4), (4, 8), (4, 1), (1, 0)), REGISTERS),
        # A block covers the 32 columns: in a row, 8 lanes hold 4 elements each, or 4 lanes hold 8 elements each.
        (ROWS, Blocked((1, 8), (4, 8), (4, 1), (1, 0)), LANES),
        (ROWS, COLUMNS, WARPS),
    ],
)
def test_distances(source: Blocked, target: Blocked, expected: str) -> None:
    assert ttgir.distance(Tensor((16, 32), "f32", source), Tensor((16, 32), "f32", target)) == expected


def generate_pairs() -> Iterator[tuple[str, Tensor, Tensor]]:
    """Yield two conversions of each distance, between layouts in which each element has one owner.

    Where an element has several owners, Triton 3.9 may move values that a thread already holds.
    """
    rng = random.Random(4)
    remaining = [REGISTERS, LANES, WARPS] * 2
    while remaining:
        source, target = ttgir._draw_pair(rng, 4)
        distance = ttgir.distance(source, target)
        has_single_owners = all(ttgir.owned(tensor).sum(axis=(0, 1)).max() == 1 for tensor in (source, target))
        if distance in remaining and has_single_owners and source != target and source.element == "f32":
            remaining.remove(distance)
            yield distance, source, target


def conversion(source: Tensor, target: Tensor) -> str:
    """Return a module that loads a tensor, converts it, and stores it."""
    aliases: dict[Blocked, str] = {}
    lines: list[str] = []

    def addresses(tensor: Tensor, pointer: str) -> tuple[str, str]:
        """Append the operations for a tensor of pointers to all elements. Return its name and type."""
        value_type = ttgir._format_tensor(tensor, aliases)
        pointer_type = value_type.replace("f32", "!tt.ptr<f32>", 1)
        integer_type = value_type.replace("f32", "i32", 1)
        extents = tensor.shape
        if len(extents) == 1:
            lines.append(f"%{pointer}i = tt.make_range {{end = {extents[0]} : i32, start = 0 : i32}} : {integer_type}")
            index = f"%{pointer}i"
        else:
            layout = aliases[tensor.layout]
            for dim in (0, 1):
                sliced = f"tensor<{extents[dim]}xi32, #ttg.slice<{{dim = {1 - dim}, parent = {layout}}}>>"
                thin = f"tensor<{extents[0] if dim == 0 else 1}x{extents[1] if dim else 1}xi32, {layout}>"
                name = f"%{pointer}{dim}"
                lines.append(f"{name}r = tt.make_range {{end = {extents[dim]} : i32, start = 0 : i32}} : {sliced}")
                lines.append(f"{name}e = tt.expand_dims {name}r {{axis = {1 - dim} : i32}} : {sliced} -> {thin}")
                lines.append(f"{name} = tt.broadcast {name}e : {thin} -> {integer_type}")
            lines.append(f"%{pointer}c = arith.constant dense<{extents[1]}> : {integer_type}")
            lines.append(f"%{pointer}m = arith.muli %{pointer}0, %{pointer}c : {integer_type}")
            lines.append(f"%{pointer}i = arith.addi %{pointer}m, %{pointer}1 : {integer_type}")
            index = f"%{pointer}i"
        lines.append(f"%{pointer}s = tt.splat %{pointer} : !tt.ptr<f32> -> {pointer_type}")
        lines.append(f"%{pointer}p = tt.addptr %{pointer}s, {index} : {pointer_type}, {integer_type}")
        return f"%{pointer}p", pointer_type

    load, load_type = addresses(source, "a")
    store, store_type = addresses(target, "b")
    types = [ttgir._format_tensor(tensor, aliases) for tensor in (source, target)]
    lines += [f"%v = tt.load {load} : {load_type}", f"%w = ttg.convert_layout %v : {types[0]} -> {types[1]}"]
    lines += [f"tt.store {store}, %w : {store_type}", "tt.return"]
    header = [f"{name} = {ttgir._format_layout(layout)}" for layout, name in aliases.items()]
    module = 'module attributes {"ttg.num-ctas" = 1 : i32, "ttg.num-warps" = 4 : i32, ttg.target = "cuda:80", '
    module += '"ttg.threads-per-warp" = 32 : i32} {'
    function = "tt.func public @convert(%a: !tt.ptr<f32>, %b: !tt.ptr<f32>) {"
    return "\n".join([*header, module, function, *lines, "}", "}"])


@pytest.mark.parametrize(
    ("distance", "source", "target"),
    list(generate_pairs()),
    ids=[f"{pair[0]}{n}" for n, pair in enumerate(generate_pairs())],
)
def test_triton_moves_values_as_far(distance: str, source: Tensor, target: Tensor, tmp_path: Path) -> None:
    """A conversion within threads is free, and one between warps waits for all warps after it has written."""
    path = tmp_path / "convert.ttgir"
    path.write_text(conversion(source, target))
    compiled: Any = triton.compile(str(path), target=GPUTarget("cuda", 80, 32), options=OPTIONS)
    text = compiled.asm["ptx"]
    has_barrier = "bar.sync" in text
    moves_between_lanes = bool(re.search(r"shfl\.sync|st\.shared", text))
    assert has_barrier == (distance == WARPS)
    assert moves_between_lanes == (distance != REGISTERS)
    assert ttgir.of(path.read_text())["moves"] == [distance]


def test_recordings_hold_all_layouts_that_are_parsed() -> None:
    names = {f"{kernel}{number}.ttgir.gz" for kernel in ttgir_facts.KERNELS for number in range(ttgir_facts.VARIANTS)}
    assert {path.name for path in FOLDER.iterdir()} == names
    for name in names:
        text = gzip.decompress((FOLDER / name).read_bytes()).decode()
        assert " loc(" not in text
        facts = ttgir.of(text)
        assert len(facts["held"]) == len(re.findall(r"tt\.load|tt\.store", text))  # type: ignore[arg-type]
        assert len(facts["moves"]) == text.count("ttg.convert_layout")  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["", "module {}", '"ttg.num-warps" = 4 : i32'])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(Malformed, match="this is not TTGIR"):
        ttgir.of(text)
