"""The Triton kernels. Matrices are contiguous, dtypes are those of the tensors, arithmetic is float32."""

import triton
import triton.language as tl

# TODO: forward and backward kernels of both operators
