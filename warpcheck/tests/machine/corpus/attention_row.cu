// grid 4, block 64, n 64: scores of a query against 64 keys, softmax, and the sum of values
extern "C" __global__ void attention_row(const float* a, const int* c, float* b, int n) {
    __shared__ float q[64], score[64], reduced[2];
    int t = threadIdx.x;
    q[t] = a[blockIdx.x * 64 + t];
    __syncthreads();
    const float4* key = reinterpret_cast<const float4*>(a + 4096 + t * 64);
    float dot = 0;
    for (int k = 0; k < 16; k++) {
        float4 v = key[k];
        dot += v.x * q[4 * k] + v.y * q[4 * k + 1] + v.z * q[4 * k + 2] + v.w * q[4 * k + 3];
    }
    float most = dot;
    for (int d = 16; d; d >>= 1) most = fmaxf(most, __shfl_xor_sync(~0u, most, d));
    if (t % 32 == 0) reduced[t / 32] = most;
    __syncthreads();
    most = fmaxf(reduced[0], reduced[1]);
    score[t] = __expf(dot - most);
    __syncthreads();
    float sum = 0, total = 0;
    for (int k = 0; k < 64; k++) sum += score[k] * a[8192 + k * 64 + t], total += score[k];
    b[blockIdx.x * 64 + t] = sum / total;
}
