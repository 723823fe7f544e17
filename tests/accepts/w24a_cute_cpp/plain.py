from kernelpath.lanes import cuda


def matmul(a, b):
    out = a.new_empty(a.shape[0], b.shape[1])
    blocks = -(-a.shape[0] // 64), -(-b.shape[1] // 64)
    cuda.kernel("plain.cu", "matmul")[blocks, (32, 4)](a, b, out, a.shape[0], b.shape[1], a.shape[1])
    return out
