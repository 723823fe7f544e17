__global__ void vector_add(float* const* table, long long n) {
    const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const float sum = table[0][i] + table[1][i];
    table[0][i] = sum;
    table[2][i] = sum;
}
