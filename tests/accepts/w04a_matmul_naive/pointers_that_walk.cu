using Extent = const long long;
using Read = const float* __restrict__;

__global__ void matmul(Read a, Read b, float* __restrict__ out, Extent m, Extent n, Extent k) {
    Extent column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= m || column >= n) return;
    auto of_a = a + row * k;
    auto of_b = b + column;
    float sum = 0.f;
    for (const auto end = of_a + k; of_a != end; ++of_a, of_b += n) sum = __fmaf_rn(__ldg(of_a), __ldg(of_b), sum);
    out[row * n + column] = sum;
}
