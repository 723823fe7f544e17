#include <cuda_bf16.h>

const int TILE_DIM = 32;
const int BLOCK_ROWS = 8;

// No bank-conflict transpose: pad the first tile dimension to avoid shared memory bank conflicts.
template <class T>
__global__ void transposeNoBankConflicts(T *odata, const T *idata, int width, int height)
{
  __shared__ T tile[TILE_DIM][TILE_DIM+1];

  int x = blockIdx.x * TILE_DIM + threadIdx.x;
  int y = blockIdx.y * TILE_DIM + threadIdx.y;

  for (int j = 0; j < TILE_DIM; j += BLOCK_ROWS)
     if (x < width && y + j < height)
        tile[threadIdx.y+j][threadIdx.x] = idata[(size_t)(y+j)*width + x];

  __syncthreads();

  x = blockIdx.y * TILE_DIM + threadIdx.x;  // transpose block offset
  y = blockIdx.x * TILE_DIM + threadIdx.y;

  for (int j = 0; j < TILE_DIM; j += BLOCK_ROWS)
     if (x < height && y + j < width)
        odata[(size_t)(y+j)*height + x] = tile[threadIdx.x][threadIdx.y + j];
}
