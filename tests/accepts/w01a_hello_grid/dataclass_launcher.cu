struct Shape {
    int blocks;
    int threads;
    long long n;
};

__global__ void hello(int* out, const __grid_constant__ Shape shape) {
    const long long i = (long long)blockIdx.x * shape.threads + threadIdx.x;
    out[i] = blockIdx.x;
    out[i + shape.n] = threadIdx.x >> 5;
    out[i + 2 * shape.n] = threadIdx.x & 31;
    out[i + 3 * shape.n] = i;
}
