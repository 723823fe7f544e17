// grid 4, block 256, n 1000: elements by index, and to places by index
extern "C" __global__ void gather_scatter(const float* a, const int* c, float* b, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float x = a[c[i]] + a[c[i + n] / 2];
    b[(c[i] & 255) * 1024 + i] = x;
}
