// grid 4 4, block 16 16, n 64: five points of a plane with a halo
extern "C" __global__ void stencil_plane(const float* a, const int* c, float* b, int n) {
    __shared__ float s[18][18];
    int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y, i = threadIdx.x + 1, j = threadIdx.y + 1;
    s[j][i] = a[y * n + x];
    if (threadIdx.x == 0) s[j][0] = x > 0 ? a[y * n + x - 1] : 0;
    if (threadIdx.x == 15) s[j][17] = x < n - 1 ? a[y * n + x + 1] : 0;
    if (threadIdx.y == 0) s[0][i] = y > 0 ? a[(y - 1) * n + x] : 0;
    if (threadIdx.y == 15) s[17][i] = y < n - 1 ? a[(y + 1) * n + x] : 0;
    __syncthreads();
    b[y * n + x] = 0.25f * (s[j - 1][i] + s[j + 1][i] + s[j][i - 1] + s[j][i + 1]) - s[j][i];
}
