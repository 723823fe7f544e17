# Launch: [3] float x[390], float out[390], int columns = 130, BLOCK = 128, num_warps = 1
import triton
import triton.language as tl


@triton.jit
def kernel(x, out, columns, BLOCK: tl.constexpr):
    row = tl.multiple_of(tl.program_id(0) * columns, 4)
    column = tl.arange(0, BLOCK)
    value = tl.load(x + row + column)
    tl.store(out + row + column, 3 * value)
