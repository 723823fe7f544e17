// One pass of a radix sort: out has the keys in the order of one digit, and keys with equal digits keep their order.

__device__ unsigned load_status(const unsigned* status) {
    unsigned word;
    asm volatile("ld.relaxed.gpu.u32 %0, [%1];" : "=r"(word) : "l"(status) : "memory");
    return word;
}

__global__ void  // TODO: its launch bounds, if you set them
radix_pass(const int* keys, const int* first, int* out, unsigned* status, int* next_tile, int n, int shift) {
    // TODO: take a tile number, rank the keys of each warp, publish the counts of the tile, look back for each digit,
    // TODO: sort the tile in shared memory, write it
}
