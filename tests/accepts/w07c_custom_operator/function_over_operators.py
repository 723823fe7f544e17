"""An autograd.Function over two operators, which know no autograd themselves. dx is a mutable argument."""

import torch

from kernelpath.lanes import cuda

CPP = {torch.float32: "float", torch.bfloat16: "__nv_bfloat16"}


@torch.library.custom_op("under_a_function::forward", mutates_args=())
def forward(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    rows, n = x.shape
    cuda.kernel("function_over_operators.cu", f"softmax_rows<{CPP[x.dtype]}>")[rows, 32, n * x.element_size()](x, y, n)
    return y


@forward.register_fake
def _(x):
    return torch.empty_like(x)


@torch.library.custom_op("under_a_function::backward_out", mutates_args={"dx"})
def backward_out(y: torch.Tensor, dy: torch.Tensor, dx: torch.Tensor) -> None:
    rows, n = y.shape
    kernel = cuda.kernel("function_over_operators.cu", f"gradient_rows<{CPP[y.dtype]}>")
    kernel[rows, 32, 2 * n * y.element_size()](y, dy, dx, n)


@backward_out.register_fake
def _(y, dy, dx):
    return None


class Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        dx = torch.empty_like(y)
        backward_out(y, dy.contiguous(), dx)
        return dx


def softmax(x):
    return Softmax.apply(x)
