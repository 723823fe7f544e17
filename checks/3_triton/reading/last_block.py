# Launch: [4] float x[1000], float out[1000], int n = 1000, BLOCK = 256
import triton
import triton.language as tl


@triton.jit
def kernel(x, out, n, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < n
    value = tl.load(x + place, mask=inside, other=0)
    tl.store(out + place, 2 * value, mask=place <= n)
