// The load and the store that are wanted, written as PTX.

__device__ float4 load(const float* from) {
    float4 v;
    asm("ld.global.nc.L1::no_allocate.v4.f32 {%0, %1, %2, %3}, [%4];"
        : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(__cvta_generic_to_global(from)));
    return v;
}

__device__ void store(float* to, float4 v) {
    asm volatile("st.global.cs.v4.f32 [%0], {%1, %2, %3, %4};"
        :: "l"(__cvta_generic_to_global(to)), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w) : "memory");
}

__device__ float hardswished(float x) { return x * fminf(fmaxf(x + 3, 0), 6) * (1.0f / 6); }

extern "C" __global__ void hardswish(const float* x, float* out, unsigned rows, unsigned columns, size_t stride,
                                     bool wide) {
    const unsigned lane = threadIdx.x, warps = gridDim.x * blockDim.y;
    for (unsigned row = blockIdx.x * blockDim.y + threadIdx.y; row < rows; row += warps) {
        const float* from = x + row * stride;
        float* to = out + size_t(row) * columns;
        if (wide) {
            for (unsigned c = 4 * lane; c < columns; c += 128) {
                const float4 v = load(from + c);
                store(to + c, {hardswished(v.x), hardswished(v.y), hardswished(v.z), hardswished(v.w)});
            }
        } else {
            for (unsigned c = lane; c < columns; c += 32) to[c] = hardswished(from[c]);
        }
    }
}
