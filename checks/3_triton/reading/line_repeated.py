# Launch: [2] float x[4096], float out[4096], BLOCK = 512, num_warps = 4
import triton
import triton.language as tl


@triton.jit
def kernel(x, out, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + place // 4)
    tl.store(out + place, value)
