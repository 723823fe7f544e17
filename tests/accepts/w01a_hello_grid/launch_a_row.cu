struct Block {
    __device__ int operator()() const { return blockIdx.x; }
};
struct Warp {
    __device__ int operator()() const { return threadIdx.x / warpSize; }
};
struct Lane {
    __device__ int operator()() const { return threadIdx.x % warpSize; }
};
struct Index {
    __device__ int operator()() const { return blockIdx.x * blockDim.x + threadIdx.x; }
};

template <typename Function>
__global__ void fill(int* __restrict__ row) {
    row[Index{}()] = Function{}();
}
