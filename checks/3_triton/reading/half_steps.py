# Launch: [4] float x[640], float out[640], BLOCK = 256
import triton
import triton.language as tl


@triton.jit
def kernel(x, out, BLOCK: tl.constexpr):
    begin = tl.program_id(0) * (BLOCK // 2)
    place = begin + tl.arange(0, BLOCK)
    value = tl.load(x + place)
    tl.store(out + place, value + begin)
