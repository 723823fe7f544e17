# Launch: [2] float x[512], float y[512], float out[512], BLOCK = 256
import triton
import triton.language as tl


@triton.jit
def kernel(x, y, out, BLOCK: tl.constexpr):
    begin = tl.program_id(0) * BLOCK
    place = tl.arange(0, BLOCK)
    value = tl.load(x + begin + place)
    tl.store(y + begin + place, 2 * value)
    other = tl.load(y + begin + BLOCK - 1 - place)
    tl.store(out + begin + place, value + other)
