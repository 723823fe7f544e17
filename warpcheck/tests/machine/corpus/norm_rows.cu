// grid 8, block 64, n 768: layer normalization of rows, in registers, float4
extern "C" __global__ void norm_rows(const float* a, const int* c, float* b, int n) {
    __shared__ float sums[2][2];
    const float4* x = reinterpret_cast<const float4*>(a + blockIdx.x * 768);
    float4 v[3];
    float sum = 0, squares = 0;
#pragma unroll
    for (int k = 0; k < 3; k++) {
        v[k] = x[threadIdx.x + 64 * k];
        sum += v[k].x + v[k].y + v[k].z + v[k].w;
        squares += v[k].x * v[k].x + v[k].y * v[k].y + v[k].z * v[k].z + v[k].w * v[k].w;
    }
    for (int d = 16; d; d >>= 1) {
        sum += __shfl_xor_sync(~0u, sum, d);
        squares += __shfl_xor_sync(~0u, squares, d);
    }
    if (threadIdx.x % 32 == 0) sums[0][threadIdx.x / 32] = sum, sums[1][threadIdx.x / 32] = squares;
    __syncthreads();
    float mean = (sums[0][0] + sums[0][1]) / 768, scale = rsqrtf((sums[1][0] + sums[1][1]) / 768 - mean * mean + 1e-5f);
#pragma unroll
    for (int k = 0; k < 3; k++) {
        float4 y = {(v[k].x - mean) * scale, (v[k].y - mean) * scale, (v[k].z - mean) * scale, (v[k].w - mean) * scale};
        reinterpret_cast<float4*>(b + blockIdx.x * 768)[threadIdx.x + 64 * k] = y;
    }
}
