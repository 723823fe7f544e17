__global__ void touch(int* out) {
    if (blockIdx.x == 0 && threadIdx.x == 0) out[0] = 0;
}
