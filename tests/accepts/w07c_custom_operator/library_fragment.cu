// A warp per row; lane by lane through the row, which waits in shared memory.

#include <cuda_bf16.h>

template <typename F>
__device__ float warp_reduce(float value, F f) {
    for (int offset = 16; offset > 0; offset /= 2) value = f(value, __shfl_xor_sync(0xffffffff, value, offset));
    return value;
}

template <typename T>
__global__ void softmax_rows(const T* in, T* out, int n) {
    extern __shared__ char memory[];
    T* row = reinterpret_cast<T*>(memory);
    in += static_cast<long>(blockIdx.x) * n;
    out += static_cast<long>(blockIdx.x) * n;
    float top = -INFINITY, total = 0.f;
    for (int i = threadIdx.x; i < n; i += 32) {
        row[i] = in[i];
        top = fmaxf(top, static_cast<float>(row[i]));
    }
    top = warp_reduce(top, [](float a, float b) { return fmaxf(a, b); });
    for (int i = threadIdx.x; i < n; i += 32) total += expf(static_cast<float>(row[i]) - top);
    total = warp_reduce(total, [](float a, float b) { return a + b; });
    for (int i = threadIdx.x; i < n; i += 32) out[i] = static_cast<T>(expf(static_cast<float>(row[i]) - top) / total);
}

template <typename T>
__global__ void gradient_rows(const T* out, const T* dout, T* din, int n) {
    extern __shared__ char memory[];
    T* row = reinterpret_cast<T*>(memory);
    T* drow = row + n;
    const long start = static_cast<long>(blockIdx.x) * n;
    float dot = 0.f;
    for (int i = threadIdx.x; i < n; i += 32) {
        row[i] = out[start + i];
        drow[i] = dout[start + i];
        dot += static_cast<float>(row[i]) * static_cast<float>(drow[i]);
    }
    dot = warp_reduce(dot, [](float a, float b) { return a + b; });
    for (int i = threadIdx.x; i < n; i += 32) {
        din[start + i] = static_cast<T>(static_cast<float>(row[i]) * (static_cast<float>(drow[i]) - dot));
    }
}
