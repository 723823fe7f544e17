// Launch: <<<2, 64>>> int x[128], int taken[1], int out[256]
__global__ void kernel(const int* x, int* taken, int* out) {
    const int value = x[blockIdx.x * 64 + threadIdx.x], lane = threadIdx.x % 32;
    const unsigned kept = __ballot_sync(0xffffffff, value % 3 == 0);
    int begin = 0;
    if (lane == 0)
        begin = (*taken += __popc(kept)) - __popc(kept);
    begin = __shfl_sync(0xffffffff, begin, 0);
    if (value % 3 == 0)
        out[begin + __popc(kept & ((1u << lane) - 1))] = value;
}
