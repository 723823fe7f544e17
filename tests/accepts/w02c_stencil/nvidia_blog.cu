#define RADIUS     8
#define BLOCK_SIZE 256

__constant__ float c_coef[RADIUS + 1] = {9.f / 81, 8.f / 81, 7.f / 81, 6.f / 81, 5.f / 81,
                                         4.f / 81, 3.f / 81, 2.f / 81, 1.f / 81};

__global__ void stencil_1d(const float *in, float *out, size_t n) {
  __shared__ float temp[BLOCK_SIZE + 2 * RADIUS];
  size_t gindex = threadIdx.x + (size_t)blockIdx.x * blockDim.x;
  int lindex = threadIdx.x + RADIUS;

  // Read input elements into shared memory
  temp[lindex] = gindex < n ? in[gindex] : 0.f;
  if (threadIdx.x < RADIUS) {
    temp[lindex - RADIUS] = gindex >= RADIUS && gindex - RADIUS < n ? in[gindex - RADIUS] : 0.f;
    temp[lindex + BLOCK_SIZE] = gindex + BLOCK_SIZE < n ? in[gindex + BLOCK_SIZE] : 0.f;
  }

  // Synchronize (ensure all the data is available)
  __syncthreads();

  // Apply the stencil
  float result = 0;
  for (int offset = -RADIUS; offset <= RADIUS; offset++)
    result += temp[lindex + offset] * c_coef[abs(offset)];

  // Store the result
  if (gindex < n) out[gindex] = result;
}
