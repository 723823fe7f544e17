"""Sum: the launch.

vector_sum(x) takes a contiguous float32 vector with one or more elements, which may have any values. It is not always
aligned to 16 bytes (x[1:] is a legal input). The function returns the sum as a new one-element float32 tensor; a NaN or
infinities of both signs give NaN, as they do in torch.sum. The error may be at most 2e-5 times the sum of the
magnitudes; a single float32 accumulator that adds a million values one by one has a larger error. Tensors may have more
than 2**32 elements, so offsets need 64 bits.

The same inputs must give the same bits in every call, whichever block runs first. float32 additions round, so their
order affects the last bits. atomicAdd on a float adds in the order in which blocks arrive, so a kernel that ends with
such an atomicAdd is rejected, although its values are right. torch.sum gives the same guarantee, which makes a training
run repeatable. Counting finished blocks with an integer atomic is allowed: integers add exactly. Such a counter may be
a __device__ variable in w06a_reduction.cu: it is 0 when the file is loaded, and keeps its value from one launch to the
next.

Write the kernel in w06a_reduction.cu, then launch it here. The grader checks the values, the bytes that the kernel
moves (one read is enough), and that two orders of blocks give the same bits. On a GPU, it compares the time with one
atomicAdd per warp.

The grader enforces these limits on the largest case (n=1048571); smaller cases get some slack for partial tiles. Each
load or store may touch at most 1.3 times the sectors that its bytes require. In total, global memory accesses may move
at most 1.1 times the size of the inputs and outputs. Bank conflicts may add at most 1 wavefront per request.

Traffic: 4 bytes per element, read once, and one addition. The ceiling is a read-only sweep, 4.5 TB/s on an H200 with
16-byte loads. At that rate, an SM receives fewer than 5 floats per cycle and could add 128, so only the bytes in flight
count. The ladder:

- an atomicAdd per thread: n additions at one address, one after another; a float32 that counts ones stops at 2^24
- a tree in shared memory, an atomicAdd per block: log2(threads) barriers, half of the threads idle after the first step
- shuffles: 5 steps per warp without shared memory, and one barrier
- many elements per thread, 4 loads of 16 bytes in flight in each: 64 KB per SM with 1024 threads, whereas Little's law
  requires 27 KB
- a finish in a fixed order: each block stores its sum, and the last block to finish adds them up. This costs 4 bytes
  per block and one atomicInc; a second launch takes up to 0.4 µs longer (H200, CUDA graph), and a grid barrier
  requires a cooperative launch.

The finish: threadFenceReduction in NVIDIA's CUDA samples. The ladder: Mark Harris, "Optimizing Parallel Reduction in
CUDA" (2007). The counter belongs to the module, so two calls on different streams must not overlap.
"""

import torch

from kernelpath.lanes import cuda

THREADS = 512
FLOATS = THREADS * 4 * 4  # the floats that a block has in flight at once
BLOCKS_PER_SM = 2


def vector_sum(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty(1, dtype=x.dtype, device=x.device)
    n = x.numel()
    processors = torch.cuda.get_device_properties().multi_processor_count
    blocks = min((n + FLOATS - 1) // FLOATS, BLOCKS_PER_SM * processors)
    cuda.kernel("w06a_reduction.cu", "vector_sum")[blocks, THREADS](x, out, n)
    return out
