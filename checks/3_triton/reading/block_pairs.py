# Launch: [2, 32] float x[4096], float out[4096], ROWS = 32, COLUMNS = 2, num_warps = 4
import triton
import triton.language as tl


@triton.jit
def kernel(x, out, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    value = tl.load(x + row * 64 + column)
    tl.store(out + row * 64 + column, value)
