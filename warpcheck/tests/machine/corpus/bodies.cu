// grid 2, block 128, n 256: forces between bodies, float4 tiles that all threads read
extern "C" __global__ void bodies(const float* a, const int* c, float* b, int n) {
    __shared__ float4 tile[128];
    int i = blockIdx.x * 128 + threadIdx.x;
    float4 mine = ((const float4*)a)[i];
    float3 force = {0, 0, 0};
    for (int t = 0; t < n; t += 128) {
        tile[threadIdx.x] = ((const float4*)a)[t + threadIdx.x];
        __syncthreads();
#pragma unroll 8
        for (int k = 0; k < 128; k++) {
            float4 p = tile[k];
            float dx = p.x - mine.x, dy = p.y - mine.y, dz = p.z - mine.z, r = rsqrtf(dx * dx + dy * dy + dz * dz + 1e-3f);
            float s = p.w * r * r * r;
            force.x += dx * s, force.y += dy * s, force.z += dz * s;
        }
        __syncthreads();
    }
    b[3 * i] = force.x, b[3 * i + 1] = force.y, b[3 * i + 2] = force.z;
}
