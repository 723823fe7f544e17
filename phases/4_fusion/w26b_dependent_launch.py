"""Dependent launch: the launches.

dependent_launch(x, weight, w) takes contiguous bfloat16 tensors that start at a multiple of 16 bytes: x and weight of k
elements, where k is a multiple of 8, and w of n rows and k columns. It returns a new bfloat16 vector of n elements,
y = w @ h with h = x * weight / sqrt(mean of x^2 + eps). The arithmetic is float32; h may be rounded to bfloat16. w may
have more than 2**32 elements: offsets need 64 bits.

One kernel normalizes, and the next kernel multiplies. Launch the second kernel with
programmatic_stream_serialization=True, so that it may start while the first kernel runs. Then the first kernel must let
it start (griddepcontrol.launch_dependents), and the second kernel must not touch h before griddepcontrol.wait. The
second kernel's work before the wait overlaps with the first kernel. The grader checks the values, and that there is no
race. In the first launch, at most a quarter of the instructions may come before launch_dependents. In the second
launch, at least a tenth of the sectors of global memory have to be requested before the wait. On a GPU, the grader
compares the time with the same kernels without the attribute. The exercise needs Hopper or later.

The grader enforces these limits on the largest case (n=130 k=2048); smaller cases get some slack for partial tiles.
Bank conflicts may add at most 1 wavefront per request. A call may launch at most 2 kernels.
"""

import torch

from kernelpath.lanes import cuda


def dependent_launch(x: torch.Tensor, weight: torch.Tensor, w: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    # TODO: allocate h and y
    # TODO: cuda.kernel("w26b_dependent_launch.cu", "normalize")[1, 1024](x, weight, h, k, eps)
    # TODO: launch multiply with programmatic_stream_serialization=True, 256 threads, a warp for each row or several
    raise NotImplementedError("launch both kernels, then return y")
