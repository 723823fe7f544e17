// grid 2 2, block 16 16, n 32: a block of Floyd and Warshall
extern "C" __global__ void shortest_paths(const float* a, const int* c, float* b, int n) {
    __shared__ float row[16][16], column[16][16];
    int x = threadIdx.x, y = threadIdx.y, i = blockIdx.y * 16 + y, j = blockIdx.x * 16 + x;
    float best = a[i * n + j];
    row[y][x] = a[y * n + j];
    column[y][x] = a[i * n + x];
    __syncthreads();
#pragma unroll
    for (int k = 0; k < 16; k++) best = fminf(best, column[y][k] + row[k][x]);
    b[i * n + j] = best;
}
