// Stencil: out[i] = sum of (9 - |k|) * x[i + k] / 81 for k = -8 .. 8, over n float32 elements; x is 0 outside.
//
// The threads of a block need nearly the same elements of x. They load them together into shared memory, with a halo
// of 8 elements on either side, and wait at a barrier until all of them have arrived.

constexpr int RADIUS = 8;

__global__ void stencil(const float* x, float* out, long long n) {
    // TODO: fill a __shared__ tile and its halo, __syncthreads(), then compute out from the tile
}
