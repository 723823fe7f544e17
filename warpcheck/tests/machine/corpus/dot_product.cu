// grid 4, block 128, n 5000: a dot product with a tail, halves in shared memory
extern "C" __global__ void dot_product(const float* a, const int* c, float* b, int n) {
    __shared__ float cache[128];
    int i = threadIdx.x + blockIdx.x * blockDim.x;
    float sum = 0;
    while (i < n) {
        sum += a[i] * a[i + n];
        i += blockDim.x * gridDim.x;
    }
    cache[threadIdx.x] = sum;
    __syncthreads();
    int half = blockDim.x / 2;
    while (half != 0) {
        if (threadIdx.x < half) cache[threadIdx.x] += cache[threadIdx.x + half];
        __syncthreads();
        half /= 2;
    }
    if (threadIdx.x == 0) b[blockIdx.x] = cache[0];
}
