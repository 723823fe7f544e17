"""Test how accesses in PTX map to accesses in SASS: which of them ptxas merges, and which it doesn't."""

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


def test_adjacent_accesses_are_merged_into_one_request(run: Run) -> None:
    """ptxas knows that the arrays are aligned to 16 bytes, and unrolls the loops completely."""
    a = aligned(512)
    b = aligned(32)
    c = aligned(32, np.int32)
    a[:] = range(512)
    launch = run(SOURCE, 1, 32, a, b, c)
    loads = {
        text: (counters.shared_load_requests, counters.shared_load_bytes // 32, counters.shared_load_wavefronts)
        for text in ("four =", "two =", "odd =", "points +=", "sums[i] +=")
        for counters in [launch.lines[line_of(text)]]
    }
    assert loads == {
        "four =": (1, 16, 4),
        "two =": (1, 8, 2),
        "odd =": (2, 8, 2),
        "points +=": (6, 96, 12),
        "sums[i] +=": (16, 256, 64),
    }
    store_lines = [launch.lines[line_of(text)] for text in ("= four", "= two")]
    assert sum(counters.shared_store_requests for counters in store_lines) == 1
    assert sum(counters.shared_store_wavefronts for counters in store_lines) == 2
    (sample,) = (a for a in launch.accesses if a.line == line_of("two =") and a.access == Access.LOAD)
    assert (sample.bytes, sample.offsets) == (8, {lane: 256 + 8 * lane for lane in range(32)})
    t = np.arange(32)
    sums = [sum((64 * (t // 8) + 16 * i + k) * k for k in range(16)) for i in range(4)]
    moved = np.where(t % 2, 1, 16 * (t // 2) + 6)
    assert (b == 1 - 1 + sum(k * k - k for k in range(8)) + sum(sums) + moved).all()
    assert c[:3].tolist() == [sum(range(32)), 32, 32]


def test_an_atomic_on_a_uniform_address_is_done_by_one_lane(run: Run) -> None:
    """The third operation has the same address in every lane as well, but ptxas can't know."""
    launch = run(SOURCE, 1, 32, aligned(512), aligned(32), aligned(32, np.int32))
    atomics = [(access.sectors, access.same_address) for access in launch.accesses if access.access == Access.ATOMIC]
    assert atomics == [(1, 1), (1, 1), (32, 32)]


def test_decoded_instructions_equal_those_of_nvdisasm() -> None:
    binary = compile_kernel(SOURCE, "k.cu", "kernel", "compute_80")
    code = assembled(binary.ptx, binary.mangled)
    assert code is not None
    by_line = instructions_by_line(code.cubin)
    sass = [instruction.text for instruction in sass_of(code.cubin, binary.mangled, "k.cu")]
    disassembled = Counter(
        (kind, int(bits or 32) // 8) for text in sass for kind, bits in re.findall(r"\b(LDS|STS)(?:\.(\d+))?\b", text)
    )
    spaces = {"ld.shared": "LDS", "st.shared": "STS"}
    lines = ["", *binary.ptx.splitlines()]
    decoded = Counter(
        (kind, instruction.bytes)
        for line, instructions in by_line.items()
        for instruction in instructions
        for name, kind in spaces.items()
        if instruction.access is not None and name in lines[line]
    )
    assert decoded == disassembled
    assert disassembled["LDS", 16] > 20
    votes = [
        line
        for line, instructions in by_line.items()
        if any(instruction.code & 0x1FF in VOTES for instruction in instructions)
    ]
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
    ("operation", "expected"),
    [
        ("atomicAdd(&s[x], x);", [(1, 32, 0, 0), (1, 2, 0, 0), (1, 32, 0, 0)]),
        ("atomicAdd(&s[x], 1);", [(1, 1, 0, 0), (1, 1, 0, 0), (1, 16, 0, 0)]),
        ("k = atomicAdd(&s[x], 1);", [(1, 32, 0, 0), (1, 2, 0, 0), (1, 32, 0, 0)]),
        ("k = atomicCAS(&s[x], 0, t);", [(1, 64, 0, 0), (1, 4, 0, 0), (1, 64, 0, 0)]),
        ("atomicAdd((float*)&s[x], 1.5f);", [(32, 64, 32, 32), (2, 4, 2, 2), (32, 64, 32, 272)]),
    ],
)
def test_counters_of_shared_memory_atomics_equal_an_h200(
    operation: str, expected: list[tuple[int, ...]], run: Run
) -> None:
    """Compare the requests and wavefronts of the atomic, and those of the loads in its loop.

    ncu counted the same numbers per warp, except for floats at one address, where warps disturbed each other.
    """
    lane = np.arange(32, dtype=np.int32)
    source = ATOMIC % operation
    counters = []
    for rule in INDICES.values():
        index = aligned(32, np.int32)
        out = aligned(32, np.int32)
        index[:] = rule(lane)
        line = run(source, 1, 32, index, out).lines[6]
        counters.append(
            (
                line.shared_store_requests,
                line.shared_store_wavefronts,
                line.shared_load_requests,
                line.shared_load_wavefronts,
            )
        )
    assert counters == expected
