# Launch: [4] int table[256], float x[16600], float out[512], BLOCK = 128, num_warps = 4
import triton
import triton.language as tl


@triton.jit
def kernel(table, x, out, BLOCK: tl.constexpr):
    token = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    page = tl.load(table + token // 2)
    key = tl.load(x + page * 64 + token % 2)
    tl.store(out + token, key)
