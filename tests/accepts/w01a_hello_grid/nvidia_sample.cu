/* System includes */
#include <stdio.h>
#include <assert.h>

/* CUDA runtime */
#include <cuda_runtime.h>
#include <device_launch_parameters.h>

#define checkCudaErrors(val) (val)
#define WARP_SIZE 32

extern "C" __global__ void helloGrid(int *out, int numThreads)
{
    int bx = blockIdx.x;
    int tx = threadIdx.x;
    int gid = blockDim.x * bx + tx;

    assert(gid < numThreads);
    out[0 * numThreads + gid] = bx;
    out[1 * numThreads + gid] = tx / WARP_SIZE;
    out[2 * numThreads + gid] = tx % WARP_SIZE;
    out[3 * numThreads + gid] = gid;
}
