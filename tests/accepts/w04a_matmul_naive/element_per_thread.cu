// A thread per element of the product, counted over all rows: for a vector b, each lane of a warp has its own row of a.
__global__ void matmul(const float* a, const float* b, float* out, long long elements, long long n, long long k) {
    const long long i = blockIdx.x * 256ll + threadIdx.x;
    if (i >= elements) return;
    const long long row = i / n, column = i % n;
    float sum = 0;
    for (long long t = 0; t < k; ++t) sum += a[row * k + t] * b[t * n + column];
    out[i] = sum;
}
