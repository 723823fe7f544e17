// Oscillators: out[i] = the position of oscillator i, steps[i] time steps after it was released at rest at x[i].
//
// A block sorts a tile of oscillators by their steps in shared memory, so that a warp's lanes get the same number each.

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

__device__ float followed(float x, int steps) {
    Oscillator one{x};
    for (int left = steps; left > 0; --left) one.step();
    return one.x;
}

constexpr int THREADS = 256;
constexpr int EACH = 8;  // oscillators per thread: so many that most warps get oscillators of one number of steps
constexpr int TILE = EACH * THREADS;
constexpr int BINS = MOST_STEPS + 1;

__global__ void __launch_bounds__(THREADS) oscillate(const float* x, const unsigned char* steps, float* out, int n) {
    __shared__ float positions[TILE];
    __shared__ unsigned order[TILE];  // indices in the tile, sorted by steps, above 8 bits for the steps
    __shared__ int bin_start[BINS];
    const int first = blockIdx.x * TILE, count = min(TILE, n - first);
    const int tid = threadIdx.x;

    if (tid < BINS) bin_start[tid] = 0;
    __syncthreads();
    int rank[EACH];  // the position of an oscillator in its bin
    for (int e = 0; e < EACH; ++e) {  // a loop that the compiler unrolls, so that rank is in registers
        const int i = e * THREADS + tid;
        if (i < count) positions[i] = x[first + i];
        if (i < count) rank[e] = atomicAdd(&bin_start[steps[first + i]], 1);
    }
    __syncthreads();  // bin_start holds the sizes of the bins

    if (tid == 0) {  // exclusive prefix sum
        int sum = 0;
        for (int bin = 0; bin < BINS; ++bin) {
            const int size = bin_start[bin];
            bin_start[bin] = sum;
            sum += size;
        }
    }
    __syncthreads();
    for (int e = 0; e < EACH; ++e) {
        const int i = e * THREADS + tid;
        if (i < count) order[bin_start[steps[first + i]] + rank[e]] = i << 8 | steps[first + i];
    }
    __syncthreads();

    for (int k = tid; k < count; k += THREADS) {  // neighboring lanes have neighbors in the sorted order
        const int i = order[k] >> 8;
        positions[i] = followed(positions[i], order[k] & 0xff);
    }
    __syncthreads();
    for (int i = tid; i < count; i += THREADS) out[first + i] = positions[i];  // in the order of x, coalesced
}
