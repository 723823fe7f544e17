# Launch: [1] float x[256], float out[256], BLOCK = 256, num_warps = 1
import triton
import triton.language as tl


@triton.jit
def kernel(x, out, BLOCK: tl.constexpr):
    place = tl.arange(0, BLOCK)
    value = tl.load(x + place)
    tl.store(out + place, value, mask=place < BLOCK // 2)
    tl.debug_barrier()
    back = tl.load(out + (BLOCK - 1 - place) // 2 + 1)
    tl.atomic_add(x + place, back)
