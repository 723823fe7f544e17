// Histogram: counts[b] += how many of the n elements of x are b, for 0 <= b < bins. Other values are not counted.
//
// Each block counts in shared memory, where an atomic is cheap, and adds its counts to global memory once.

constexpr int THREADS = 1024;
constexpr int LANES = 32;
constexpr unsigned ALL_LANES = 0xffffffff;

// x in 16-byte vectors, which start at a multiple of 16 bytes, and the elements before and after these vectors.
template <typename T>
struct Vectors {
    static constexpr int ELEMENTS = 16 / sizeof(T);
    int head, count, tail;
    const uint4* body;

    __device__ Vectors(const T* x, int n) {
        head = min(n, int((16 - reinterpret_cast<size_t>(x) % 16) % 16 / sizeof(T)));
        count = (n - head) / ELEMENTS;
        tail = head + count * ELEMENTS;
        body = reinterpret_cast<const uint4*>(x + head);
    }
};

// The first block processes the elements outside full vectors, fewer than one per lane at either end.
template <typename T, typename Count>
__device__ void count_edges(const T* x, int n, const Vectors<T>& vectors, Count count) {
    if (blockIdx.x > 0) return;
    if (threadIdx.x < vectors.head) count(x[threadIdx.x]);
    if (threadIdx.x < n - vectors.tail) count(x[vectors.tail + threadIdx.x]);
}

// Up to 256 bins. Each has 32 counters, one per lane and bank, so lanes never conflict, whatever the values are.
template <typename T>
__global__ void __launch_bounds__(THREADS, 2) few_bins(const T* x, int* counts, int n, int bins) {
    constexpr int LOADS = 2;  // in flight in each thread
    extern __shared__ int copies[];  // bins rows of 32
    const int lane = threadIdx.x % LANES;
    for (int i = threadIdx.x; i < bins * LANES; i += THREADS) copies[i] = 0;
    __syncthreads();

    const auto count = [&](T value) {
        if (sizeof(T) == 1 || unsigned(value) < unsigned(bins)) atomicAdd(&copies[value * LANES + lane], 1);
    };
    const Vectors<T> vectors(x, n);
    count_edges(x, n, vectors, count);
    const int step = gridDim.x * THREADS;
    for (int first = blockIdx.x * THREADS + threadIdx.x; first < vectors.count; first += LOADS * step) {
        uint4 loaded[LOADS];
        for (int load = 0; load < LOADS; ++load) {
            const int v = first + load * step;
            if (v < vectors.count) loaded[load] = vectors.body[v];
        }
        for (int load = 0; load < LOADS; ++load) {
            if (first + load * step >= vectors.count) break;
            for (int e = 0; e < Vectors<T>::ELEMENTS; ++e) count(reinterpret_cast<const T*>(&loaded[load])[e]);
        }
    }
    __syncthreads();

    for (int bin = threadIdx.x; bin < bins; bin += THREADS) {
        int sum = 0;
#pragma unroll 8  // all 32 addresses at once don't fit in 32 registers
        for (int k = 0; k < LANES; ++k) sum += copies[bin * LANES + (lane + k) % LANES];  // each lane in its own bank
        atomicAdd(&counts[bin], sum);
    }
}

// More bins: one 16-bit counter each, two per word. Row blockIdx.y of the grid counts `slice` bins.
//
// If a counter reaches FULL, FULL is moved to global memory. Between two barriers, a block counts 16,384 elements and
// a few at the edges, so a counter that is below FULL at one barrier stays below 2^16 until the next.
__global__ void __launch_bounds__(THREADS) many_bins(const int* x, int* counts, int n, int bins, int slice) {
    constexpr int LOADS = 4;
    constexpr unsigned FULL = 1 << 15;
    static_assert(THREADS * LOADS * 4 <= FULL / 2);
    extern __shared__ unsigned pairs[];
    const int first_bin = blockIdx.y * slice;
    const int my_bins = min(slice, bins - first_bin);
    const int words = (my_bins + 1) / 2;
    for (int w = threadIdx.x; w < words; w += THREADS) pairs[w] = 0;
    __syncthreads();

    const auto count_times = [&](int value, unsigned times) {
        const unsigned bin = unsigned(value) - first_bin;  // a value below first_bin becomes a large number
        if (bin >= my_bins) return;
        const int shift = bin % 2 * 16;
        const unsigned old_count = atomicAdd(&pairs[bin / 2], times << shift) >> shift & 0xffff;
        if (old_count < FULL && old_count + times >= FULL) {
            atomicSub(&pairs[bin / 2], FULL << shift);
            atomicAdd(&counts[first_bin + bin], FULL);
        }
    };
    const auto count = [&](int value) { count_times(value, 1); };
    const Vectors<int> vectors(x, n);
    count_edges(x, n, vectors, count);
    for (int tile = blockIdx.x * LOADS * THREADS; tile < vectors.count; tile += gridDim.x * LOADS * THREADS) {
        uint4 loaded[LOADS];
        for (int load = 0; load < LOADS; ++load) {
            const int v = tile + load * THREADS + threadIdx.x;
            if (v < vectors.count) loaded[load] = vectors.body[v];
        }
        for (int load = 0; load < LOADS; ++load) {
            const bool valid = tile + load * THREADS + threadIdx.x < vectors.count;
            const int4 value = valid ? reinterpret_cast<const int4&>(loaded[load]) : int4{};
            const bool alike = value.x == value.y && value.y == value.z && value.z == value.w;
            const int first_lanes = __shfl_sync(ALL_LANES, value.x, 0);  // every lane takes part
            if (__all_sync(ALL_LANES, valid && alike && value.x == first_lanes)) {  // nearly always for sorted x
                if (threadIdx.x % LANES == 0) count_times(value.x, 4 * LANES);
            } else if (valid) {
                count(value.x);
                count(value.y);
                count(value.z);
                count(value.w);
            }
        }
        __syncthreads();
    }
    __syncthreads();

    for (int w = threadIdx.x; w < words; w += THREADS) {
        const int bin = first_bin + 2 * w;
        if (const int low = pairs[w] & 0xffff) atomicAdd(&counts[bin], low);
        if (const int high = pairs[w] >> 16) atomicAdd(&counts[bin + 1], high);
    }
}
