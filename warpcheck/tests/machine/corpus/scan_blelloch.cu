// grid 2, block 128, n 512: exclusive scan by a tree, without padding
extern "C" __global__ void scan_blelloch(const float* a, const int* c, float* b, int n) {
    __shared__ float s[256];
    int t = threadIdx.x, offset = 1;
    s[2 * t] = a[blockIdx.x * 256 + 2 * t];
    s[2 * t + 1] = a[blockIdx.x * 256 + 2 * t + 1];
    for (int d = 128; d > 0; d >>= 1) {
        __syncthreads();
        if (t < d) s[offset * (2 * t + 2) - 1] += s[offset * (2 * t + 1) - 1];
        offset *= 2;
    }
    if (t == 0) s[255] = 0;
    for (int d = 1; d < 256; d *= 2) {
        offset >>= 1;
        __syncthreads();
        if (t < d) {
            int i = offset * (2 * t + 1) - 1, j = offset * (2 * t + 2) - 1;
            float v = s[i];
            s[i] = s[j];
            s[j] += v;
        }
    }
    __syncthreads();
    b[blockIdx.x * 256 + 2 * t] = s[2 * t];
    b[blockIdx.x * 256 + 2 * t + 1] = s[2 * t + 1];
}
