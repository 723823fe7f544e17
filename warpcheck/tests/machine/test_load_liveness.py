"""Test that a load whose value is used races, even if other lanes or loop iterations discard the value."""

from __future__ import annotations

import numpy as np
import pytest

from machine.launching import Run, aligned, buffer
from warpcheck import simt
from warpcheck.simt import FaultKind

USES = {
    "by other lanes": "if (t < 100) a[t] = v + 1; else b[t] = v;",
    "by the lanes that a shuffle takes it to": """float w = __shfl_xor_sync(~0u, v, 4);
        if (t < 100) a[t] = w + 1;""",
    "by a lane of the other arm that a shuffle takes it to": """float w = 1;
        if (t % 32 < 16) w = v;
        w = __shfl_xor_sync(~0u, w, 16);
        if (t < 100) a[t] = w + 1;""",
    "for an address": "if (t < 100) a[t] = -1; b[(int)v & 63] = 1;",
    "round a loop": """float w = 0;
        for (int k = 0; k < n; k++) { if (t < 100) a[t] = w; w = v * k; }
        if (k_of(t)) b[t] = w;""",
}


@pytest.mark.parametrize("body", USES.values(), ids=USES.keys())
def test_a_value_that_some_lane_uses_races(run: Run, body: str) -> None:
    source = f"""__device__ bool k_of(int t) {{ return t & 1; }}
        __global__ void kernel(float* a, float* b, int n) {{
        int t = threadIdx.x;
        float v = a[min(t, 99)]; asm volatile("" :: "f"(v)); // here
        {body}
    }}"""
    a = aligned(128)
    a[:] = np.arange(128) + 1
    with pytest.raises(simt.Fault) as caught:
        run(source, 1, 128, a, aligned(128), 3)
    assert caught.value.kind == FaultKind.RACE


LOOPS = {
    "of the next round": "if (k & 1) b[t] = v; READ",
    "of the last round": "READ if (k == 2) b[t] = v;",
    "of the last round, by one of its conditions": "READ bool is_last = k == 2; if (is_last && t > 64) b[t] = v;",
    "behind the loop": "READ",
    "after a barrier": "READ __syncthreads(); if (k == 1) b[t] = v;",
    "of the round after the next one": "if (k > 1) b[t] = w; w = v; READ",
    "by a copy that a condition keeps": "READ if (k == n - 3) w = v; if (k == n - 2) b[t] = w;",
}


@pytest.mark.parametrize("body", LOOPS.values(), ids=LOOPS.keys())
def test_a_value_that_some_iteration_uses_races(run: Run, body: str) -> None:
    read = 'v = a[min(t, 99)]; asm volatile("" :: "f"(v)); if (t == 99) a[t] = k; // here\n'
    source = f"""__global__ void kernel(float* a, float* b, int n) {{
        int t = threadIdx.x;
        float v = 0, w = 0;
        #pragma unroll 1
        for (int k = 0; k < n; k++) {{
            {body.replace("READ", read)}
        }}
        b[t + 128] = {"v" if body == "READ" else "0"};
    }}"""
    with pytest.raises(simt.Fault) as caught:
        run(source, 1, 128, aligned(128), aligned(256), 3)
    assert caught.value.kind == FaultKind.RACE


# The first of three iterations loads a value. One iteration stores it, under a predicate that is known at the load.
ITERATIONS = """.version 8.0
.target sm_80
.address_size 64
.visible .entry kernel(.param .u64 to) {
    .reg .pred %p<5>; .reg .b32 %r<8>; .reg .b64 %rd<8>;
    ld.param.u64 %rd1, [to]; mov.u32 %r1, %tid.x; min.u32 %r2, %r1, 99;
    mul.wide.u32 %rd2, %r1, 4; add.u64 %rd2, %rd1, %rd2; mul.wide.u32 %rd3, %r2, 4; add.u64 %rd3, %rd1, %rd3;
    setp.eq.u32 %p4, %r1, 99; mov.u32 %r3, 0; mov.u32 %r4, 0;
next:
    setp.eq.u32 %p1, %r3, ROUND; setp.ne.u32 %p2, %r3, 0;
    @%p2 bra over;
    ld.global.u32 %r4, [%rd3];
over:
    @!%p1 bra done;
    st.global.u32 [%rd2+512], %r4;
done:
    @%p4 st.global.u32 [%rd2], %r3;
    add.u32 %r3, %r3, 1; setp.lt.u32 %p3, %r3, 3;
    @%p3 bra next;
    ret;
}"""


# The predicate depends on a register that one path after the load changes.
CHANGED = ITERATIONS.replace("setp.eq.u32 %p1, %r3, ROUND;", "mov.u32 %r5, 0;").replace(
    "over:", "over: @%p2 bra same; add.u32 %r5, %r5, 1;\nsame: setp.eq.u32 %p1, %r5, 1;"
)


@pytest.mark.parametrize("text", [ITERATIONS.replace("ROUND", "0"), ITERATIONS.replace("ROUND", "2"), CHANGED])
def test_a_predicate_that_changes_after_a_load_keeps_it_live(text: str) -> None:
    a = aligned(256, np.uint32)
    launch = simt.load(text).launch
    with pytest.raises(simt.Fault) as caught:
        launch("kernel", grid=(1,), block=(128,), args=[a.ctypes.data], buffers=[buffer("a", a)])
    assert caught.value.kind == FaultKind.RACE
