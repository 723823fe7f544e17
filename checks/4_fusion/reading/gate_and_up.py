# Launch: [4] float gate[512], float up[512], float out[512], BLOCK = 128
import triton
import triton.language as tl


@triton.jit
def kernel(gate, up, out, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    place = tl.program_id(0) * BLOCK + column
    left = tl.load(gate + place)
    right = tl.load(up + place)
    value = left * right / (1 + tl.exp(-left))
    tl.store(out + tl.program_id(0) * (BLOCK // 2) + column, value)
