"""Test launches that run a sample of the blocks, with address ranges that physical memory doesn't back."""

from __future__ import annotations

import numpy as np
import pytest

from machine.launching import compile_ptx
from warpcheck import simt
from warpcheck.runtime import host
from warpcheck.runtime.arrays import zeroed
from warpcheck.simt import FaultKind

ROWS, COLUMNS = (1 << 22) + 3, 1024
# Rows at the beginning, a row whose first element's index exceeds 2^31, and rows at the end.
FIRST_ROWS = [0, 1, 2, 3]
ROWS_PAST_2_31 = [3 << 20]
LAST_ROWS = list(range(ROWS - 4, ROWS))

FILL = """__global__ void kernel({type}* out, int columns) {{
    {type}* row = out + {offset};
    for (int i = threadIdx.x; i < columns; i += 32) row[i] = {value};
}}"""


def fill(
    offset: str, blocks: list[int], value: str = "1", kind: str = "char", rows: int = ROWS
) -> tuple[np.ndarray, simt.Launch]:
    """Launch one block per row, and return the rows and the launch."""
    out = zeroed(rows * COLUMNS * np.dtype(kind if kind != "char" else "u1").itemsize)
    # A buffer at lower addresses. An offset that underflows must be reported relative to `out` nevertheless.
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
    out, launch = fill("blockIdx.x * (long long)columns", FIRST_ROWS + ROWS_PAST_2_31 + LAST_ROWS)
    assert [
        int(out[row].sum())
        for row in (*FIRST_ROWS, 4, *ROWS_PAST_2_31, ROWS_PAST_2_31[0] + 1, *LAST_ROWS, LAST_ROWS[0] - 1)
    ] == ([COLUMNS] * 4 + [0, COLUMNS, 0] + [COLUMNS] * 4 + [0])
    author = launch.writer(out[LAST_ROWS[-1]].ctypes.data + 5)
    assert author is not None
    assert (author.thread, author.block) == ("5", str(LAST_ROWS[-1]))


@pytest.mark.parametrize("kind", ["char", "float"])
def test_an_overflowing_signed_offset_is_before_the_tensor(kind: str) -> None:
    size = {"char": 1, "float": 4}[kind]
    with pytest.raises(simt.Fault) as caught:
        fill("int(blockIdx.x) * columns", FIRST_ROWS + ROWS_PAST_2_31 + LAST_ROWS, kind=kind)
    fault = caught.value
    assert (fault.kind, fault.line, fault.block) == (FaultKind.OUT_OF_BOUNDS, 3, (ROWS_PAST_2_31[0], 0, 0))
    assert f"{(1 << 30) * size:,} bytes before the beginning of out ({ROWS * COLUMNS} {kind})" in fault.message


def test_an_overflowing_unsigned_offset_wraps_to_the_first_element() -> None:
    with pytest.raises(simt.Fault) as caught:
        fill("blockIdx.x * columns", FIRST_ROWS + ROWS_PAST_2_31 + LAST_ROWS)
    fault = caught.value
    assert (fault.kind, fault.line, fault.block) == (FaultKind.RACE, 3, (1 << 22, 0, 0))
    assert "at out[0], which thread 0 of block 0 writes too" in fault.message


def test_distant_blocks_that_write_the_same_element_race_but_neighbors_do_not() -> None:
    overlapping = "(blockIdx.x / 2) * (long long)columns"
    fill(overlapping, FIRST_ROWS + LAST_ROWS)
    with pytest.raises(simt.Fault, match="writes 1 byte at out"):
        fill("(blockIdx.x % 2) * (long long)columns", FIRST_ROWS + LAST_ROWS)


def test_a_sample_does_not_report_races_in_small_buffers() -> None:
    fill("(blockIdx.x % 2) * (long long)columns", FIRST_ROWS + LAST_ROWS, value="blockIdx.x", rows=1000)


def test_a_sample_stops_at_its_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    out = zeroed(ROWS * COLUMNS)
    source = """__global__ void kernel(char* out, long long n) {
        for (long long i = threadIdx.x * 4096LL; i < n; i += 32 * 4096) out[i] = 1;
    }"""
    module, name = compile_ptx(source)
    for instruction_limit, byte_limit in ((1 << 17, 1 << 40), (1 << 40, 1 << 24)):
        monkeypatch.setattr(host, "MAX_SAMPLE_BYTES", byte_limit)
        launch = module.launch(
            name,
            grid=(4,),
            block=(32,),
            args=[out.ctypes.data, out.nbytes],
            buffers=[simt.Buffer("out", out.ctypes.data, out.nbytes, 1)],
            max_instructions=instruction_limit,
            blocks=[0],
        )
        assert 1 << 15 < launch.instructions < 1 << 18
