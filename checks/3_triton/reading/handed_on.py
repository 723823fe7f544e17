# Launch: [4] float x[512], float part[4], float out[4], BLOCK = 128
import triton
import triton.language as tl


@triton.jit
def kernel(x, part, out, BLOCK: tl.constexpr):
    program = tl.program_id(0)
    place = program * BLOCK + tl.arange(0, BLOCK)
    tl.store(part + program, tl.sum(tl.load(x + place), 0))
    if program == 3:
        parts = tl.load(part + tl.arange(0, 4))
        tl.store(out, tl.sum(parts, 0))
