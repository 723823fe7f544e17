// grid 2 2, block 256, n 128: 64 x 64 tiles, 4 x 4 results in each thread, A transposed in shared memory, float4
extern "C" __global__ void product_vectors(const float* a, const int* c, float* b, int n) {
    __shared__ float As[8 * 64];
    __shared__ float Bs[8 * 64];
    const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    float results[16] = {0.0f}, column[4], row[4];
    const float* A = a + blockIdx.y * 64 * n;
    const float* B = a + n * n + blockIdx.x * 64;
    for (int k0 = 0; k0 < n; k0 += 8) {
        if (threadIdx.x < 128) {
            int r = threadIdx.x / 2, k = threadIdx.x % 2 * 4;
            float4 v = reinterpret_cast<const float4*>(&A[r * n + k0 + k])[0];
            As[(k + 0) * 64 + r] = v.x;
            As[(k + 1) * 64 + r] = v.y;
            As[(k + 2) * 64 + r] = v.z;
            As[(k + 3) * 64 + r] = v.w;
        } else {
            int r = (threadIdx.x - 128) / 16, j = threadIdx.x % 16 * 4;
            reinterpret_cast<float4*>(&Bs[r * 64 + j])[0] = reinterpret_cast<const float4*>(&B[(k0 + r) * n + j])[0];
        }
        __syncthreads();
        for (int k = 0; k < 8; ++k) {
            for (int i = 0; i < 4; ++i) column[i] = As[k * 64 + ty * 4 + i];
            for (int i = 0; i < 4; ++i) row[i] = Bs[k * 64 + tx * 4 + i];
            for (int i = 0; i < 4; ++i)
                for (int j = 0; j < 4; ++j) results[i * 4 + j] += column[i] * row[j];
        }
        __syncthreads();
    }
    for (int i = 0; i < 4; ++i) {
        float4 v = {results[4 * i], results[4 * i + 1], results[4 * i + 2], results[4 * i + 3]};
        *reinterpret_cast<float4*>(&b[(blockIdx.y * 64 + ty * 4 + i) * n + blockIdx.x * 64 + tx * 4]) = v;
    }
}
