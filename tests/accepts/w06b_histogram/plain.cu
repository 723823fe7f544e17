template <typename T>
__global__ void histogram(const T* x, int* counts, int n, int bins, int slice) {
    extern __shared__ int mine[];
    const int first = blockIdx.y * slice;
    const int here = min(slice, bins - first);
    for (int b = threadIdx.x; b < here; b += blockDim.x) mine[b] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        const int bin = int(x[i]) - first;
        if (x[i] >= first && bin < here) atomicAdd(&mine[bin], 1);
    }
    __syncthreads();
    for (int b = threadIdx.x; b < here; b += blockDim.x) {
        if (mine[b] > 0) atomicAdd(&counts[first + b], mine[b]);
    }
}
