"""Cooperative groups for barriers and places; loops over tiles as llm.c writes them."""

from kernelpath.lanes import cuda


def matmul(inp, weight):
    out = inp.new_empty(inp.shape[0], weight.shape[1])
    ceil_div = lambda a, b: (a + b - 1) // b  # noqa: E731
    grid = ceil_div(out.shape[1], 32), ceil_div(out.shape[0], 32)
    kernel = cuda.kernel("groups.cu", "matmul_forward_kernel2")
    kernel[grid, (32, 32)](out, inp, weight, *out.shape, inp.shape[1])
    return out
