// grid 4, block 256, n 4003: float4 through reinterpret_cast, and a tail
extern "C" __global__ void vectors_with_tail(const float* a, const int* c, float* b, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (4 * i + 3 < n) {
        float4 v = reinterpret_cast<const float4*>(a)[i];
        v.x *= 2, v.y *= 2, v.z *= 2, v.w *= 2;
        reinterpret_cast<float4*>(b)[i] = v;
    } else {
        for (int k = 4 * i; k < n; k++) b[k] = a[k] * 2;
    }
}
