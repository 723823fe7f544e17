// Softmax of each row of x, y[i, j] = exp(x[i, j] - max) / sum, and its gradient: dx = y * (dy - sum(y * dy)) row by row.

#include <cuda_bf16.h>

template <typename T>  // TODO: add what else must be known at compile time
__global__ void softmax_forward(const T* x, T* y, int columns) {
    // TODO: the kernel of softmax will do
}

template <typename T>  // TODO: add what else must be known at compile time
__global__ void softmax_backward(const T* y, const T* dy, T* dx, int columns) {
    // TODO: a row of y and of dy is read once; its sum, then dx
}
