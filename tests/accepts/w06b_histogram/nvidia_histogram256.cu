typedef unsigned int uint;
typedef unsigned char uchar;

#define HISTOGRAM256_BIN_COUNT 256
#define WARP_COUNT 6
#define THREADBLOCK_SIZE (WARP_COUNT * 32)

inline __device__ void addByte(uint *s_WarpHist, uint data) { atomicAdd(s_WarpHist + data, 1); }

inline __device__ void addWord(uint *s_WarpHist, uint data) {
    addByte(s_WarpHist, (data >> 0) & 0xFFU);
    addByte(s_WarpHist, (data >> 8) & 0xFFU);
    addByte(s_WarpHist, (data >> 16) & 0xFFU);
    addByte(s_WarpHist, (data >> 24) & 0xFFU);
}

__global__ void histogram256Kernel(uint *d_PartialHistograms, const uchar *d_Data, uint byteCount) {
    __shared__ uint s_Hist[WARP_COUNT * HISTOGRAM256_BIN_COUNT];
    uint *s_WarpHist = s_Hist + (threadIdx.x >> 5) * HISTOGRAM256_BIN_COUNT;
    for (uint i = 0; i < HISTOGRAM256_BIN_COUNT / 32; i++) s_Hist[threadIdx.x + i * THREADBLOCK_SIZE] = 0;
    __syncthreads();

    const uint skipped = min(byteCount, (uint)(-(size_t)d_Data & 3));
    const uint *words = (const uint *)(d_Data + skipped);
    const uint dataCount = (byteCount - skipped) / 4;
    for (uint pos = blockIdx.x * blockDim.x + threadIdx.x; pos < dataCount; pos += blockDim.x * gridDim.x) {
        addWord(s_WarpHist, words[pos]);
    }
    if (blockIdx.x == 0) {
        if (threadIdx.x < skipped) addByte(s_WarpHist, d_Data[threadIdx.x]);
        const uint done = skipped + 4 * dataCount;
        if (threadIdx.x < byteCount - done) addByte(s_WarpHist, d_Data[done + threadIdx.x]);
    }

    __syncthreads();
    for (uint bin = threadIdx.x; bin < HISTOGRAM256_BIN_COUNT; bin += THREADBLOCK_SIZE) {
        uint sum = 0;
        for (uint i = 0; i < WARP_COUNT; i++) sum += s_Hist[bin + i * HISTOGRAM256_BIN_COUNT];
        d_PartialHistograms[blockIdx.x * HISTOGRAM256_BIN_COUNT + bin] = sum;
    }
}

__global__ void histogramWideKernel(uint *d_PartialHistograms, const int *d_Data, uint dataCount, uint binCount,
                                    uint first, uint slice) {
    extern __shared__ uint s_Wide[];
    for (uint i = threadIdx.x; i < slice; i += blockDim.x) s_Wide[i] = 0;
    __syncthreads();
    for (uint pos = blockIdx.x * blockDim.x + threadIdx.x; pos < dataCount; pos += blockDim.x * gridDim.x) {
        const uint bin = (uint)d_Data[pos] - first;
        if (bin < slice) atomicAdd(&s_Wide[bin], 1);
    }
    __syncthreads();
    for (uint i = threadIdx.x; i < slice; i += blockDim.x) {
        d_PartialHistograms[blockIdx.x * binCount + first + i] = s_Wide[i];
    }
}

__global__ void mergeHistogramKernel(int *d_Histogram, const uint *d_PartialHistograms, uint histogramCount,
                                     uint binCount) {
    const uint bin = blockIdx.x * blockDim.x + threadIdx.x;
    if (bin >= binCount) return;
    uint sum = 0;
    for (uint i = 0; i < histogramCount; i++) sum += d_PartialHistograms[i * binCount + bin];
    d_Histogram[bin] = sum;
}
