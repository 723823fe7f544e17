# Launch: [4] float x[300], float out[512], int n = 300, BLOCK = 128
import triton
import triton.language as tl


@triton.jit
def kernel(x, out, n, BLOCK: tl.constexpr):
    part = tl.program_id(0)
    place = part * BLOCK + tl.arange(0, BLOCK)
    if part * BLOCK < n:
        value = tl.load(x + place, mask=place < n, other=0)
        tl.store(out + place, value)
    held = tl.load(out + place)
    tl.store(out + place, held * 2)
