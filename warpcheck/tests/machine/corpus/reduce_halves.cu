// grid 4, block 256, n 8192: two elements and more for each thread, then halves, the last warp unrolled
extern "C" __global__ void reduce_halves(const float* a, const int* c, float* b, int n) {
    __shared__ float s[256];
    unsigned t = threadIdx.x;
    float sum = 0;
    for (unsigned i = blockIdx.x * 512 + t; i < n; i += 512 * gridDim.x) sum += a[i] + a[i + 256];
    s[t] = sum;
    __syncthreads();
    if (t < 128) s[t] += s[t + 128];
    __syncthreads();
    if (t < 64) s[t] += s[t + 64];
    __syncthreads();
    if (t < 32) {
        volatile float* v = s;
#pragma unroll
        for (int d = 32; d > 0; d /= 2) {
            float x = v[t] + v[t + d];
            __syncwarp();
            v[t] = x;
            __syncwarp();
        }
    }
    if (t == 0) b[blockIdx.x] = s[0];
}
