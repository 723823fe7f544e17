// Convolution: out[i, j] = sum of filter.w[5 * a + b] * x[i + a - 2, j + b - 2] over a and b from 0 to 4, float32.
//
// A block loads a tile of x with a halo of 2 elements on each side into shared memory. The filter is a kernel argument.
// Arguments are in constant memory, where all lanes of a warp read one address with one access.

constexpr int RADIUS = 2, SIDE = 2 * RADIUS + 1;

struct Filter {
    float w[SIDE * SIDE];
};

__global__ void conv2d(const float* x, float* out, long long height, long long width, Filter filter) {
    // TODO: load a tile with its halo, wait, sum 25 products for each output, store
}
