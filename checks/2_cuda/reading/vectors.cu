// Launch: <<<1, 32>>> float x[132], float out[128], int first = 2
__global__ void kernel(const float* x, float* out, int first) {
    const int i = 4 * threadIdx.x;
    const float4 four = *reinterpret_cast<const float4*>(x + first + i);
    out[i] = four.x;
    out[i + 1] = four.y;
    out[i + 2] = four.z;
    out[i + 3] = four.w;
}
