// Vector addition: out[i] = x[i] + y[i] for n float32 elements.
//
// Every thread determines which elements it owns. The last block extends past the end of the vectors.
//
// One thread loads a Vector from each input: float4 where all addresses are multiples of 16, otherwise float.

__device__ float4 operator+(float4 a, float4 b) {
    return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w};
}

template <typename Vector>
__global__ void vector_add(const float* x, const float* y, float* out, long long n) {
    constexpr int WIDTH = sizeof(Vector) / sizeof(float);
    const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;

    const long long vectors = n / WIDTH;
    if (i < vectors) {
        reinterpret_cast<Vector*>(out)[i] =
            reinterpret_cast<const Vector*>(x)[i] + reinterpret_cast<const Vector*>(y)[i];
    }

    const long long rest = vectors * WIDTH + i;  // the n % 4 elements that don't fill a vector, one per thread
    if (rest < n) out[rest] = x[rest] + y[rest];
}
