// grid 4, block 64, n 256: a vector in shared memory, a row of each thread
extern "C" __global__ void matvec_shared(const float* a, const int* c, float* b, int n) {
    __shared__ float x[256];
    for (int k = threadIdx.x; k < 256; k += 64) x[k] = a[k];
    __syncthreads();
    int row = blockIdx.x * 64 + threadIdx.x;
    float sum = 0;
    for (int k = 0; k < 256; k++) sum += a[256 + k * 256 + row] * x[k];
    b[row] = sum;
}
