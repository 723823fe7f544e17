__device__ float partial[1024];
__device__ unsigned int retired = 0;

__device__ float tree(float mine, float* shared) {
    shared[threadIdx.x] = mine;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) shared[threadIdx.x] += shared[threadIdx.x + half];
        __syncthreads();
    }
    return shared[0];
}

__global__ void vector_sum(const float* x, float* out, long long n) {
    __shared__ float shared[256];
    __shared__ bool last;
    float sum = 0;
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += gridDim.x * (long long)blockDim.x) {
        sum += x[i];
    }
    sum = tree(sum, shared);
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = sum;
        __threadfence();
        last = atomicAdd(&retired, 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (!last) return;
    sum = 0;
    for (int i = threadIdx.x; i < gridDim.x; i += blockDim.x) sum += ((volatile float*)partial)[i];
    sum = tree(sum, shared);
    if (threadIdx.x == 0) {
        out[0] = sum;
        retired = 0;
    }
}
