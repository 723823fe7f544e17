// out[i, :] = exp(x[i, :] - max) / sum: one read, one write.
//
// softmax: a row stays in registers, ACCESSES vectors of WIDTH elements a thread, over one block or a cluster of
// blocks. softmax_streaming: rows too long for that are read twice.

#include <cuda_bf16.h>

constexpr int WARP = 32;
constexpr float LOWEST = -3.402823466e38f;  // not -infinity: -infinity - LOWEST is -infinity, not NaN

template <typename T, int WIDTH>
struct alignas(sizeof(T) * WIDTH) Vector {
    T element[WIDTH];
};

// A set of values: its maximum, and the sum of exp(value - maximum).
struct MaxSum {
    float max = LOWEST;
    float sum = 0;
};

__device__ float warp_max(float x) {
    for (int step = WARP / 2; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffff, x, step));
    return x;
}

__device__ float warp_sum(float x) {
    for (int step = WARP / 2; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffff, x, step);
    return x;
}

// The union of 32 sets, one a lane.
__device__ MaxSum warp_union(MaxSum set) {
    const float max = warp_max(set.max);
    return {max, warp_sum(set.sum * __expf(set.max - max))};
}

__device__ MaxSum block_union(MaxSum set) {
    if (blockDim.x == WARP) return warp_union(set);
    __shared__ MaxSum of_warp[WARP];
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    set = warp_union(set);
    if (lane == 0) of_warp[warp] = set;
    __syncthreads();
    return warp_union(lane < blockDim.x / WARP ? of_warp[lane] : MaxSum{});
}

template <int CLUSTER>
__device__ MaxSum row_union(MaxSum set) {
    set = block_union(set);
#if __CUDA_ARCH__ >= 900
    if constexpr (CLUSTER > 1) {
        __shared__ MaxSum of_block[CLUSTER];
        const int lane = threadIdx.x % WARP, rank = blockIdx.x % CLUSTER;
        __cluster_barrier_wait();  // every block of the cluster has begun
        if (threadIdx.x < CLUSTER) {
            *static_cast<MaxSum*>(__cluster_map_shared_rank(&of_block[rank], threadIdx.x)) = set;
        }
        __cluster_barrier_arrive();
        __cluster_barrier_wait();
        set = warp_union(lane < CLUSTER ? of_block[lane] : MaxSum{});
    }
#endif
    return set;
}

template <typename T, int WIDTH, int ACCESSES, int CLUSTER>
__global__ void
#if __CUDA_ARCH__ >= 900
    __cluster_dims__(CLUSTER)
#endif
        softmax(const T* __restrict__ x, T* __restrict__ out, int rows, int columns) {
    using V = Vector<T, WIDTH>;
    const long long row = blockIdx.x / CLUSTER * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    const int thread = blockIdx.x % CLUSTER * blockDim.x + threadIdx.x;
    const int stride = CLUSTER * blockDim.x * WIDTH;
    x += row * columns;
    out += row * columns;
#if __CUDA_ARCH__ >= 900
    if constexpr (CLUSTER > 1) __cluster_barrier_arrive();
#endif

    V loaded[ACCESSES];
    for (int k = 0; k < ACCESSES; ++k) {
        const int column = k * stride + thread * WIDTH;
        if (column < columns) loaded[k] = *reinterpret_cast<const V*>(x + column);
    }

    float value[ACCESSES][WIDTH];
    MaxSum set;
    for (int k = 0; k < ACCESSES; ++k) {
        const bool inside = k * stride + thread * WIDTH < columns;
        for (int e = 0; e < WIDTH; ++e) {
            value[k][e] = inside ? float(loaded[k].element[e]) : -INFINITY;
            set.max = fmaxf(set.max, value[k][e]);
        }
    }
    for (int k = 0; k < ACCESSES; ++k) {
        for (int e = 0; e < WIDTH; ++e) {
            value[k][e] = __expf(value[k][e] - set.max);
            set.sum += value[k][e];
        }
    }

    const MaxSum whole = row_union<CLUSTER>(set);
    const float scale = __expf(set.max - whole.max) / whole.sum;
    for (int k = 0; k < ACCESSES; ++k) {
        const int column = k * stride + thread * WIDTH;
        V result;
        for (int e = 0; e < WIDTH; ++e) result.element[e] = T(value[k][e] * scale);
        if (column < columns) *reinterpret_cast<V*>(out + column) = result;
    }
}

template <typename T, int WIDTH>
__global__ void softmax_streaming(const T* __restrict__ x, T* __restrict__ out, int columns) {
    using V = Vector<T, WIDTH>;
    x += blockIdx.x * (long long)columns;
    out += blockIdx.x * (long long)columns;

    MaxSum set;
    for (int column = threadIdx.x * WIDTH; column < columns; column += blockDim.x * WIDTH) {
        const V loaded = *reinterpret_cast<const V*>(x + column);
        float max = set.max;
        for (int e = 0; e < WIDTH; ++e) max = fmaxf(max, float(loaded.element[e]));
        set.sum *= __expf(set.max - max);
        for (int e = 0; e < WIDTH; ++e) set.sum += __expf(float(loaded.element[e]) - max);
        set.max = max;
    }

    const MaxSum whole = block_union(set);
    for (int column = threadIdx.x * WIDTH; column < columns; column += blockDim.x * WIDTH) {
        V vector = *reinterpret_cast<const V*>(x + column);
        for (int e = 0; e < WIDTH; ++e) {
            vector.element[e] = T(__expf(float(vector.element[e]) - whole.max) / whole.sum);
        }
        *reinterpret_cast<V*>(out + column) = vector;
    }
}
