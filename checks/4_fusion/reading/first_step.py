# Launch: [2] float parameter[200], float gradient[200], float out[200], int n = 200, BLOCK = 128
import triton
import triton.language as tl


@triton.jit
def kernel(parameter, gradient, out, n, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < n
    slope = tl.load(gradient + place, mask=inside)
    moment = tl.load(out + place, mask=inside)
    moment = 0.9 * moment + 0.1 * slope
    tl.store(out + place, moment, mask=inside)
    value = tl.load(parameter + place, mask=inside)
    tl.store(parameter + place, value - 0.01 * moment, mask=inside)
