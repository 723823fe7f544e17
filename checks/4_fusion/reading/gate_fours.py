# Launch: [4] float x[4608], float out[512], BLOCK = 128, num_warps = 4
import triton
import triton.language as tl


@triton.jit
def kernel(x, out, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    gate = tl.load(x + 4 * place)
    up = tl.load(x + 4 * place + 2)
    tl.store(out + place, up * gate / (1 + tl.exp(-gate)))
