// out = x + y, float32.
//
// Vector is what one thread loads at a time: float4 (16 bytes, the widest access there is) where all three addresses
// are multiples of 16, else float. BATCH loads of each input are issued before the first one is used.

template <typename Vector>
__device__ Vector add(Vector a, Vector b);

template <>
__device__ float add(float a, float b) {
    return a + b;
}

template <>
__device__ float4 add(float4 a, float4 b) {
    return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w};
}

template <typename Vector, int BATCH>
__global__ void vector_add(const float* __restrict__ x, const float* __restrict__ y, float* __restrict__ out,
                           long long n) {
    constexpr int WIDTH = sizeof(Vector) / sizeof(float);
    const long long vectors = n / WIDTH;
    const long long first = blockIdx.x * (long long)(BATCH * blockDim.x) + threadIdx.x;

    Vector a[BATCH], b[BATCH];
    for (int k = 0; k < BATCH; ++k) {
        const long long i = first + k * blockDim.x;
        if (i < vectors) {
            a[k] = reinterpret_cast<const Vector*>(x)[i];
            b[k] = reinterpret_cast<const Vector*>(y)[i];
        }
    }
    for (int k = 0; k < BATCH; ++k) {
        const long long i = first + k * blockDim.x;
        if (i < vectors) reinterpret_cast<Vector*>(out)[i] = add(a[k], b[k]);
    }

    const long long last = vectors * WIDTH + first;  // the n % 4 elements that fill no vector
    if (last < n) out[last] = x[last] + y[last];
}
