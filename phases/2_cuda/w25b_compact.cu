// Compact: the positive elements of x, in order, in one pass over x.

// The state of a tile, in the upper half of its status word. The lower half is the sum.
constexpr unsigned EMPTY = 0, SUM = 1, PREFIX = 2;

// State and sum travel in one aligned word of 8 bytes, which arrives as a whole. So no fence is needed between them.
__device__ void publish(unsigned long long* status, unsigned state, int sum) {
    const unsigned long long word = (unsigned long long)state << 32 | unsigned(sum);
    asm volatile("st.relaxed.gpu.u64 [%0], %1;" ::"l"(status), "l"(word) : "memory");
}

__device__ unsigned long long load_status(const unsigned long long* status) {
    unsigned long long word;
    asm volatile("ld.relaxed.gpu.u64 %0, [%1];" : "=l"(word) : "l"(status) : "memory");
    return word;
}

__global__ void compact(const float* x, float* out, int* count, unsigned long long* status, int* next_tile, int n) {
    // TODO: take a tile number, count what the tile keeps, find how many earlier tiles keep, write the elements
}
