# Launch: [8] float x[800], float out[800], int columns = 100, BLOCK = 128
import triton
import triton.language as tl


@triton.jit
def kernel(x, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0) * columns
    column = tl.arange(0, BLOCK)
    value = tl.load(x + row + column)
    value = tl.where(column < columns, value, 0)
    tl.store(out + row + column, value - tl.sum(value, 0) / columns, mask=column < columns)
