# Launch: [4] float x[500], float out[500], int n = 500, BLOCK = 128
import triton
import triton.language as tl


@triton.jit
def kernel(x, out, n, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    here = tl.load(x + place, mask=place < n, other=0)
    right = tl.load(x + place + 1, mask=place < n, other=0)
    tl.store(out + place, right - here, mask=place < n)
