// grid 4, block 256, n 1024: three branches with loads of their own
extern "C" __global__ void divergent_loads(const float* a, const int* c, float* b, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float x;
    switch (c[i] % 3) {
        case 0: x = a[i]; break;
        case 1: x = a[2 * i] + a[2 * i + 1]; break;
        default: x = a[i + n] * a[i + 2 * n];
    }
    b[i] = x;
}
