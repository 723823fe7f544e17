// grid 2, block 512, n 512: a bitonic sort of 512 in shared memory, the lower thread of each pair compares
extern "C" __global__ void bitonic_partner(const float* a, const int* c, float* b, int n) {
    __shared__ float s[512];
    int tid = threadIdx.x;
    s[tid] = a[blockIdx.x * blockDim.x + tid];
    __syncthreads();
    for (int k = 2; k <= 512; k *= 2) {
        for (int j = k / 2; j > 0; j /= 2) {
            int other = tid ^ j;
            if (other > tid) {
                if ((tid & k) == 0) {
                    if (s[tid] > s[other]) {
                        float t = s[tid];
                        s[tid] = s[other];
                        s[other] = t;
                    }
                } else {
                    if (s[tid] < s[other]) {
                        float t = s[tid];
                        s[tid] = s[other];
                        s[other] = t;
                    }
                }
            }
            __syncthreads();
        }
    }
    b[blockIdx.x * blockDim.x + tid] = s[tid];
}
