// PyTorch's way: an aligned array as the vector, loops over it that are unrolled, and several vectors in flight.

template <typename T, int size>
struct alignas(sizeof(T) * size) aligned_vector {
    T val[size];
};

template <int vec_size, int rows_per_thread>
__global__ void __launch_bounds__(128) hardswish(const float* x, float* out, int rows, int columns, int64_t stride) {
    using vec_t = aligned_vector<float, vec_size>;
    const int column = (blockIdx.x * blockDim.x + threadIdx.x) * vec_size;
    if (column >= columns) return;
    for (int64_t base = blockIdx.y * int64_t(rows_per_thread); base < rows; base += gridDim.y * int64_t(rows_per_thread)) {
        vec_t v[rows_per_thread];
        #pragma unroll
        for (int r = 0; r < rows_per_thread; r++)
            if (base + r < rows) v[r] = *reinterpret_cast<const vec_t*>(x + (base + r) * stride + column);
        #pragma unroll
        for (int r = 0; r < rows_per_thread; r++) {
            if (base + r >= rows) break;
            #pragma unroll
            for (int k = 0; k < vec_size; k++)
                v[r].val[k] = v[r].val[k] * min(max(v[r].val[k] + 3.f, 0.f), 6.f) * (1.f / 6.f);
            *reinterpret_cast<vec_t*>(out + (base + r) * int64_t(columns) + column) = v[r];
        }
    }
}
