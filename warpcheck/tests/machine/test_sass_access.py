"""Which accesses of the hardware serve those of PTX: what ptxas merges, and what it does not."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from machine.launching import Run, aligned
from warpcheck.assembler import assembled, sass_of
from warpcheck.frontends.nvrtc import compile_kernel
from warpcheck.layout import Access
from warpcheck.sass_access import VOTES, instructions_by_line

pytest.importorskip("triton", reason="ptxas comes with Triton")

SOURCE = """struct Three { float x, y, z; };
__global__ void kernel(const float* a, float* b, int* c) {
    __shared__ float s[32 * 16];
    __shared__ Three threes[64];
    int t = threadIdx.x;
    for (int k = 0; k < 16; k++) s[32 * k + t] = a[32 * k + t];
    threes[t] = {a[t], a[t], a[t]};
    __syncthreads();
    float four = s[4 * t] + s[4 * t + 1] + s[4 * t + 2] + s[4 * t + 3];
    float two = s[2 * t + 65] - s[2 * t + 64];
    float odd = s[t + 3] - s[t + 4];
    float points = 0, sums[4] = {};
    for (int k = 0; k < 8; k++)
        points += threes[k].x * threes[k].y - threes[k].z;
    for (int k = 0; k < 16; ++k)
        for (int i = 0; i < 4; ++i) sums[i] += s[64 * (t / 8) + 16 * i + k] * k;
    __syncthreads();
    s[2 * t] = four;
    s[2 * t + 1] = two;
    __syncthreads();
    b[t] = two + odd + points + sums[0] + sums[1] + sums[2] + sums[3] + s[t];
    atomicAdd(c, t);
    atomicAdd(c + 1, 1);
    atomicAdd(c + 2 + t / 64, 1);
}
__global__ void other(float* b) { b[threadIdx.x] = 0; }"""


def line_of(text: str) -> int:
    return 1 + next(number for number, line in enumerate(SOURCE.splitlines()) if text in line)


def test_neighbors_are_one_request_and_move_what_they_moved(run: Run) -> None:
    """ptxas knows that the arrays begin at 16 bytes, and unrolls the loops to the end."""
    a, b, c = aligned(512), aligned(32), aligned(32, np.int32)
    a[:] = range(512)
    launch = run(SOURCE, 1, 32, a, b, c)
    loads = {
        text: (one.shared_load_requests, one.shared_load_bytes // 32, one.shared_load_wavefronts)
        for text in ("four =", "two =", "odd =", "points +=", "sums[i] +=")
        for one in [launch.lines[line_of(text)]]
    }
    assert loads == {
        "four =": (1, 16, 4),
        "two =": (1, 8, 2),
        "odd =": (2, 8, 2),
        "points +=": (6, 96, 12),
        "sums[i] +=": (16, 256, 64),
    }
    stored = [launch.lines[line_of(text)] for text in ("= four", "= two")]
    assert sum(one.shared_store_requests for one in stored) == 1
    assert sum(one.shared_store_wavefronts for one in stored) == 2
    (sample,) = (one for one in launch.accesses if one.line == line_of("two =") and one.access == Access.LOAD)
    assert (sample.bytes, sample.offsets) == (8, {lane: 256 + 8 * lane for lane in range(32)})
    t = np.arange(32)
    sums = [sum((64 * (t // 8) + 16 * i + k) * k for k in range(16)) for i in range(4)]
    moved = np.where(t % 2, 1, 16 * (t // 2) + 6)
    assert (b == 1 - 1 + sum(k * k - k for k in range(8)) + sum(sums) + moved).all()
    assert c[:3].tolist() == [sum(range(32)), 32, 32]


def test_an_atomic_operation_on_an_address_that_all_lanes_have_is_done_by_one(run: Run) -> None:
    """The third has the same address in every lane, too, but ptxas does not know."""
    launch = run(SOURCE, 1, 32, aligned(512), aligned(32), aligned(32, np.int32))
    found = [(one.sectors, one.same_address) for one in launch.accesses if one.access == Access.ATOMIC]
    assert found == [(1, 1), (1, 1), (32, 32)]


def test_what_ptxas_made_is_what_nvdisasm_shows() -> None:
    binary = compile_kernel(SOURCE, "k.cu", "kernel", "compute_80")
    code = assembled(binary.ptx, binary.mangled)
    assert code is not None
    made = instructions_by_line(code.cubin)
    sass = [one.text for one in sass_of(code.cubin, binary.mangled, "k.cu")]
    shown = Counter(
        (kind, int(bits or 32) // 8) for text in sass for kind, bits in re.findall(r"\b(LDS|STS)(?:\.(\d+))?\b", text)
    )
    spaces = {"ld.shared": "LDS", "st.shared": "STS"}
    lines = ["", *binary.ptx.splitlines()]
    found = Counter(
        (kind, one.bytes)
        for line, machine in made.items()
        for one in machine
        for name, kind in spaces.items()
        if one.access is not None and name in lines[line]
    )
    assert found == shown
    assert shown["LDS", 16] > 20
    votes = [line for line, machine in made.items() if any(one.code & 0x1FF in VOTES for one in machine)]
    assert all("atom" in lines[line] or "red" in lines[line] for line in votes)
    assert votes


ATOMIC = """__global__ void kernel(const int* index, int* out) {
    __shared__ int s[1024];
    int t = threadIdx.x, x = index[t], k = 0;
    for (int i = t; i < 1024; i += 32) s[i] = 0;
    __syncthreads();
    %s
    __syncthreads();
    out[t] = s[t] + k;
}"""
INDICES: dict[str, Callable[[npt.NDArray[np.int32]], npt.NDArray[np.int32]]] = {
    "one": lambda lane: 0 * lane,
    "pairs": lambda lane: lane // 2,
    "pairs in a bank": lambda lane: 32 * (lane // 2),
}


@pytest.mark.parametrize(
    ("operation", "counted"),
    [
        ("atomicAdd(&s[x], x);", [(1, 32, 0, 0), (1, 2, 0, 0), (1, 32, 0, 0)]),
        ("atomicAdd(&s[x], 1);", [(1, 1, 0, 0), (1, 1, 0, 0), (1, 16, 0, 0)]),
        ("k = atomicAdd(&s[x], 1);", [(1, 32, 0, 0), (1, 2, 0, 0), (1, 32, 0, 0)]),
        ("k = atomicCAS(&s[x], 0, t);", [(1, 64, 0, 0), (1, 4, 0, 0), (1, 64, 0, 0)]),
        ("atomicAdd((float*)&s[x], 1.5f);", [(32, 64, 32, 32), (2, 4, 2, 2), (32, 64, 32, 272)]),
    ],
)
def test_atomics_in_shared_memory_count_as_an_h200_executes_them(
    operation: str, counted: list[tuple[int, ...]], run: Run
) -> None:
    """Requests and wavefronts of the atomic, then those of the loads in its loop.

    ncu counted the same for each warp, but for floats at one address, where warps disturbed each other.
    """
    lane, source = np.arange(32, dtype=np.int32), ATOMIC % operation
    found = []
    for rule in INDICES.values():
        index, out = aligned(32, np.int32), aligned(32, np.int32)
        index[:] = rule(lane)
        line = run(source, 1, 32, index, out).lines[6]
        found.append(
            (
                line.shared_store_requests,
                line.shared_store_wavefronts,
                line.shared_load_requests,
                line.shared_load_wavefronts,
            )
        )
    assert found == counted
