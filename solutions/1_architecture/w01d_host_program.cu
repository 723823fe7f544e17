// A program with its host code: out = x + y for arrays of n float32 elements in host memory.
//
// The destructor of Resources releases everything on every path out of the function, so CHECK can simply return.

#include <cuda_runtime.h>

__global__ void add(const float* x, const float* y, float* out, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i] + y[i];
}

// A macro and not a function: only code in the caller's own body can return from the caller.
#define CHECK(call) \
    if (const cudaError_t status = (call); status != cudaSuccess) return status

struct Resources {
    float *x = nullptr, *y = nullptr, *out = nullptr;
    cudaEvent_t start = nullptr, stop = nullptr;

    ~Resources() {
        cudaFree(x);  // allowed for a null pointer, which cudaEventDestroy rejects
        cudaFree(y);
        cudaFree(out);
        if (start != nullptr) cudaEventDestroy(start);
        if (stop != nullptr) cudaEventDestroy(stop);
    }
};

extern "C" cudaError_t add_on_gpu(const float* x, const float* y, float* out, int n, float* milliseconds) {
    const size_t bytes = n * sizeof(float);
    const int threads = 256;
    const int blocks = (n - 1) / threads + 1;  // n + threads - 1 would overflow for the largest n
    Resources device;
    CHECK(cudaMalloc(&device.x, bytes));
    CHECK(cudaMalloc(&device.y, bytes));
    CHECK(cudaMalloc(&device.out, bytes));
    CHECK(cudaEventCreate(&device.start));
    CHECK(cudaEventCreate(&device.stop));
    CHECK(cudaMemcpy(device.x, x, bytes, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(device.y, y, bytes, cudaMemcpyHostToDevice));

    CHECK(cudaEventRecord(device.start));
    add<<<blocks, threads>>>(device.x, device.y, device.out, n);
    CHECK(cudaGetLastError());  // the launch's error; a kernel's error is returned by a later call that waits
    CHECK(cudaEventRecord(device.stop));

    CHECK(cudaMemcpy(out, device.out, bytes, cudaMemcpyDeviceToHost));  // waits for the kernel and both events
    CHECK(cudaEventElapsedTime(milliseconds, device.start, device.stop));
    return cudaSuccess;
}
