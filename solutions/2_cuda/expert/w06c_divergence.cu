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
    // depends on the position alone, so the method is one of Nystroem's, with 29 operations and not 38.
    __device__ void step() {
        const float half = x + H / 2 * v, full = x + H * v;  // the position at the old velocity
        const float a1 = acceleration(x), a2 = acceleration(half);
        const float a3 = acceleration(half + H * H / 4 * a1), a4 = acceleration(full + H * H / 2 * a2);
        const float middle = a2 + a3;
        x = full + H * H / 6 * (a1 + middle);
        v += H / 6 * (a1 + a4 + 2 * middle);
    }
};

__device__ float followed(float x, int steps) {
    Oscillator one{x};
    #pragma unroll 4  // the loop overhead is a large part of a step
    for (int left = steps; left > 0; --left) one.step();
    return one.x;
}

constexpr int LANES = 32;
constexpr unsigned ALL_LANES = 0xffffffff;
constexpr int THREADS = 256;
constexpr int EACH = 8;  // oscillators for each thread
constexpr int TILE = THREADS * EACH;
constexpr int BINS = MOST_STEPS;  // oscillators with no step share a bin with those of one step

__device__ int bin_of(int steps) { return max(steps, 1) - 1; }

// Replace counts with their exclusive prefix sums. One warp runs this.
__device__ void exclusive_scan(int* counts) {
    static_assert(BINS == 2 * LANES);
    const int lane = threadIdx.x % LANES;
    const int2 mine = reinterpret_cast<int2*>(counts)[lane];
    int sum = mine.x + mine.y;
    for (int distance = 1; distance < LANES; distance *= 2) {
        const int before = __shfl_up_sync(ALL_LANES, sum, distance);
        if (lane >= distance) sum += before;
    }
    reinterpret_cast<int2*>(counts)[lane] = {sum - mine.x - mine.y, sum - mine.y};
}

__global__ void __launch_bounds__(THREADS) oscillate(const float* x, const unsigned char* steps, float* out, int n) {
    __shared__ float positions[TILE];
    __shared__ unsigned order[TILE];  // indices in the tile; the low 8 bits hold the steps
    __shared__ __align__(8) int first[BINS];  // the start of each bin in the sorted order
    const int tile = blockIdx.x * TILE;
    const int count = min(TILE, n - tile);
    if (threadIdx.x < BINS) first[threadIdx.x] = 0;

    float position[EACH];
    int mine[EACH];
    bool alike = true;  // whether the warp's lanes have the same number of steps in each row
    for (int e = 0; e < EACH; ++e) {
        const int place = e * THREADS + threadIdx.x;
        position[e] = place < count ? x[tile + place] : 0;
        mine[e] = place < count ? steps[tile + place] : 0;
        alike &= mine[e] == __shfl_sync(ALL_LANES, mine[e], 0);
    }
    if (__syncthreads_and(alike)) {  // already sorted, or all equal: nothing to gain
        for (int e = 0; e < EACH; ++e) {
            const int place = e * THREADS + threadIdx.x;
            if (place < count) out[tile + place] = followed(position[e], mine[e]);
        }
        return;
    }

    int rank[EACH];
    for (int e = 0; e < EACH; ++e) {
        const int place = e * THREADS + threadIdx.x;
        if (place >= count) break;
        positions[place] = position[e];
        rank[e] = atomicAdd(&first[bin_of(mine[e])], 1);
    }
    __syncthreads();
    if (threadIdx.x < LANES) exclusive_scan(first);
    __syncthreads();
    for (int e = 0; e < EACH; ++e) {
        const int place = e * THREADS + threadIdx.x;
        if (place < count) order[first[bin_of(mine[e])] + rank[e]] = place << 8 | mine[e];
    }
    __syncthreads();

    for (int k = threadIdx.x; k < count; k += THREADS) {
        const int place = order[k] >> 8;
        positions[place] = followed(positions[place], order[k] & 0xff);
    }
    __syncthreads();
    for (int place = threadIdx.x; place < count; place += THREADS) out[tile + place] = positions[place];
}
