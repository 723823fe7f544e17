#include <stdio.h>
#include <stdlib.h>

// For the CUDA runtime routines (prefixed with "cuda_")
#include <cuda_runtime.h>

/**
 * CUDA Kernel Device code
 *
 * Computes the vector addition of A and B into C. The 3 vectors have the same number of elements numElements.
 */
__global__ void vectorAdd(const float *A, const float *B, float *C, long long numElements)
{
    long long i = (long long)blockDim.x * blockIdx.x + threadIdx.x;

    if (i < numElements)
    {
        C[i] = A[i] + B[i];
    }
}

#ifndef __CUDACC_RTC__
int main(void)
{
    float *d_A = NULL;
    cudaMalloc((void **)&d_A, 4);
    vectorAdd<<<1, 1>>>(d_A, d_A, d_A, 1);
    printf("Done\n");
    return 0;
}
#endif
