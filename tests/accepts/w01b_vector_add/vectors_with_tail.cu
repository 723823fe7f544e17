__device__ float operator_add(float a, float b) { return a + b; }
__device__ float2 operator_add(float2 a, float2 b) { return make_float2(a.x + b.x, a.y + b.y); }
__device__ float4 operator_add(float4 a, float4 b) {
    return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

template <typename V, int WIDTH>
__global__ void add(const float* __restrict__ x, const float* __restrict__ y, float* __restrict__ out, long long n) {
    const long long v = blockIdx.x * 128ll + threadIdx.x;
    if ((v + 1) * WIDTH <= n) {
        const V a = reinterpret_cast<const V*>(x)[v], b = reinterpret_cast<const V*>(y)[v];
        reinterpret_cast<V*>(out)[v] = operator_add(a, b);
    } else {
        for (long long i = v * WIDTH; i < n; ++i) out[i] = x[i] + y[i];
    }
}
