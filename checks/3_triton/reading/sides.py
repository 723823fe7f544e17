# Launch: [2, 3] float x[2400], float out[2400], int rows = 60, int columns = 40, BLOCK = 32
import triton
import triton.language as tl


@triton.jit
def kernel(x, out, rows, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[:, None]
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    inside = (row < rows) & (column < rows)
    value = tl.load(x + row * columns + column, mask=inside, other=0)
    tl.store(out + row * columns + column, value, mask=(row < rows) & (column < columns))
