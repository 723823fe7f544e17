"""Test the compilation levels and the layouts of a Triton kernel against its execution on the PTX machine."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from kernelpath.course.traces.ttgir import Blocked
from kernelpath.show import layout, levels
from warpcheck.frontends import triton as lane

lane.activate("cpu")


@triton.jit  # type: ignore[untyped-decorator]
def dot_rows(out, x, w, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, COLUMNS)
    inside = (row[:, None] < rows) & (column[None, :] < columns)
    tile = tl.load(x + row[:, None] * columns + column[None, :], mask=inside, other=0.0)
    weight = tl.load(w + column, mask=column < columns, other=0.0)
    total = tl.sum(tile * weight[None, :], axis=1)
    tl.store(out + row, total, mask=row < rows)


@triton.jit  # type: ignore[untyped-decorator]
def owners(out, ROWS: tl.constexpr, COLUMNS: tl.constexpr):  # type: ignore[no-untyped-def]
    index = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    thread = tl.inline_asm_elementwise("mov.u32 $0, %tid.x;", "=r,r", [index], dtype=tl.int32, is_pure=True, pack=1)
    tl.store(out + index, thread)


@pytest.fixture(scope="module")
def compilation_levels() -> levels.CompilationLevels:
    x = torch.empty(64, 128)
    weights = torch.empty(128)
    out = torch.empty(64)
    return levels.opened(dot_rows.warmup(out, x, weights, 64, 128, 8, 128, grid=(8,)), dot_rows)


def test_a_kernel_from_the_cache_may_name_another_file(compilation_levels: levels.CompilationLevels) -> None:
    x = torch.empty(64, 128)
    w = torch.empty(128)
    out = torch.empty(64)
    compiled = dot_rows.warmup(out, x, w, 64, 128, 8, 128, grid=(8,))
    texts = {level: text for level, text in compiled.asm.items() if isinstance(text, str)}
    renamed = {level: text.replace(Path(__file__).name, "3141592653.py") for level, text in texts.items()}
    cached = SimpleNamespace(asm=renamed, metadata=compiled.metadata)
    assert levels.opened(cached, dot_rows).counts() == compilation_levels.counts()


@pytest.mark.parametrize(
    ("line", "level", "operation", "count"),
    [
        ("tile =", "TTIR", "tt.load", 1),
        ("tile =", "TTGIR", "tt.load", 1),
        ("tile =", "LLVM IR", "asm ld.global.v4.b32", 2),
        ("tile =", "PTX", "ld.global.v4.b32", 2),
        ("tile =", "SASS", "LDG.E.128", 2),
        ("total =", "TTIR", "tt.reduce", 1),  # the body of the reduction is in a file of Triton
        ("total =", "TTIR", "arith.addf", 1),
        ("total =", "TTGIR", "ttg.convert_layout", 1),
        ("total =", "LLVM IR", "nvvm.shfl.sync.bfly", 10),
        ("total =", "PTX", "shfl.sync.bfly.b32", 10),
        ("total =", "SASS", "SHFL.BFLY", 10),
        ("tl.store", "PTX", "st.global.b32", 1),
        ("tl.store", "SASS", "STG.E", 1),
    ],
)
def test_an_operation_is_listed_at_its_source_line(
    compilation_levels: levels.CompilationLevels, line: str, level: str, operation: str, count: int
) -> None:
    assert compilation_levels.names(line, level).count(operation) == count


def test_the_table_of_a_line_groups_equal_operations(compilation_levels: levels.CompilationLevels) -> None:
    cells = [cell for row in compilation_levels.of("total =").values() for cell in row.values()]
    assert {"tt.reduce", "10 shfl.sync.bfly.b32", "10 SHFL.BFLY", "4 mul.f32"} <= set(cells)
    assert compilation_levels.counts()["all lines"]["TTIR"] == sum(
        len(compilation_levels.names(text, "TTIR")) for text in compilation_levels.texts.values()
    )


@pytest.mark.parametrize(
    ("shape", "warps"), [((8, 128), 4), ((8, 128), 16), ((32, 32), 4), ((4, 256), 2), ((64, 8), 4), ((2, 16), 4)]
)
def test_a_layout_names_the_thread_that_computes_an_element(shape: tuple[int, int], warps: int) -> None:
    out = torch.full(shape, -1, dtype=torch.int32)
    compiled = owners[(1,)](out, *shape, num_warps=warps) or owners.warmup(out, *shape, num_warps=warps, grid=(1,))
    layouts = [candidate for candidate in layout.of(compiled.asm["ttgir"]).values() if len(candidate.warps) == 2]
    assert any(torch.equal(torch.from_numpy(candidate.owners(shape)).int(), out) for candidate in layouts), layouts


@pytest.mark.parametrize(
    ("blocked", "shape", "elements"),
    [
        (Blocked((1, 4), (1, 32), (4, 1), (1, 0)), (8, 128), 8),
        (
            Blocked((1, 4), (1, 32), (4, 1), (1, 0)),
            (2, 128),
            4,
        ),  # the tensor is smaller than the block, so two threads hold each element
        (Blocked((1, 4), (1, 32), (4, 1), (1, 0)), (4, 2), 2),
        (Blocked((2,), (32,), (1,), (0,)), (64,), 2),
    ],
)
def test_a_layout_counts_the_elements_of_a_thread(blocked: Blocked, shape: tuple[int, ...], elements: int) -> None:
    assert blocked.held(shape) == elements


def test_a_drawing_shows_every_lane() -> None:
    figure = layout.draw(Blocked((1, 4), (2, 16), (2, 1), (1, 0)), (4, 64), "title")
    (axes,) = figure.axes
    labels: list[Any] = [text.get_text() for text in axes.texts]
    assert labels == [*map(str, range(32)), *map(str, range(32))]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["warp 0", "warp 1"]  # type: ignore[union-attr]
