// grid 3 3, block 32 32, n 90: 32 x 32 tiles with edges, a result in each thread
#define TILE 32
extern "C" __global__ void product_plain(const float* a, const int* c, float* b, int n) {
    __shared__ float x[TILE][TILE], y[TILE][TILE];
    int row = blockIdx.y * TILE + threadIdx.y, col = blockIdx.x * TILE + threadIdx.x;
    float sum = 0.0f;
    for (int t = 0; t < (n + TILE - 1) / TILE; t++) {
        int k = t * TILE + threadIdx.x, l = t * TILE + threadIdx.y;
        x[threadIdx.y][threadIdx.x] = row < n && k < n ? a[row * n + k] : 0.0f;
        y[threadIdx.y][threadIdx.x] = l < n && col < n ? a[n * n + l * n + col] : 0.0f;
        __syncthreads();
        for (int i = 0; i < TILE; i++) sum += x[threadIdx.y][i] * y[i][threadIdx.x];
        __syncthreads();
    }
    if (row < n && col < n) b[row * n + col] = sum;
}
