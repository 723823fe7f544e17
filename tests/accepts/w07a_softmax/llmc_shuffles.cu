/*
Kernels for softmax forward pass.

version 4 has a block to a row; warps reduce by shuffles and meet in shared memory
*/
#include <cuda_bf16.h>
#include <float.h>
#include <math.h>

// warp-level reduction for finding the maximum value
__device__ float warpReduceMax(float val) {
    for (int offset = 16; offset > 0; offset /= 2) {
        val = fmaxf(val, __shfl_down_sync(0xFFFFFFFF, val, offset));
    }
    return val;
}

__device__ float warpReduceSum(float val) {
    for (int offset = 16; offset > 0; offset /= 2) {
        val += __shfl_down_sync(0xFFFFFFFF, val, offset);
    }
    return val;
}

template <class floatX>
__global__ void softmax_forward_kernel4(floatX* out, const floatX* inp, int N, int C, int kept) {
    extern __shared__ float shared[];
    int idx = blockIdx.x;
    int tid = threadIdx.x;
    int warpId = threadIdx.x / 32; // warp index within a block
    int laneId = threadIdx.x % 32; // thread index within a warp
    int warpsPerBlock = blockDim.x / 32;

    float* maxvals = shared;
    float* sumvals = &shared[warpsPerBlock];
    float* row = &shared[2 * warpsPerBlock];
    const floatX* x = inp + (size_t)idx * C;
    floatX* y = out + (size_t)idx * C;

    float maxval = -FLT_MAX;
    for (int i = tid; i < C; i += blockDim.x) {
        float value = (float)x[i];
        if (i < kept) { row[i] = value; }
        maxval = fmaxf(maxval, value);
    }
    maxval = warpReduceMax(maxval);
    if (laneId == 0) maxvals[warpId] = maxval;
    __syncthreads();
    if (tid == 0) {
        float val = maxvals[tid];
        for (int i = 1; i < warpsPerBlock; i++) { val = fmaxf(val, maxvals[i]); }
        maxvals[0] = val;
    }
    __syncthreads();
    float offset = maxvals[0];

    float sumval = 0.0f;
    for (int i = tid; i < C; i += blockDim.x) {
        float value = expf((i < kept ? row[i] : (float)x[i]) - offset);
        if (i < kept) { row[i] = value; }
        sumval += value;
    }
    sumval = warpReduceSum(sumval);
    if (laneId == 0) sumvals[warpId] = sumval;
    __syncthreads();
    if (tid == 0) {
        float val = sumvals[tid];
        for (int i = 1; i < warpsPerBlock; ++i) { val += sumvals[i]; }
        sumvals[0] = val;
    }
    __syncthreads();
    float sum = sumvals[0];

    for (int i = tid; i < C; i += blockDim.x) {
        y[i] = (floatX)((i < kept ? row[i] : expf((float)x[i] - offset)) / sum);
    }
}
