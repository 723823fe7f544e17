# Launch: [4] int table[4], float keys[128], float out[128], PAGE = 32, num_warps = 1
import triton
import triton.language as tl


@triton.jit
def kernel(table, keys, out, PAGE: tl.constexpr):
    program = tl.program_id(0)
    slot = tl.arange(0, PAGE)
    page = tl.load(table + program)
    key = tl.load(keys + page * PAGE + slot)
    tl.store(out + program * PAGE + slot, 2 * key)
