# Launch: [4] int table[128], float x[8400], float out[512], BLOCK = 128, num_warps = 4
import triton
import triton.language as tl


@triton.jit
def kernel(table, x, out, BLOCK: tl.constexpr):
    token = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    page = tl.load(table + token // 4)
    key = tl.load(x + page * 64 + token % 4)
    tl.store(out + token, key)
