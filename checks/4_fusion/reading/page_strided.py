# Launch: [4] int table[64], float x[4300], float out[512], BLOCK = 128, num_warps = 4
import triton
import triton.language as tl


@triton.jit
def kernel(table, x, out, BLOCK: tl.constexpr):
    token = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    page = tl.load(table + token // 8)
    key = tl.load(x + page * 64 + token % 8 * 8)
    tl.store(out + token, key)
