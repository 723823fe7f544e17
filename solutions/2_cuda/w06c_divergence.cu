// Oscillators: out[i] = the position of oscillator i, steps[i] time steps after it was released at rest at x[i].
//
// A block sorts a tile of oscillators by steps in shared memory, so that a warp's lanes have the same number of steps.
// It is a counting sort: count the oscillators with each number of steps (a bin), compute the start of each bin by a
// prefix sum, and put an oscillator at its bin's start plus its rank. The name ITEMS_PER_THREAD comes from CUB.

constexpr float H = 0.25f;  // a time step
constexpr int MOST_STEPS = 64;

struct Oscillator {
    float x;
    float v = 0;

    __device__ static float acceleration(float x) { return -x * (1 + x * x); }

    // The classical Runge-Kutta method.
    __device__ void step() {
        const float v1 = v, a1 = acceleration(x);
        const float v2 = v + H / 2 * a1, a2 = acceleration(x + H / 2 * v1);
        const float v3 = v + H / 2 * a2, a3 = acceleration(x + H / 2 * v2);
        const float v4 = v + H * a3, a4 = acceleration(x + H * v3);
        x += H / 6 * (v1 + 2 * v2 + 2 * v3 + v4);
        v += H / 6 * (a1 + 2 * a2 + 2 * a3 + a4);
    }
};

__device__ float integrate(float x, int steps) {
    Oscillator oscillator{x};
    for (int step = 0; step < steps; ++step) oscillator.step();
    return oscillator.x;
}

constexpr int THREADS = 256;
constexpr int ITEMS_PER_THREAD = 8;  // large enough that the 32 oscillators of a warp come from few of the 65 bins
constexpr int TILE = ITEMS_PER_THREAD * THREADS;
constexpr int BINS = MOST_STEPS + 1;

// __launch_bounds__ tells the compiler how many threads a block has (week 7).
__global__ void __launch_bounds__(THREADS) oscillate(const float* x, const unsigned char* steps, float* out, int n) {
    __shared__ float positions[TILE];
    __shared__ unsigned order[TILE];  // indices in the tile, sorted by steps; the low 8 bits hold the steps
    __shared__ int bin_start[BINS];  // first the size of each bin, then its start in the sorted order
    const int first = blockIdx.x * TILE, count = min(TILE, n - first);
    const int tid = threadIdx.x;

    if (tid < BINS) bin_start[tid] = 0;
    __syncthreads();
    int rank[ITEMS_PER_THREAD];  // the position of an oscillator in its bin
    for (int item = 0; item < ITEMS_PER_THREAD; ++item) {  // unrolled by the compiler, so that rank is in registers
        const int i = item * THREADS + tid;
        if (i < count) positions[i] = x[first + i];
        if (i < count) rank[item] = atomicAdd(&bin_start[steps[first + i]], 1);  // returns the previous count
    }
    __syncthreads();  // bin_start holds the sizes of the bins

    if (tid == 0) {  // exclusive prefix sum, by one thread because there are only 65 bins
        int sum = 0;
        for (int bin = 0; bin < BINS; ++bin) {
            const int size = bin_start[bin];
            bin_start[bin] = sum;
            sum += size;
        }
    }
    __syncthreads();
    for (int item = 0; item < ITEMS_PER_THREAD; ++item) {
        const int i = item * THREADS + tid;
        if (i < count) order[bin_start[steps[first + i]] + rank[item]] = i << 8 | steps[first + i];
    }
    __syncthreads();  // order is complete

    for (int k = tid; k < count; k += THREADS) {  // neighboring lanes have neighbors in the sorted order
        const int i = order[k] >> 8;
        positions[i] = integrate(positions[i], order[k] & 0xff);
    }
    __syncthreads();  // a thread stores positions that other threads computed
    for (int i = tid; i < count; i += THREADS) out[first + i] = positions[i];  // in the order of x, coalesced
}
