# Launch: [4] float dy[512], float dx[512], float dbias[128], COLUMNS = 128
import triton
import triton.language as tl


@triton.jit
def kernel(dy, dx, dbias, COLUMNS: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, COLUMNS)
    value = tl.load(dy + row * COLUMNS + column)
    tl.store(dx + row * COLUMNS + column, value)
    total = tl.load(dbias + column)
    tl.store(dbias + column, total + value)
