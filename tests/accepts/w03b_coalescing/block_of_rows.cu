template <typename scalar_t, typename index_t>
__device__ __forceinline__ scalar_t* row_of(scalar_t* base, index_t row, index_t stride) {
    return base + row * stride;
}

__global__ void index_select(float* dst, const float* src, const int64_t* indices, int64_t num, int64_t size) {
    const int64_t dst_row = blockIdx.x * (int64_t)blockDim.y + threadIdx.y;
    if (dst_row >= num) return;
    const int64_t src_row = indices[dst_row];
    float* to = row_of(dst, dst_row, size);
    const float* from = row_of(src, src_row, size);
#pragma unroll 4
    for (int64_t i = blockIdx.y * blockDim.x + threadIdx.x; i < size; i += blockDim.x * gridDim.y) to[i] = from[i];
}
