// Written for this test. A contribution would name the repository, the file, the commit, such as
// 0123456789abcdef0123456789abcdef01234567, and the license here.

__device__ float warp_sum(float value) {
    for (int offset = 16; offset > 0; offset /= 2) value += __shfl_down_sync(0xffffffffu, value, offset);
    return value;
}

__global__ void row_means(const float* __restrict__ x, float* __restrict__ means, int columns) {
    const float* row = x + (size_t)blockIdx.x * columns;
    float sum = 0.0f;
    for (int column = threadIdx.x; column < columns; column += 32) sum += row[column];
    sum = warp_sum(sum);
    if (threadIdx.x == 0) means[blockIdx.x] = sum / columns;
}
