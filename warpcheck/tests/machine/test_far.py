"""Launches of which a sample of the blocks runs, on address spans that have no memory behind them."""

from __future__ import annotations

import numpy as np
import pytest

from machine.launching import compile_ptx
from warpcheck import simt
from warpcheck.runtime import host
from warpcheck.runtime.arrays import zeroed
from warpcheck.simt import FaultKind

ROWS, COLUMNS = (1 << 22) + 3, 1024
FIRST, PAST, LAST = [0, 1, 2, 3], [3 << 20], list(range(ROWS - 4, ROWS))

FILL = """__global__ void kernel({type}* out, int columns) {{
    {type}* row = out + {offset};
    for (int i = threadIdx.x; i < columns; i += 32) row[i] = {value};
}}"""


def fill(
    offset: str, blocks: list[int], value: str = "1", kind: str = "char", rows: int = ROWS
) -> tuple[np.ndarray, simt.Launch]:
    """A block a row. The rows that were filled, and what was seen."""
    out = zeroed(rows * COLUMNS * np.dtype(kind if kind != "char" else "u1").itemsize)
    below = zeroed(out.nbytes)
    assert below.ctypes.data < out.ctypes.data or rows < ROWS
    module, name = compile_ptx(FILL.format(type=kind, offset=offset, value=value))
    launch = module.launch(
        name,
        grid=(rows,),
        block=(32,),
        args=[out.ctypes.data, COLUMNS],
        buffers=[
            simt.Buffer("out", out.ctypes.data, out.nbytes, out.nbytes // rows // COLUMNS, dtype=kind),
            simt.Buffer("below", below.ctypes.data, below.nbytes, 1),
        ],
        blocks=blocks,
    )
    return out.reshape(rows, -1), launch


def test_only_the_sampled_blocks_run() -> None:
    out, launch = fill("blockIdx.x * (long long)columns", FIRST + PAST + LAST)
    assert [int(out[row].sum()) for row in (*FIRST, 4, *PAST, PAST[0] + 1, *LAST, LAST[0] - 1)] == (
        [COLUMNS] * 4 + [0, COLUMNS, 0] + [COLUMNS] * 4 + [0]
    )
    author = launch.writer(out[LAST[-1]].ctypes.data + 5)
    assert author is not None
    assert (author.thread, author.block) == ("5", str(LAST[-1]))


@pytest.mark.parametrize("kind", ["char", "float"])
def test_a_signed_offset_comes_out_before_the_tensor(kind: str) -> None:
    size = {"char": 1, "float": 4}[kind]
    with pytest.raises(simt.Fault) as caught:
        fill("int(blockIdx.x) * columns", FIRST + PAST + LAST, kind=kind)
    fault = caught.value
    assert (fault.kind, fault.line, fault.block) == (FaultKind.OUT_OF_BOUNDS, 3, (PAST[0], 0, 0))
    assert f"{(1 << 30) * size:,} bytes before the beginning of out ({ROWS * COLUMNS} {kind})" in fault.message


def test_an_unsigned_offset_begins_again_at_the_first_element() -> None:
    with pytest.raises(simt.Fault) as caught:
        fill("blockIdx.x * columns", FIRST + PAST + LAST)
    fault = caught.value
    assert (fault.kind, fault.line, fault.block) == (FaultKind.RACE, 3, (1 << 22, 0, 0))
    assert "at out[0], which thread 0 of block 0 writes too" in fault.message


def test_neighbors_may_write_the_same_value_and_blocks_far_apart_may_not() -> None:
    overlapping = "(blockIdx.x / 2) * (long long)columns"
    fill(overlapping, FIRST + LAST)
    with pytest.raises(simt.Fault, match="writes 1 byte at out"):
        fill("(blockIdx.x % 2) * (long long)columns", FIRST + LAST)


def test_races_in_small_buffers_are_left_to_full_launches() -> None:
    fill("(blockIdx.x % 2) * (long long)columns", FIRST + LAST, value="blockIdx.x", rows=1000)


def test_a_sample_ends_at_its_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    out = zeroed(ROWS * COLUMNS)
    source = """__global__ void kernel(char* out, long long n) {
        for (long long i = threadIdx.x * 4096LL; i < n; i += 32 * 4096) out[i] = 1;
    }"""
    module, name = compile_ptx(source)
    for limit, touched in ((1 << 17, 1 << 40), (1 << 40, 1 << 24)):
        monkeypatch.setattr(host, "MAX_SAMPLE_BYTES", touched)
        launch = module.launch(
            name,
            grid=(4,),
            block=(32,),
            args=[out.ctypes.data, out.nbytes],
            buffers=[simt.Buffer("out", out.ctypes.data, out.nbytes, 1)],
            max_instructions=limit,
            blocks=[0],
        )
        assert 1 << 15 < launch.instructions < 1 << 18
