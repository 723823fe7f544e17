"""S1: cuBLAS does the work."""


def matmul(a, b):
    return a @ b
