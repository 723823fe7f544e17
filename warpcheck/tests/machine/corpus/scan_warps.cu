// grid 2, block 256, n 512: scan by shuffles, totals of warps in shared memory
extern "C" __global__ void scan_warps(const float* a, const int* c, float* b, int n) {
    __shared__ float totals[8];
    int t = threadIdx.x, lane = t & 31, warp = t >> 5;
    float x = a[blockIdx.x * 256 + t];
    for (int d = 1; d < 32; d <<= 1) {
        float y = __shfl_up_sync(~0u, x, d);
        if (lane >= d) x += y;
    }
    if (lane == 31) totals[warp] = x;
    __syncthreads();
    if (warp == 0) {
        float y = lane < 8 ? totals[lane] : 0;
        for (int d = 1; d < 8; d <<= 1) {
            float z = __shfl_up_sync(~0u, y, d);
            if (lane >= d) y += z;
        }
        if (lane < 8) totals[lane] = y;
    }
    __syncthreads();
    if (warp > 0) x += totals[warp - 1];
    b[blockIdx.x * 256 + t] = x;
}
