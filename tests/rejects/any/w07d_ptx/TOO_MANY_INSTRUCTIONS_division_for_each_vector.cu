// 16 bytes an instruction, but row and column are found by a division for each of them.

__device__ float hardswished(float x) { return x * fminf(fmaxf(x + 3, 0), 6) * (1.0f / 6); }

template <int WIDTH>
struct alignas(4 * WIDTH) Vector {
    float value[WIDTH];
};

template <int WIDTH>
__global__ void hardswish(const float* x, float* out, unsigned rows, unsigned columns, long long stride) {
    const unsigned vectors = columns / WIDTH;
    const long long threads = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < (long long)rows * vectors; i += threads) {
        const long long row = i / vectors;
        const long long column = (i - row * vectors) * WIDTH;
        auto v = *reinterpret_cast<const Vector<WIDTH>*>(x + row * stride + column);
        for (float& one : v.value) one = hardswished(one);
        reinterpret_cast<Vector<WIDTH>*>(out)[i] = v;
    }
}
