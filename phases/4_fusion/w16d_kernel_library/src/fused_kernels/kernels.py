"""The Triton kernels. Matrices are contiguous, tensors keep their dtypes, and arithmetic is float32."""

import triton
import triton.language as tl

# TODO: forward and backward kernels of both operators
