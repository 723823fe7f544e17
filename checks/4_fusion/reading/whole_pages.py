# Launch: [1] float keys[100], float out[1], int tokens = 100, PAGE = 32, num_warps = 1
import triton
import triton.language as tl


@triton.jit
def kernel(keys, out, tokens, PAGE: tl.constexpr):
    total = tl.zeros((PAGE,), tl.float32)
    for page in range(tl.cdiv(tokens, PAGE)):
        place = page * PAGE + tl.arange(0, PAGE)
        key = tl.load(keys + place)
        total += tl.where(place < tokens, key, 0)
    tl.store(out, tl.sum(total, 0))
