// GEMM on tensor cores: out[row, column] = sum over i of a[row, i] * b[i, column]. a is m x k and b is k x n; they and
// out are bfloat16 or float16, the accumulators float32.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_pipeline.h>

// TODO: for wmma include <mma.h>; ldmatrix and mma.sync are inline PTX

template <typename T>  // TODO: add what else must be known at compile time
__global__ void matmul(const T* a, const T* b, T* out, int m, int n, int k) {  // TODO: with launch bounds
    // TODO: in each step along k, copy tiles of a and b to shared memory, wait, load fragments, multiply
    // TODO: round the accumulators and store them
}
