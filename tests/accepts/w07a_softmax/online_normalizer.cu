#include <cub/block/block_reduce.cuh>
#include <cuda_bf16.h>

using bfloat16_t = __nv_bfloat16;

struct __align__(8) MD
{
    float m;
    float d;
};

__device__ __forceinline__ MD reduce_md_op(MD a, MD b)
{
    bool a_bigger = (a.m > b.m);
    MD bigger_m = a_bigger ? a : b;
    MD smaller_m = a_bigger ? b : a;
    MD res;
    res.d = bigger_m.d + smaller_m.d * __expf(smaller_m.m - bigger_m.m);
    res.m = bigger_m.m;
    return res;
}

template <int THREADBLOCK_SIZE, typename T>
__launch_bounds__(THREADBLOCK_SIZE) __global__ void online_softmax(const T *__restrict x, T *__restrict y, int V, int held)
{
    int thread_id = threadIdx.x;
    x += (size_t)blockIdx.x * V;
    y += (size_t)blockIdx.x * V;

    extern __shared__ __align__(16) unsigned char bytes[];
    T *row = reinterpret_cast<T *>(bytes);
    typedef cub::BlockReduce<MD, THREADBLOCK_SIZE> BlockReduce;
    __shared__ typename BlockReduce::TempStorage temp_storage;
    __shared__ MD md_total;

    MD md_partial = {-3.0e38F, 0.0F};
    for (int elem_id = thread_id; elem_id < V; elem_id += THREADBLOCK_SIZE)
    {
        T value = x[elem_id];
        if (elem_id < held) row[elem_id] = value;
        MD new_elem = {float(value), 1.0F};
        md_partial = reduce_md_op(md_partial, new_elem);
    }

    MD md = BlockReduce(temp_storage).Reduce(md_partial, reduce_md_op);
    if (thread_id == 0) md_total = md;
    __syncthreads();

    float d_total_inverse = __fdividef(1.0F, md_total.d);
    for (int elem_id = thread_id; elem_id < V; elem_id += THREADBLOCK_SIZE)
    {
        float value = elem_id < held ? row[elem_id] : x[elem_id];
        y[elem_id] = T(__expf(value - md_total.m) * d_total_inverse);
    }
}
