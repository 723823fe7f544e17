// Vector addition: out[i] = x[i] + y[i] for n float32 elements.
//
// Every thread works out which elements are its own. The last block reaches past the end of the vectors.

__global__ void vector_add(const float* x, const float* y, float* out, long long n) {
    // TODO: compute this thread's index i from blockIdx.x, blockDim.x and threadIdx.x, and add where i < n
}
