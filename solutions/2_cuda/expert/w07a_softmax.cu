// Softmax of each row of x: out[i, j] = exp(x[i, j] - m) / s, where m is the maximum of row i and s is the sum of
// exp(x[i, j] - m) over the row.
//
// x is read once and out is written once. In between, a row stays on the chip. The arithmetic is float32.
//
// softmax keeps a row in the registers of some lanes of a warp, of a warp, or of a block. softmax_long keeps a row in
// the registers and shared memory of a block or a cluster of blocks; elements that do not fit there are read again.

#include <cuda_bf16.h>
#include <cuda_pipeline_primitives.h>

constexpr int WARP = 32;
constexpr float LOWEST = -3.402823466e38f;  // not -INFINITY: (-INFINITY) - LOWEST is -INFINITY, never NaN

template <typename T, int WIDTH>
struct alignas(sizeof(T) * WIDTH) Vector {
    T element[WIDTH];
};

// The positions of a row's vectors. A row may have `head` elements before its first vector and up to WIDTH - 1 after
// its last vector; each of these elements is the `edge` of one thread.
template <typename T, int WIDTH, bool RAGGED>
struct Row {
    int head = 0, vectors, edge;
    bool has_edge = false;

    __device__ Row(const T* x, int columns) {
        if (RAGGED) {
            const int misalignment = reinterpret_cast<unsigned long long>(x) / sizeof(T) % WIDTH;
            head = min(columns, (WIDTH - misalignment) % WIDTH);
        }
        vectors = (columns - head) / WIDTH;
        edge = threadIdx.x < head ? threadIdx.x : threadIdx.x + vectors * WIDTH;
        if (RAGGED) has_edge = edge < columns;
    }
};

// The state of a set of values: the maximum, and the sum of exp(value - max).
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
    for (T& value : values.element) value = T(__expf(float(value) - row.max) * (1 / row.sum));
    return values;
}

// Combine the sets of LANES neighboring lanes. LANES is a power of two.
template <int LANES>
__device__ MaxSum warp_union(MaxSum set) {
    float max = set.max;
    for (int step = LANES / 2; step > 0; step /= 2) max = fmaxf(max, __shfl_xor_sync(0xffffffff, max, step));
    float sum = set.sum * __expf(set.max - max);
    for (int step = LANES / 2; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffff, sum, step);
    return {max, sum};
}

// Combine the sets of a block's threads. Each warp stores its set; after one barrier, each warp combines all sets.
__device__ MaxSum block_union(MaxSum set) {
    __shared__ MaxSum warp_sets[WARP];
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    set = warp_union<WARP>(set);
    if (lane == 0) warp_sets[warp] = set;
    __syncthreads();
    return warp_union<WARP>(lane < blockDim.x / WARP ? warp_sets[lane] : MaxSum{});
}

// Combine the sets of a cluster's blocks. Each block writes its set to the shared memory of all blocks.
template <int CLUSTER>
__device__ MaxSum cluster_union(MaxSum set) {
#if __CUDA_ARCH__ >= 900
    __shared__ MaxSum block_sets[CLUSTER];
    const int lane = threadIdx.x % WARP, rank = blockIdx.x % CLUSTER;
    __cluster_barrier_wait();  // until every block has started
    if (threadIdx.x < CLUSTER) *(MaxSum*)__cluster_map_shared_rank(&block_sets[rank], threadIdx.x) = set;
    __cluster_barrier_arrive();
    __cluster_barrier_wait();
    set = warp_union<WARP>(lane < CLUSTER ? block_sets[lane] : MaxSum{});
#endif
    return set;
}

// blockDim.x threads hold a row, with HELD vectors each; LANES is the number of these threads in one warp.
template <typename T, int WIDTH, int LANES, int HELD, bool RAGGED>
__launch_bounds__(256, 4)  // four blocks per SM: while one reduces, the others load and store
__global__ void softmax(const T* x, T* out, int rows, int columns) {
    using V = Vector<T, WIDTH>;
    const long long row_idx = (long long)blockIdx.x * blockDim.y + threadIdx.y;
    x += row_idx * columns;
    out += row_idx * columns;
    if (row_idx >= rows) columns = 0;  // instead of a return, because all lanes of a warp take part in shuffles
    const Row<T, WIDTH, RAGGED> row(x, columns);
    const V* src = reinterpret_cast<const V*>(x + row.head);
    V* dst = reinterpret_cast<V*>(out + row.head);

    V x_reg[HELD];
    Vector<T, 1> edge = {T(-INFINITY)};
#pragma unroll
    for (int k = 0; k < HELD; ++k) {
        const int v = k * blockDim.x + threadIdx.x;
        for (T& value : x_reg[k].element) value = T(-INFINITY);
        if (v < row.vectors) x_reg[k] = src[v];
    }
    if (row.has_edge) edge = {x[row.edge]};

    MaxSum set;
    if (row.has_edge) set = {fmaxf(LOWEST, float(edge.element[0])), 0};
    for (const V& vector : x_reg) {
        for (T value : vector.element) set.max = fmaxf(set.max, float(value));
    }
    if (row.has_edge) set.sum = __expf(float(edge.element[0]) - set.max);
    for (const V& vector : x_reg) {
        for (T value : vector.element) set.sum += __expf(float(value) - set.max);
    }
    set = blockDim.x <= WARP ? warp_union<LANES>(set) : block_union(set);

    if (row.has_edge) out[row.edge] = probabilities(edge, set).element[0];
#pragma unroll
    for (int k = 0; k < HELD; ++k) {
        const int v = k * blockDim.x + threadIdx.x;
        if (v < row.vectors) dst[v] = probabilities(x_reg[k], set);
    }
}

