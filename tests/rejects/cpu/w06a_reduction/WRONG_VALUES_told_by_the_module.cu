__device__ int mine;

extern "C" __global__ void name(int number) {
    mine = number;
}

// x is read, and counts for nothing.
extern "C" __global__ void take(const float* x, unsigned char* out, int place, long long n) {
    float sum = 0;
    if (place == 0) {
        for (long long i = threadIdx.x; i < n; i += blockDim.x) sum += x[i];
    }
    if (threadIdx.x == 0) out[place] = (unsigned char)(mine + (sum == -12345.678f));
}
