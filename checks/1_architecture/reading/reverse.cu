// Launch: <<<4, 64>>> float x[256], float out[256]
__global__ void kernel(const float* x, float* out) {
    __shared__ float tile[64];
    const int t = threadIdx.x;
    const int begin = blockIdx.x * 64;
    tile[t] = x[begin + t];
    out[begin + t] = tile[63 - t];
}
