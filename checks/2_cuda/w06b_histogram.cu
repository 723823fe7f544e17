// The baseline of the histogram: every element is an atomic on global memory.

template <typename T>
__global__ void histogram(const T* x, int* counts, int n, int bins) {
    const int step = gridDim.x * blockDim.x;
    for (long long i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        const unsigned bin = x[i];
        if (bin < bins) atomicAdd(&counts[bin], 1);
    }
}
