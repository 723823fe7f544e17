// grid 4 4, block 16 16, n 64: a 5 x 5 convolution, the filter in shared memory
extern "C" __global__ void convolution_plane(const float* a, const int* c, float* b, int n) {
    __shared__ float tile[20][20], filter[5][5];
    int t = threadIdx.y * 16 + threadIdx.x;
    if (t < 25) filter[t / 5][t % 5] = a[t];
    for (int k = t; k < 400; k += 256) {
        int y = blockIdx.y * 16 + k / 20 - 2, x = blockIdx.x * 16 + k % 20 - 2;
        tile[k / 20][k % 20] = y >= 0 && y < n && x >= 0 && x < n ? a[y * n + x] : 0.0f;
    }
    __syncthreads();
    float sum = 0;
    for (int i = 0; i < 5; ++i)
        for (int j = 0; j < 5; ++j) sum += tile[threadIdx.y + i][threadIdx.x + j] * filter[i][j];
    b[(blockIdx.y * 16 + threadIdx.y) * n + blockIdx.x * 16 + threadIdx.x] = sum;
}