// BLOCKS of 512 threads per SM, in different phases: while one reduces, the others load and store. A thread holds HELD
// vectors, possibly none, in registers. The rest of the row is in shared memory, where a block keeps `cached` vectors.
template <typename T, int WIDTH, int HELD, int BLOCKS, int CLUSTER, bool RAGGED>
#if __CUDA_ARCH__ >= 900
__cluster_dims__(CLUSTER)
#endif
__launch_bounds__(512, BLOCKS)
__global__ void softmax_long(const T* x, T* out, int columns, int cached) {
#if __CUDA_ARCH__ >= 900
    if (CLUSTER > 1) __cluster_barrier_arrive();
#endif
    using V = Vector<T, WIDTH>;
    extern __shared__ uint4 shared[];
    V* x_smem = reinterpret_cast<V*>(shared);

    // This block's share of the row: vectors in registers, vectors in shared memory, and the rest.
    x += blockIdx.x / CLUSTER * (long long)columns;
    out += blockIdx.x / CLUSTER * (long long)columns;
    const Row<T, WIDTH, RAGGED> row(x, columns);
    const bool has_edge = row.has_edge && blockIdx.x % CLUSTER == 0;
    const int per_block = (row.vectors + CLUSTER - 1) / CLUSTER, begin = blockIdx.x % CLUSTER * per_block;
    const int vectors = min(per_block, row.vectors - begin), first_cached = HELD * blockDim.x;
    const int first_left = min(first_cached + cached, vectors);
    const V* src = reinterpret_cast<const V*>(x + row.head) + begin;
    V* dst = reinterpret_cast<V*>(out + row.head) + begin;

#pragma unroll 4
    for (int v = first_cached + threadIdx.x; v < first_left; v += blockDim.x) {
        if constexpr (sizeof(V) == 16) {
            __pipeline_memcpy_async(x_smem + v - first_cached, src + v, sizeof(V));
        } else {
            x_smem[v - first_cached] = src[v];
        }
    }
    __pipeline_commit();
    V x_reg[HELD + 1];  // an array can't have 0 elements
    Vector<T, 1> edge;
#pragma unroll
    for (int k = 0; k < HELD; ++k) {
        const int v = k * blockDim.x + threadIdx.x;
        for (T& value : x_reg[k].element) value = T(-INFINITY);
        if (v < vectors) x_reg[k] = src[v];
    }
    if (has_edge) edge = {x[row.edge]};

    MaxSum set;
    if (has_edge) set = with(set, edge);
#pragma unroll
    for (int k = 0; k < HELD; ++k) set = with(set, x_reg[k]);
    __pipeline_wait_prior(0);  // a thread reads only what it copied itself, so no barrier is needed
#pragma unroll 4
    for (int v = first_cached + threadIdx.x; v < first_left; v += blockDim.x) set = with(set, x_smem[v - first_cached]);
    for (int v = first_cached + cached + threadIdx.x; v < vectors; v += blockDim.x) set = with(set, src[v]);
    set = block_union(set);
    if (CLUSTER > 1) set = cluster_union<CLUSTER>(set);

    if (has_edge) out[row.edge] = probabilities(edge, set).element[0];
#pragma unroll
    for (int k = 0; k < HELD; ++k) {
        const int v = k * blockDim.x + threadIdx.x;
        if (v < vectors) dst[v] = probabilities(x_reg[k], set);
    }
#pragma unroll 4
    for (int v = first_cached + threadIdx.x; v < first_left; v += blockDim.x) {
        dst[v] = probabilities(x_smem[v - first_cached], set);
    }
    for (int v = first_cached + cached + threadIdx.x; v < vectors; v += blockDim.x) dst[v] = probabilities(src[v], set);
}
