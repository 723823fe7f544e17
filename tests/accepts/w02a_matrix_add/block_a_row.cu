struct Strides {
    long long x, y;
};

__global__ void add_rows(const float* x, const float* y, float* out, int columns, Strides strides) {
    x += blockIdx.x * strides.x;
    y += blockIdx.x * strides.y;
    out += blockIdx.x * (long long)columns;
    for (int c = threadIdx.x; c < columns; c += blockDim.x) out[c] = x[c] + y[c];
}
