// Vector addition: out[i] = x[i] + y[i] for n float32 elements.
//
// Every thread determines which elements it owns. The last block extends past the end of the vectors.

__global__ void vector_add(const float* x, const float* y, float* out, long long n) {
    // TODO: compute this thread's index i from blockIdx.x, blockDim.x and threadIdx.x, and add where i < n
}
