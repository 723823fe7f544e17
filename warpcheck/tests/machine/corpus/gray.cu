// grid 4, block 256, n 1024: three bytes of a pixel to one
extern "C" __global__ void gray(const float* a, const int* c, float* b, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    const unsigned char* rgb = (const unsigned char*)c;
    if (i < n) ((unsigned char*)b)[i] = (unsigned char)(0.3f * rgb[3 * i] + 0.6f * rgb[3 * i + 1] + 0.1f * rgb[3 * i + 2]);
}
