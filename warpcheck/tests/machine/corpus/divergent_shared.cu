// grid 4, block 128, n 512: even and odd lanes read different ends of shared memory
extern "C" __global__ void divergent_shared(const float* a, const int* c, float* b, int n) {
    __shared__ float s[256];
    int t = threadIdx.x, i = blockIdx.x * 128 + t;
    s[t] = a[i];
    s[t + 128] = a[i + 512];
    __syncthreads();
    float x = 0;
    if (t % 2 == 0) {
        for (int k = 0; k < 4; k++) x += s[(t + k) & 127];
    } else {
        for (int k = 0; k < 8; k++) x -= s[128 + ((t + 4 * k) & 127)];
    }
    __syncthreads();
    if (x > 0)
        s[t] = x * s[t + 128];
    else
        s[t + 128] = x * s[t];
    __syncthreads();
    b[i] = s[t] + s[t + 128];
}
