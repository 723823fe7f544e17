# Launch: [4] float x[1024], float total[1], BLOCK = 256
import triton
import triton.language as tl


@triton.jit
def kernel(x, total, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    sum = tl.sum(tl.load(x + place), 0)
    before = tl.load(total)
    tl.store(total, before + sum)
