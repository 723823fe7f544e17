"""Test the limits of a launch. They are those of the driver on a GPU."""

from __future__ import annotations

import pytest

from machine.launching import compile_ptx
from machine.programs import wrap
from warpcheck import simt
from warpcheck.target import SM_80

LARGEST = {
    "threads": ((1, 1, 1), (1024, 1, 1), 0),
    "deep": ((1, 1, 1), (1, 16, 64), 0),
    "wide": ((2**31 - 1, 65535, 65535), (1, 1, 1), 0),
    # A block of sm_80 has at most 163 KiB of shared memory.
    "shared": ((1, 1, 1), (1, 1, 1), 163 * 1024),
}
TOO_LARGE = {
    "a block of 1056 threads is larger than 1024": ((1, 1, 1), (33, 32, 1), 0),
    "a block of 65 along z is larger than 64": ((1, 1, 1), (1, 1, 65), 0),
    "a grid of 65536 along y is larger than 65535; number blocks along x, which has room for 2147483647": (
        (1, 65536, 1),
        (1, 1, 1),
        0,
    ),
    "a grid of 2147483648 along x is larger than 2147483647": ((2**31, 1, 1), (1, 1, 1), 0),
    "a grid of 4286578689 along x is larger than 2147483647; an int32 that overflowed to -8388607": (
        (4286578689, 1, 1),
        (1, 1, 1),
        0,
    ),
    "166913 bytes of shared memory exceed the 166912 of a block": (
        (1, 1, 1),
        (1, 1, 1),
        163 * 1024 + 1,
    ),
}
Launch = tuple[tuple[int, int, int], tuple[int, int, int], int]


@pytest.mark.parametrize("launch", LARGEST.values(), ids=LARGEST.keys())
def test_the_largest_launches_are_accepted(launch: Launch) -> None:
    grid, block, shared = launch
    assert SM_80.refusal(grid, block, 0, shared) == ""
    assert SM_80.refusal(grid, block, 48 * 1024, min(shared, 115 * 1024)) == ""


@pytest.mark.parametrize(("message", "launch"), TOO_LARGE.items(), ids=TOO_LARGE.keys())
def test_an_error_names_the_limit_that_a_launch_exceeds(message: str, launch: Launch) -> None:
    grid, block, shared = launch
    with pytest.raises(ValueError, match=message):
        simt.load(wrap("ret;").replace("sm_90a", "sm_80")).launch("k", grid=grid, block=block, shared=shared)


def test_too_much_declared_shared_memory_is_an_error() -> None:
    module, name = compile_ptx("__global__ void kernel() { __shared__ volatile int a[12289]; a[threadIdx.x] = 1; }")
    with pytest.raises(ValueError, match="49,156 bytes of shared memory are declared, more than the 49,152 that sm_80"):
        module.launch(name, grid=(1,), block=(32,))


def test_a_kernel_without_instructions_does_nothing() -> None:
    assert simt.load(wrap("")).launch("k", grid=(2,), block=(48,)).totals.global_store_requests == 0


def test_invalid_launches_are_errors() -> None:
    module, name = compile_ptx("__global__ void kernel(int* a) { a[0] = 1; }")
    with pytest.raises(ValueError, match="larger than 1024"):
        module.launch(name, grid=(1,), block=(32, 64), args=[0])
    with pytest.raises(ValueError, match="takes 1 arguments, 0 were given"):
        module.launch(name, grid=(1,), block=(32,))
    with pytest.raises(KeyError):
        module.launch("missing", grid=(1,), block=(32,))
