"""Repair barriers: four kernels with bulk copies and mbarriers that somebody else wrote, each with a fault.

run(kernel, x) launches the kernel with that name in w21c_repair_barriers.cu, and returns the sum of the rows of x, a
float32 matrix of shape (rows, 128) that is aligned to 16 bytes. The kernels are CUDA C++ with cuda::ptx. Each of its
functions is a single PTX instruction. The kernels spell out the steps that PipelineTmaAsync performs in the CuTe DSL.

Repair each kernel with as few changes as possible, and name the kind of its fault in CAUSES. The kind is the name of an
exception of warpcheck, such as "OutOfBounds", or "WrongValues" if the machine reports no fault and the values are
wrong. `kp check` lists all names if one is missing. `kp check repair_barriers` runs all kernels and reports on the
first that fails. The PTX machine grades this exercise even on a computer with a GPU, because a GPU does not report most
of these faults.

The grader checks the values, and that the machine finds no fault in any order of warps. It counts changed statements,
and allows at most 1 in bytes, 1 in arrivals, 1 in parity, 1 in proxies, and none outside of the kernels except an
#include. It also checks CAUSES. A moved statement counts as two changes. Comments, line breaks and CAUSES do not count.

`bytes` expects half of the bytes that arrive. The empty barriers in `arrivals` wait for a thread that never arrives.
The phase in `parity` toggles with every row instead of every pass through the buffer. `proxies` lacks the fence between
the threads' writes and the copy that reads them.
"""

import torch

from kernelpath.lanes import cuda

COLS = 128
PRODUCER = 32  # the threads of the warp that copies

CAUSES = {
    "bytes": "Uninitialized",
    "arrivals": "Deadlock",
    "parity": "Uninitialized",
    "proxies": "MissingFence",
}


def run(kernel: str, x: torch.Tensor) -> torch.Tensor:
    out = x.new_empty(COLS)
    cuda.kernel("w21c_repair_barriers.cu", kernel)[1, COLS + PRODUCER](x, out, len(x))
    return out
