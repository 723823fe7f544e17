// Oscillators: out[i] = the position of oscillator i, steps[i] time steps after it was released at rest at x[i].
//
// A block sorts a tile of oscillators by steps in shared memory, so that a warp's lanes have the same number of steps.

constexpr float H = 0.25f;  // a time step
constexpr int MOST_STEPS = 64;

struct Oscillator {
    float x;
    float v = 0;

    __device__ static float acceleration(float x) { return -x * (1 + x * x); }

    // The classical Runge-Kutta method, with the velocities v2 to v4 replaced by their definitions: an acceleration
    // depends only on the position, so this is a Nystroem method, with 29 operations instead of 38.
    __device__ void step() {
        const float x_half = x + H / 2 * v, x_full = x + H * v;  // the position at the old velocity
        const float a1 = acceleration(x), a2 = acceleration(x_half);
        const float a3 = acceleration(x_half + H * H / 4 * a1), a4 = acceleration(x_full + H * H / 2 * a2);
        const float middle = a2 + a3;
        x = x_full + H * H / 6 * (a1 + middle);
        v += H / 6 * (a1 + a4 + 2 * middle);
    }
};

__device__ float followed(float x, int steps) {
    Oscillator oscillator{x};
    #pragma unroll 4  // the loop overhead is a large part of a step
    for (int steps_left = steps; steps_left > 0; --steps_left) oscillator.step();
    return oscillator.x;
}

constexpr int LANES = 32;
constexpr unsigned ALL_LANES = 0xffffffff;
constexpr int THREADS = 256;
constexpr int ITEMS = 8;  // oscillators for each thread
constexpr int TILE = THREADS * ITEMS;
constexpr int BINS = MOST_STEPS;  // oscillators with 0 steps and with 1 step share a bin

__device__ int bin_of(int steps) { return max(steps, 1) - 1; }

// Replace counts with their exclusive prefix sums. One warp runs this.
__device__ void exclusive_scan(int* counts) {
    static_assert(BINS == 2 * LANES);
    const int lane = threadIdx.x % LANES;
    const int2 pair = reinterpret_cast<int2*>(counts)[lane];
    int sum = pair.x + pair.y;
    for (int distance = 1; distance < LANES; distance *= 2) {
        const int below = __shfl_up_sync(ALL_LANES, sum, distance);
        if (lane >= distance) sum += below;
    }
    reinterpret_cast<int2*>(counts)[lane] = {sum - pair.x - pair.y, sum - pair.y};
}

__global__ void __launch_bounds__(THREADS) oscillate(const float* x, const unsigned char* steps, float* out, int n) {
    __shared__ float positions[TILE];
    __shared__ unsigned order[TILE];  // indices in the tile; the low 8 bits hold the steps
    __shared__ __align__(8) int first[BINS];  // the start of each bin in the sorted order
    const int tile = blockIdx.x * TILE;
    const int count = min(TILE, n - tile);
    if (threadIdx.x < BINS) first[threadIdx.x] = 0;

    float position[ITEMS];
    int my_steps[ITEMS];
    bool alike = true;  // whether the warp's lanes have the same number of steps in each row
    for (int e = 0; e < ITEMS; ++e) {
        const int idx = e * THREADS + threadIdx.x;
        position[e] = idx < count ? x[tile + idx] : 0;
        my_steps[e] = idx < count ? steps[tile + idx] : 0;
        alike &= my_steps[e] == __shfl_sync(ALL_LANES, my_steps[e], 0);
    }
    if (__syncthreads_and(alike)) {  // already sorted, or all equal: nothing to gain
        for (int e = 0; e < ITEMS; ++e) {
            const int idx = e * THREADS + threadIdx.x;
            if (idx < count) out[tile + idx] = followed(position[e], my_steps[e]);
        }
        return;
    }

    int rank[ITEMS];
    for (int e = 0; e < ITEMS; ++e) {
        const int idx = e * THREADS + threadIdx.x;
        if (idx >= count) break;
        positions[idx] = position[e];
        rank[e] = atomicAdd(&first[bin_of(my_steps[e])], 1);
    }
    __syncthreads();
    if (threadIdx.x < LANES) exclusive_scan(first);
    __syncthreads();
    for (int e = 0; e < ITEMS; ++e) {
        const int idx = e * THREADS + threadIdx.x;
        if (idx < count) order[first[bin_of(my_steps[e])] + rank[e]] = idx << 8 | my_steps[e];
    }
    __syncthreads();

    for (int k = threadIdx.x; k < count; k += THREADS) {
        const int idx = order[k] >> 8;
        positions[idx] = followed(positions[idx], order[k] & 0xff);
    }
    __syncthreads();
    for (int idx = threadIdx.x; idx < count; idx += THREADS) out[tile + idx] = positions[idx];
}
