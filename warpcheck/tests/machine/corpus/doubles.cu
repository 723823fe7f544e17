// grid 4, block 64, n 256: doubles in shared memory, neighbors and columns
extern "C" __global__ void doubles(const float* a, const int* c, float* b, int n) {
    __shared__ double s[8][9];
    int x = threadIdx.x % 8, y = threadIdx.x / 8;
    s[y][x] = a[blockIdx.x * 64 + threadIdx.x];
    __syncthreads();
    double sum = 0;
    for (int k = 0; k < 8; k++) sum += s[y][k] * s[k][x];
    ((double*)b)[blockIdx.x * 64 + threadIdx.x] = sum;
}
