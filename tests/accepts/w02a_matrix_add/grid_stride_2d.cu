#define FOR_EACH_IN(i, n, axis) \
    for (int i = blockIdx.axis * blockDim.axis + threadIdx.axis; i < (n); i += blockDim.axis * gridDim.axis)

__global__ void add(float const* __restrict x, float const* __restrict y, float* __restrict out, int const rows,
                    int const columns, int64_t const x_stride, int64_t const y_stride) {
    FOR_EACH_IN(r, rows, y) {
        FOR_EACH_IN(c, columns, x) { out[int64_t(r) * columns + c] = x[r * x_stride + c] + y[r * y_stride + c]; }
    }
}
