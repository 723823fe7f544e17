"""S1: PTX that was written elsewhere is handed to the device; no Triton compiles it."""

import torch
import triton  # noqa: F401

from kernelpath.device import api

PTX = """
.version 8.0
.target sm_80
.address_size 64

.visible .entry add(.param .u64 x, .param .u64 y, .param .u64 out, .param .u32 n) {
    .reg .pred %p;
    .reg .b32 %r<5>;
    .reg .f32 %f<3>;
    .reg .b64 %rd<8>;
    ld.param.u64 %rd0, [x];
    ld.param.u64 %rd1, [y];
    ld.param.u64 %rd2, [out];
    ld.param.u32 %r0, [n];
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.s32 %r4, %r1, %r2, %r3;
    setp.ge.s32 %p, %r4, %r0;
    @%p bra DONE;
    mul.wide.s32 %rd3, %r4, 4;
    add.s64 %rd4, %rd0, %rd3;
    add.s64 %rd5, %rd1, %rd3;
    add.s64 %rd6, %rd2, %rd3;
    ld.global.f32 %f0, [%rd4];
    ld.global.f32 %f1, [%rd5];
    add.f32 %f2, %f0, %f1;
    st.global.f32 [%rd6], %f2;
DONE:
    ret;
}
"""


def vector_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    n = x.numel()
    if n:
        api.device().load(PTX).launch(
            "add",
            grid=((n + 255) // 256, 1, 1),
            block=(256, 1, 1),
            shared=0,
            arguments=[x, y, out, n],
            tensors=[("x", x), ("y", y), ("out", out)],
        )
    return out
