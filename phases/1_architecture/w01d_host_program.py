"""Host program: an addition, called from Python.

add_on_gpu in w01d_host_program.cu is the host code of a vector addition. It takes three arrays in host memory, with n
float32 elements each, and computes out = x + y on the GPU:

    cudaMalloc, three times         allocates device memory for x, y and out
    cudaMemcpy, twice               copies x and y to the device
    cudaEventRecord                 right before the launch
    add<<<blocks, threads>>>(...)   then cudaGetLastError, which returns the launch's error
    cudaEventRecord                 right after the launch
    cudaMemcpy                      copies the result directly to out, because the grader tracks these bytes
    cudaEventElapsedTime            stores the time between the two events in *milliseconds
    cudaFree, cudaEventDestroy      release everything that was allocated or created, even after an error

If a call fails, the function makes no further calls except those that release something, and returns the first failed
call's error; otherwise it returns cudaSuccess. n is at least 1 and less than 2**31.

The grader checks *milliseconds and, at sizes near the block size, the contents of out. In further runs, each call
that releases nothing fails once: the function must return its error and still free everything. nvcc compiles the file
with and without a GPU. Without a GPU, runtime calls, such as copies, go to the PTX machine. Besides these calls, the
PTX machine supports cudaEventCreate, cudaEventSynchronize, cudaDeviceSynchronize, cudaMemset and cudaLaunchKernel, but
no streams, asynchronous copies or managed memory. If there is a GPU, the program runs there as well.
"""

import torch

from kernelpath.lanes import host_program as programs

REHEARSED = 255  # up to this size, the grader makes each call fail once before the addition


def host_program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    n = x.numel()
    out = torch.empty_like(x)
    milliseconds = torch.zeros(1)
    # TODO: write add_on_gpu in w01d_host_program.cu; nothing is missing here
    program = programs.build("w01d_host_program.cu")
    program.call(
        "add_on_gpu", x, y, out, n, milliseconds, kernel_milliseconds=milliseconds, with_failures=n <= REHEARSED
    )
    return out
