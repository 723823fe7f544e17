// Softmax of each row of x: out[i, j] = exp(x[i, j] - m) / s, where m is the maximum of row i and s the sum of
// exp(x[i, j] - m) over it.
//
// x is read once and out is written once: between the two a row stays on the chip. The arithmetic is float32.
//
// softmax keeps a row in registers, up to 32 elements per thread. softmax_long keeps it in the shared memory of a block
// or of a cluster of blocks; what does not fit there is read again.

#include <cuda_bf16.h>
#include <cuda_pipeline_primitives.h>

constexpr int WARP = 32;
constexpr float LOWEST = -3.402823466e38f;  // not -INFINITY: (-INFINITY) - LOWEST is -INFINITY, never NaN

template <typename T, int WIDTH>
struct alignas(sizeof(T) * WIDTH) Vector {
    T element[WIDTH];
};

// A set of values: its maximum, and the sum of exp(value - max).
struct alignas(8) MaxSum {
    float max = LOWEST;
    float sum = 0;
};

template <typename V>
__device__ MaxSum with(MaxSum set, V values) {
    float max = set.max;
    for (auto value : values.element) max = fmaxf(max, float(value));
    float sum = set.sum * __expf(set.max - max);
    for (auto value : values.element) sum += __expf(float(value) - max);
    return {max, sum};
}

template <typename T, int WIDTH>
__device__ Vector<T, WIDTH> probabilities(Vector<T, WIDTH> values, MaxSum row) {
    for (auto& value : values.element) value = T(__expf(float(value) - row.max) * (1 / row.sum));
    return values;
}

// The union of the sets of a warp's lanes.
__device__ MaxSum warp_union(MaxSum set) {
    float max = set.max;
    for (int step = WARP / 2; step > 0; step /= 2) max = fmaxf(max, __shfl_xor_sync(0xffffffff, max, step));
    float sum = set.sum * __expf(set.max - max);
    for (int step = WARP / 2; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffff, sum, step);
    return {max, sum};
}

// The union of the sets of a block's threads. Every warp puts its set down; after one barrier each of them unites all.
__device__ MaxSum block_union(MaxSum set) {
    __shared__ MaxSum of_warp[WARP];
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    set = warp_union(set);
    if (lane == 0) of_warp[warp] = set;
    __syncthreads();
    return warp_union(lane < blockDim.x / WARP ? of_warp[lane] : MaxSum{});
}

// The union of the sets of a cluster's blocks: each block writes its own into the shared memory of all of them.
template <int CLUSTER>
__device__ MaxSum cluster_union(MaxSum set) {
#if __CUDA_ARCH__ >= 900
    __shared__ MaxSum of_block[CLUSTER];
    const int lane = threadIdx.x % WARP, rank = blockIdx.x % CLUSTER;
    __cluster_barrier_wait();  // for every block to have begun
    if (threadIdx.x < CLUSTER) *(MaxSum*)__cluster_map_shared_rank(&of_block[rank], threadIdx.x) = set;
    __cluster_barrier_arrive();
    __cluster_barrier_wait();
    set = warp_union(lane < CLUSTER ? of_block[lane] : MaxSum{});
#endif
    return set;
}

// Four blocks of 256 per SM reach 0.98 of a copy, three 0.90, one 0.44 (H200, 16384 x 8192 bfloat16).
template <typename T, int WIDTH, int ACCESSES>
__launch_bounds__(256, 4)
__global__ void softmax(const T* x, T* out, int rows, int columns) {
    using V = Vector<T, WIDTH>;
    const long long row = (long long)blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    const V* from = reinterpret_cast<const V*>(x + row * columns);
    V* to = reinterpret_cast<V*>(out + row * columns);
    const int vectors = columns / WIDTH;

    V held[ACCESSES];
    for (int k = 0; k < ACCESSES; ++k) {
        const int v = k * blockDim.x + threadIdx.x;
        for (auto& value : held[k].element) value = T(-INFINITY);
        if (v < vectors) held[k] = from[v];
    }

    MaxSum set;
    for (int k = 0; k < ACCESSES; ++k) {
        for (auto value : held[k].element) set.max = fmaxf(set.max, float(value));
    }
    for (int k = 0; k < ACCESSES; ++k) {
        for (auto value : held[k].element) set.sum += __expf(float(value) - set.max);
    }
    set = blockDim.x == WARP ? warp_union(set) : block_union(set);

    for (int k = 0; k < ACCESSES; ++k) {
        const int v = k * blockDim.x + threadIdx.x;
        if (v < vectors) to[v] = probabilities(held[k], set);
    }
}

template <typename T, int WIDTH, int CLUSTER>
#if __CUDA_ARCH__ >= 900
__cluster_dims__(CLUSTER)
#endif
__global__ void softmax_long(const T* x, T* out, int columns, int kept) {
#if __CUDA_ARCH__ >= 900
    if (CLUSTER > 1) __cluster_barrier_arrive();
#endif
    using V = Vector<T, WIDTH>;
    extern __shared__ uint4 shared[];
    V* held = reinterpret_cast<V*>(shared);

    // This block's share of the row; its first `kept` vectors stay in shared memory.
    const long long row = blockIdx.x / CLUSTER;
    const int share = (columns / WIDTH + CLUSTER - 1) / CLUSTER, begin = blockIdx.x % CLUSTER * share;
    const int vectors = min(share, columns / WIDTH - begin);
    const V* from = reinterpret_cast<const V*>(x + row * columns) + begin;
    V* to = reinterpret_cast<V*>(out + row * columns) + begin;
    kept = min(kept, vectors);

#pragma unroll 4
    for (int v = threadIdx.x; v < kept; v += blockDim.x) {
        if constexpr (sizeof(V) == 16) {
            __pipeline_memcpy_async(held + v, from + v, sizeof(V));
        } else {
            held[v] = from[v];
        }
    }
    __pipeline_commit();
    __pipeline_wait_prior(0);  // a thread reads only what it copied itself, so no barrier is needed

    MaxSum set;
#pragma unroll 4
    for (int v = threadIdx.x; v < kept; v += blockDim.x) set = with(set, held[v]);
    for (int v = threadIdx.x + kept; v < vectors; v += blockDim.x) set = with(set, from[v]);
    set = block_union(set);
    if (CLUSTER > 1) set = cluster_union<CLUSTER>(set);

#pragma unroll 4
    for (int v = threadIdx.x; v < kept; v += blockDim.x) to[v] = probabilities(held[v], set);
    for (int v = threadIdx.x + kept; v < vectors; v += blockDim.x) to[v] = probabilities(from[v], set);
}
