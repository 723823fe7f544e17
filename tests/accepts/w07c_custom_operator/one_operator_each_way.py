"""custom_op with schemas given as strings, and an output that the entry keeps for itself: the row's length."""

import torch

from kernelpath.lanes import cuda

CPP = {torch.float32: "float", torch.bfloat16: "__nv_bfloat16"}


def rows_of(name, *tensors, copies):
    count, n = tensors[0].shape
    kernel = cuda.kernel("one_operator_each_way.cu", f"{name}<{CPP[tensors[0].dtype]}>")
    kernel[(count, 1, 1), (32, 1, 1), copies * n * tensors[0].element_size()](*tensors, n)


@torch.library.custom_op("each_way::softmax", mutates_args=(), schema="(Tensor x, *, bool training=True) -> Tensor")
def forward(x, *, training=True):
    y = x.new_empty(x.size())
    rows_of("softmax_rows", x, y, copies=1)
    return y


forward.register_fake(lambda x, *, training=True: x.new_empty(x.size()))


@torch.library.custom_op("each_way::softmax_vjp", mutates_args=(), schema="(Tensor y, Tensor dy) -> Tensor")
def vjp(y, dy):
    dx = y.new_empty(y.size())
    rows_of("gradient_rows", y, dy.contiguous(), dx, copies=2)
    return dx


vjp.register_fake(lambda y, dy: y.new_empty(y.size()))


def keep(ctx, inputs, keyword_only_inputs, output):
    ctx.y = output.detach()


def pull_back(ctx, dy):
    return vjp(ctx.y, dy)


forward.register_autograd(pull_back, setup_context=keep)


def softmax(x):
    return forward(x, training=True)
