template <int RADIUS, int PER_THREAD>
__global__ void smooth(const float* __restrict__ x, float* __restrict__ out, long long n) {
    extern __shared__ float tile[];
    const int size = blockDim.x * PER_THREAD;
    const long long begin = (long long)blockIdx.x * size;
    for (int i = threadIdx.x; i < size + 2 * RADIUS; i += blockDim.x) {
        const long long at = begin + i - RADIUS;
        tile[i] = at >= 0 && at < n ? x[at] : 0;
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < PER_THREAD; ++k) {
        const int i = threadIdx.x + k * blockDim.x;
        float sum = 0;
#pragma unroll
        for (int d = -RADIUS; d <= RADIUS; ++d) sum += (RADIUS + 1 - (d < 0 ? -d : d)) * tile[i + RADIUS + d];
        if (begin + i < n) out[begin + i] = sum / ((RADIUS + 1) * (RADIUS + 1));
    }
}
