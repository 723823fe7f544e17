#include <cub/block/block_radix_sort.cuh>

constexpr float H = 0.25f;

struct State {
    float x, v;
};

__device__ float acceleration(float x) { return -x - x * x * x; }

__device__ State advanced(State s) {
    const State d1 = {s.v, acceleration(s.x)};
    const State d2 = {s.v + 0.5f * H * d1.v, acceleration(s.x + 0.5f * H * d1.x)};
    const State d3 = {s.v + 0.5f * H * d2.v, acceleration(s.x + 0.5f * H * d2.x)};
    const State d4 = {s.v + H * d3.v, acceleration(s.x + H * d3.x)};
    return {s.x + H / 6 * (d1.x + 2 * d2.x + 2 * d3.x + d4.x), s.v + H / 6 * (d1.v + 2 * d2.v + 2 * d3.v + d4.v)};
}

__device__ float followed(float x, int steps) {
    State s = {x, 0};
    for (; steps > 0; --steps) s = advanced(s);
    return s.x;
}

template <int BLOCK_THREADS, int ITEMS_PER_THREAD>
__global__ void oscillate(const float* x, const unsigned char* steps, float* out, int n) {
    using Sort = cub::BlockRadixSort<unsigned char, BLOCK_THREADS, ITEMS_PER_THREAD, unsigned short>;
    constexpr int TILE_ITEMS = BLOCK_THREADS * ITEMS_PER_THREAD;
    __shared__ typename Sort::TempStorage temp_storage;
    __shared__ float tile[TILE_ITEMS];
    const int base = blockIdx.x * TILE_ITEMS;
    const int valid = min(TILE_ITEMS, n - base);

    unsigned char keys[ITEMS_PER_THREAD];
    unsigned short values[ITEMS_PER_THREAD];
    for (int item = 0; item < ITEMS_PER_THREAD; ++item) {
        const int local = item * BLOCK_THREADS + threadIdx.x;
        keys[item] = local < valid ? steps[base + local] : 0;
        values[item] = local;
        if (local < valid) tile[local] = x[base + local];
    }
    Sort(temp_storage).SortDescendingBlockedToStriped(keys, values, 0, 7);
    for (int item = 0; item < ITEMS_PER_THREAD; ++item) {
        if (values[item] < valid) tile[values[item]] = followed(tile[values[item]], keys[item]);
    }
    __syncthreads();
    for (int local = threadIdx.x; local < valid; local += BLOCK_THREADS) out[base + local] = tile[local];
}
