// Launch: <<<2, 128>>> int x[256], int count[2048]
__global__ void kernel(const int* x, int* count) {
    atomicAdd(&count[x[blockIdx.x * 128 + threadIdx.x] % 32], 1);
}
