# Launch: [2] float packed[1536], float out[512], int width = 130, BLOCK = 128, num_warps = 1
import triton
import triton.language as tl


@triton.jit
def kernel(packed, out, width, BLOCK: tl.constexpr):
    token = tl.program_id(0)
    place = tl.arange(0, BLOCK)
    start = tl.multiple_of(token * 3 * width + width, 4)
    key = tl.load(packed + start + place)
    tl.store(out + token * BLOCK + place, key)
