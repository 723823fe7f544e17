// Scan: out[i] = x[0] + … + x[i] in one pass over x, by decoupled look-back.

// The state of a tile, in the upper half of its status word. The lower half is the sum.
constexpr unsigned EMPTY = 0, SUM = 1, PREFIX = 2;

// State and sum share one aligned word of 8 bytes, which is stored as a whole, so no fence is needed between them.
__device__ void publish(unsigned long long* status, unsigned state, int sum) {
    const unsigned long long word = (unsigned long long)state << 32 | unsigned(sum);
    asm volatile("st.relaxed.gpu.u64 [%0], %1;" ::"l"(status), "l"(word) : "memory");
}

__device__ unsigned long long load_status(const unsigned long long* status) {
    unsigned long long word;
    asm volatile("ld.relaxed.gpu.u64 %0, [%1];" : "=l"(word) : "l"(status) : "memory");
    return word;
}

__global__ void scan(const int* x, int* out, unsigned long long* status, int* next_tile, int n) {  // TODO
    // TODO: take a tile number, scan the tile, publish its sum, look back for the sum before it, publish the prefix
}
