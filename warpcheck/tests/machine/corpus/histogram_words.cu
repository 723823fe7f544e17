// grid 2, block 128, n 8192: 256 bins for each warp, of the four bytes of a word
extern "C" __global__ void histogram_words(const float* a, const int* c, float* b, int n) {
    __shared__ unsigned int bins[4 * 256];
    for (int i = threadIdx.x; i < 4 * 256; i += blockDim.x) bins[i] = 0;
    __syncthreads();
    unsigned int* mine = bins + threadIdx.x / 32 * 256;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n / 4; i += gridDim.x * blockDim.x) {
        unsigned int word = ((const unsigned int*)c)[i];
        atomicAdd(mine + (word & 255), 1);
        atomicAdd(mine + (word >> 8 & 255), 1);
        atomicAdd(mine + (word >> 16 & 255), 1);
        atomicAdd(mine + (word >> 24 & 255), 1);
    }
    __syncthreads();
    for (int bin = threadIdx.x; bin < 256; bin += blockDim.x) {
        unsigned int sum = 0;
        for (int w = 0; w < 4; w++) sum += bins[w * 256 + bin];
        atomicAdd((unsigned int*)b + bin, sum);
    }
}
