"""A custom operator: softmax with its gradient, for autograd and torch.compile.

softmax(x) takes a contiguous bfloat16 or float32 matrix with any number of rows, each with at least one element and at
most 64 KiB. It returns the softmax of each row as a new tensor of the same dtype, computed in float32, for finite
values of any size, and autograd can compute its gradient: dx = y * (dy - sum(y * dy)) row by row, where y is the output
and dy its gradient. Tensors have fewer than 2**31 elements and are not always aligned to 16 bytes.

Register two operators with torch.library, one for each direction. Each needs a fake implementation, and the first needs
a backward formula that calls the second. Give them your own namespace, or one made from __name__, as in
f"{__name__}::softmax", so that two versions of this file in one process do not replace each other's operators.

Write the kernels in w07c_custom_operator.cu. The grader checks y and dx, and the bytes that the kernels move (two
tensors forward, three backward); then the registrations, with torch.library.opcheck and torch.compile(fullgraph=True),
for a dy that is not always contiguous; and, on a GPU, the time for both directions compared with the formulas written
as PyTorch operators.

The grader enforces these limits on the largest case (rows=64 columns=1024 dtype=bfloat16); smaller cases get some slack
for partial tiles. Each load or store may touch at most 1.3 times the sectors that its bytes require. In total, global
memory accesses may move at most 1.2 times the size of the inputs and outputs. Bank conflicts may add at most 1
wavefront per request.
"""

import torch

from kernelpath.lanes import cuda

C_TYPE = {torch.float32: "float", torch.bfloat16: "__nv_bfloat16"}


def softmax(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    # TODO: launch "softmax_forward", and make this function a torch.library.custom_op with register_fake
    # TODO: softmax_backward(y, dy) in the same way, then softmax.register_autograd
    raise NotImplementedError("launch the kernel, then return y")
