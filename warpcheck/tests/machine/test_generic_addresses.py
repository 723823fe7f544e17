"""Test generic addresses that point to shared, local, constant, and parameter memory."""

from __future__ import annotations

import numpy as np
import pytest

from machine.launching import Run, aligned, buffer
from warpcheck import simt
from warpcheck.simt import FaultKind

FUNCTIONS = """
__device__ __noinline__ int get(const int* p, int i) { return p[i]; }
__device__ __noinline__ void put(int* p, int i, int value) { p[i] = value; }
__device__ __noinline__ void add(int* p) { atomicAdd(p, 1); }
"""
HEAD = "__global__ void kernel(int* a, int* c, int n) { const int t = threadIdx.x; __shared__ int s[128];"


def integers(count: int = 128) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    numbers: np.ndarray[tuple[int], np.dtype[np.int32]] = aligned(count, np.int32)
    numbers[:] = np.arange(count)
    return numbers


SELECTED = """
    int l[4] = {3 * t, 3 * t, 3 * t, 3 * t};
    s[t] = 2 * t;
    __syncthreads();
    c[t] = get(t % 3 == 0 ? a : t % 3 == 1 ? s : l, t % 3 == 2 ? t % 4 : t);
}"""
LOCAL_FIRST = """
    int l = 3 * t;
    int* p[3] = {&l, a + t, s + t};
    s[t] = 2 * t;
#pragma unroll 1
    for (int i = 0; i < 6; i++) c[t] = get(p[i < 3 ? i : t % 3], n - 128);
}"""


@pytest.mark.parametrize(
    ("body", "factors"), [(SELECTED, (1, 2, 3)), (LOCAL_FIRST, (3, 1, 2))], ids=["selected", "local first"]
)
def test_one_load_accesses_several_state_spaces(run: Run, body: str, factors: tuple[int, ...]) -> None:
    """A request may access several state spaces, and an instruction's first request may access local memory."""
    a = integers()
    c = integers()
    launch = run(FUNCTIONS + HEAD + body, 1, 128, a, c, 128)
    assert c.tolist() == [t * factors[t % 3] for t in range(128)]
    (access,) = (access for access in launch.accesses if access.instruction == "ld.u32")
    assert access.buffer in ("a", "s")
    assert access.offsets
    assert all(0 <= offset < 512 for offset in access.offsets.values())


def test_atomics_on_shared_and_global_memory(run: Run) -> None:
    a = integers()
    c = integers()
    c[:] = 0
    body = "if (t == 0) s[0] = 0; __syncthreads(); add(t % 4 ? s : c); __syncthreads(); if (t == 1) c[1] = s[0]; }"
    run(FUNCTIONS + HEAD + body, 1, 128, a, c, 128)
    assert c[:2].tolist() == [32, 96]


WINDOWS = """.version 8.4
.target sm_80
.address_size 64
.const .align 4 .b32 first = 5;
.global .align 4 .b32 between = 6;
.const .align 4 .b32 table[4] = {1, 2, 3, 4};
.visible .entry kernel(.param .u64 to) {
    .shared .align 4 .b32 s[4];
    .local .align 4 .b32 l[4];
    .reg .pred p;
    .reg .b32 %r<8>;
    .reg .b64 %rd<8>, out;
    ld.param.u64 out, [to];
    mov.u64 %rd1, first; cvta.const.u64 %rd1, %rd1;
    mov.u64 %rd2, table; cvta.const.u64 %rd2, %rd2; add.u64 %rd2, %rd2, 12;
    mov.u64 %rd3, between; cvta.global.u64 %rd3, %rd3;
    mov.u64 %rd4, s; cvta.shared.u64 %rd4, %rd4;
    mov.u64 %rd5, l; cvta.local.u64 %rd5, %rd5;
    mov.u64 %rd6, to; cvta.param.u64 %rd6, %rd6;
    mov.u64 %rd7, out;
"""


