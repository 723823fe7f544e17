"""Test reads of unwritten shared memory: they are faults only if a result depends on the value."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import warpcheck

SOURCE = """
__global__ void kernel(float* x, int n, int* steps) {
    __shared__ float tile[64];
    int t = threadIdx.x;
    if (t < n) tile[t] = 1.0f;
    __syncthreads();
    float value = tile[t];
    STEP
    __syncthreads();
    if (t < n) x[t] += value;
}
"""


def launch(step: str, n: int = 48) -> tuple[list[float], int]:
    x = torch.arange(64.0)
    steps = torch.zeros(1, dtype=torch.int32)
    warpcheck.cuda.kernel(SOURCE.replace("STEP", step), "kernel")[1, 64](x, n, steps)
    return x.tolist(), int(steps)


@pytest.mark.parametrize("schedules", ["forward", "all"])
def test_reading_unwritten_memory_is_allowed_if_the_value_is_discarded(schedules: Any) -> None:
    # The shuffle hides which values are discarded: the code of a single thread doesn't show it.
    report = warpcheck.run(launch, "value += __shfl_xor_sync(~0, value, 8);", schedules=schedules)
    x, _ = report.result
    assert x == [float(i + 2 * (i < 48)) for i in range(64)]  # added once, though the launch was repeated
    (line,) = report.launches[0].printed.splitlines()
    assert line.endswith(
        "warning: thread 48 of block 0 reads 4 bytes at tile[48] (byte 192 of 256), which nothing has written; nothing "
        "depends on what is there"
    )


@pytest.mark.parametrize(
    "step",
    [
        "value += __shfl_xor_sync(~0, value, 16);",  # thread 32 adds the value of thread 48
        "value = fmaxf(value, __shfl_xor_sync(~0, value, 16));",  # which ignores NaN
        "value = fminf(value, __shfl_xor_sync(~0, value, 16));",
        "if (value > 2.0f) atomicAdd(steps, 1);",
        "if (value != value) x[0] = 7.0f;",
        "for (int i = 0; i < (int)fminf(value, 5.0f); i++) __nanosleep(1);",  # only the time depends on it
        'if (t == 63) printf("%f", value);',
    ],
)
def test_results_that_depend_on_unwritten_memory_are_faults(step: str) -> None:
    with pytest.raises(warpcheck.Uninitialized, match=r"at tile\[\d\d\] .* which nothing has written") as caught:
        warpcheck.run(launch, step)
    assert caught.value.line == 7
    # With n = 64 all of the tile is written, so the same step has no fault.
    assert warpcheck.run(launch, step, 64).result[0][0] == 1.0 + ("value +=" in step)


def test_a_wild_index_from_unwritten_memory_is_reported_as_the_read() -> None:
    """The unwritten value is used as an index. The read comes first, so the read is the reported fault."""
    with pytest.raises(warpcheck.Uninitialized):
        warpcheck.run(launch, "if (t >= n) value = x[(int)value];")


def test_a_race_on_unwritten_memory_is_still_a_race() -> None:
    """Thread 0 reads the element that thread 48 writes later, with no barrier between them."""
    with pytest.raises(warpcheck.Race, match="no barrier between"):
        warpcheck.run(launch, "if (t == 0) x[0] += 0.0f * tile[48]; if (t == 48) tile[48] = 1.0f;")
