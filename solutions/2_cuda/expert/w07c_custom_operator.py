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

Traffic: 4 bytes per element forward and 6 backward in bfloat16, 8 and 12 in float32. The backward formula needs only y,
so only y is saved; from x, the exponentials would have to be computed again.
"""

import torch

from kernelpath.lanes import cuda

C_TYPE = {torch.float32: "float", torch.bfloat16: "__nv_bfloat16"}
FAST = ("--use_fast_math",)  # exp as one multiplication and ex2.approx


@torch.library.custom_op(f"{__name__}::softmax", mutates_args=())
def softmax(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    launch("softmax_forward", x, y)
    return y


@torch.library.custom_op(f"{__name__}::softmax_backward", mutates_args=())
def softmax_backward(y: torch.Tensor, dy: torch.Tensor) -> torch.Tensor:
    dx = torch.empty_like(y)
    launch("softmax_backward", y, dy.contiguous(), dx)  # the gradient of y.sum() has strides of 0
    return dx


@softmax.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


@softmax_backward.register_fake
def _(y: torch.Tensor, dy: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(y)


def save_output(ctx, inputs, output) -> None:
    ctx.save_for_backward(output)


def backward(ctx, dy: torch.Tensor) -> torch.Tensor:
    (y,) = ctx.saved_tensors
    return softmax_backward(y, dy)


softmax.register_autograd(backward, setup_context=save_output)


def launch(name: str, *tensors: torch.Tensor) -> None:
    """Launch a block per row, with as few threads as can hold it in four vectors each, but at least 64.

    With twice as many threads, half of which have no vectors, the softmax of 16384 columns takes 237 us on an H200, not
    141. If 64 threads need fewer vectors, the kernel is compiled for fewer, since the others would only cost
    instructions.
    """
    rows, columns = tensors[0].shape
    if tensors[0].numel() == 0:
        return
    width = 16 // tensors[0].element_size()
    if columns % width or any(tensor.data_ptr() % 16 for tensor in tensors):
        width = 1
    threads, held = 64, 8
    if width > 1:
        held = 4 if columns > 2 * threads * width else 2 if columns > threads * width else 1
    while threads < 1024 and threads * held * width < columns:
        threads *= 2
    kernel = cuda.kernel(
        "w07c_custom_operator.cu", f"{name}<{C_TYPE[tensors[0].dtype]}, {width}, {threads}, {held}>", FAST
    )
    kernel[rows, threads](*tensors, columns)