def test_isspacep_distinguishes_the_windows() -> None:
    """Parameters are in the window of global memory, and constants are not (PTX ISA, "Generic Addressing")."""
    spaces = ("const", "global", "shared", "local", "param::entry")
    lines = [WINDOWS]
    for index in range(1, 8):
        lines.append("mov.u32 %r1, 0;")
        for bit, space in enumerate(spaces):
            lines.append(f"isspacep.{space} p, %rd{index}; @p add.u32 %r1, %r1, {1 << bit};")
        lines.append(f"st.global.u32 [out + {4 * index}], %r1;")
    c = integers(8)
    simt.load("\n".join([*lines, "ret; }"])).launch(
        "kernel", grid=(1,), block=(1,), args=[c.ctypes.data], buffers=[buffer("c", c)]
    )
    # Bit i of each result says whether the address is in spaces[i].
    assert c.tolist() == [0, 1, 1, 2, 4, 8, 2 + 16, 2]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("put(s, t + n, t); __syncthreads(); c[t] = s[t]; }", r"past the end of shared memory \(512 bytes\)"),
        (
            "int l[4]; l[0] = 0; put(l, n, t); c[t] = l[t % 4]; }",
            r"writes 4 bytes past the end of local memory \(16 bytes\), at offset 28",
        ),
        (
            "__shared__ int* p[128]; int l = t; p[t] = &l; __syncthreads(); c[t] = get(p[t ^ 1], 0); }",
            "thread 0 of block 0 reads 4 bytes in the local memory of thread 1: only that thread can use its address",
        ),
        (
            "c[t] = get(parameters.x, n); }",
            r"reads 4 bytes past the end of the parameters of the kernel \(36 bytes\), at offset 48",
        ),
        ("put(const_cast<int*>(parameters.x), 0, t); c[t] = 1; }", "writes 4 bytes to the parameters of the kernel"),
    ],
    ids=["shared", "local", "local of another thread", "parameters", "parameters written"],
)
def test_generic_accesses_out_of_bounds_are_faults(run: Run, body: str, message: str) -> None:
    head = HEAD.replace("int n)", "int n, const __grid_constant__ S parameters)")
    source = f"struct S {{ int x[4]; }};{FUNCTIONS}{head}{body}"
    with pytest.raises(simt.Fault, match=message) as caught:
        run(source, 1, 128, integers(), integers(), 7, bytes(16))
    assert caught.value.kind == FaultKind.OUT_OF_BOUNDS


NEAR_PARAMETERS = """.version 8.6
.target sm_80
.address_size 64
.visible .entry kernel(.param .u64 out, .param .align 4 .b8 s[16]) {
.reg .b32 %r<2>; .reg .b64 %rd<4>;
mov.b64 %rd1, s;
cvta.param.u64 %rd2, %rd1;
ld.SPACEu32 %r1, [%rd2+100];
ret;
}
"""


@pytest.mark.parametrize(("space", "owner"), [("", "of the parameters of the kernel"), ("global.", r"c \(128 int32\)")])
def test_an_access_past_a_tensor_behind_the_parameters_names_its_owner(space: str, owner: str) -> None:
    """The host's allocator may place a tensor right behind the parameters.

    Compilers access tensors in global space, and parameters by generic addresses. The message names the tensor at
    whatever distance from the parameters it is.
    """
    c = integers()
    with pytest.raises(simt.Fault, match=rf"reads 4 bytes .*\b{owner}") as caught:
        simt.load(NEAR_PARAMETERS.replace("SPACE", space)).launch(
            "kernel", grid=(1,), block=(1,), args=[c.ctypes.data, bytes(16)], buffers=[buffer("c", c)]
        )
    assert caught.value.kind == FaultKind.OUT_OF_BOUNDS


def test_writing_to_a_constant_is_a_fault() -> None:
    with pytest.raises(simt.Fault, match=r"writes 4 bytes at table\[12\], a __constant__ variable, which is read-only"):
        simt.load(WINDOWS + "st.u32 [%rd2], 7; ret; }").launch(
            "kernel", grid=(1,), block=(1,), args=[0], buffers=[buffer("c", integers())]
        )
