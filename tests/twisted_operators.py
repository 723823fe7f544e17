"""Generate kernels for the variants of the differentiable operator, to test that each is solvable and graded correctly.

The kernels are generated from the parts of a variant, so no file contains an answer. A worker cannot read this folder.
"""

from __future__ import annotations

from pathlib import Path

from kernelpath.course.checkpoint import DeliverableVariant
from kernelpath.course.problems.operator_twists import BOUND, CAP, EPS, MIN_NORM

H = {
    "soft_cap": f"{CAP} * (2 * tl.sigmoid(2 * x / {CAP}) - 1)",
    "clamp": f"tl.minimum(tl.maximum(x, -{BOUND}), {BOUND})",
    "silu": "x * tl.sigmoid(x)",
}
SLOPE = {
    "soft_cap": f"1 - (h / {CAP}) * (h / {CAP})",
    "clamp": f"tl.where((x > -{BOUND}) & (x < {BOUND}), 1.0, 0.0)",
    "silu": "tl.sigmoid(x) * (1 + x * (1 - tl.sigmoid(x)))",
}
Y = {
    "log_softmax": """
    top = tl.max(tl.where(inside, h, -float("inf")), AXIS, keep_dims=True)
    e = tl.where(inside, tl.exp(h - top), 0.0)
    y = h - top - tl.log(tl.sum(e, AXIS, keep_dims=True))""",
    "softmin": """
    top = tl.max(tl.where(inside, -h, -float("inf")), AXIS, keep_dims=True)
    e = tl.where(inside, tl.exp(-h - top), 0.0)
    y = e / tl.sum(e, AXIS, keep_dims=True)""",
    "rms_norm": f"""
    scale = tl.rsqrt(tl.sum(tl.where(inside, h * h, 0.0), AXIS, keep_dims=True) / length + {EPS})
    y = h * scale""",
    "layer_norm": f"""
    h = tl.where(inside, h, 0.0)
    c = tl.where(inside, h - tl.sum(h, AXIS, keep_dims=True) / length, 0.0)
    scale = tl.rsqrt(tl.sum(c * c, AXIS, keep_dims=True) / length + {EPS})
    y = c * scale""",
    "normalize": f"""
    norm = tl.sqrt(tl.sum(tl.where(inside, h * h, 0.0), AXIS, keep_dims=True))
    scale = 1 / tl.maximum(norm, {MIN_NORM})
    y = h * scale""",
}
DH = {
    "log_softmax": "dy - tl.exp(y) * tl.sum(dy, AXIS, keep_dims=True)",
    "softmin": "-y * (dy - tl.sum(y * dy, AXIS, keep_dims=True))",
    "rms_norm": "scale * (dy - y * tl.sum(y * dy, AXIS, keep_dims=True) / length)",
    "layer_norm": (
        "scale * (dy - (tl.sum(dy, AXIS, keep_dims=True) + y * tl.sum(y * dy, AXIS, keep_dims=True)) / length)"
    ),
    "normalize": f"scale * (dy - tl.where(norm > {MIN_NORM}, y, 0.0) * tl.sum(y * dy, AXIS, keep_dims=True))",
}

MEETING = {
    "gate": """
    other = tl.load(other_ptr + place, mask=inside, other=0).to(tl.float32)
    a = h
    h = a * other""",
    "residual": """
    other = tl.load(other_ptr + place, mask=inside, other=0).to(tl.float32)
    h = h + other""",
}
DOTHER = {
    "gate": """
    tl.store(dother_ptr + place, (dh * a).to(dother_ptr.dtype.element_ty), mask=inside)
    dh = dh * other""",
    "residual": """
    tl.store(dother_ptr + place, dh.to(dother_ptr.dtype.element_ty), mask=inside)""",
}


def write(twist: DeliverableVariant, folder: Path, *, slope: str = "", elements: int = 1024, warps: int = 1) -> Path:
    """Write a submission and return its file.

    slope: an expression that replaces the derivative of the activation. elements: the elements of a block with several
    rows; a block of columns has 16 columns.
    """
    operator, activation, last = twist.name.split("+")
    axis = 0 if last == "columns" else 1
    names = twist.exercise.gradients_of
    indices = """
    here = tl.program_id(0) * COUNT + tl.arange(0, COUNT)[:, None]
    at = tl.arange(0, LENGTH)[None, :]
    inside = (here < count) & (at < length)
    place = here * length + at"""
    if axis == 0:
        indices = indices.replace("[:, None]", "[ROW]").replace("[None, :]", "[:, None]").replace("[ROW]", "[None, :]")
        indices = indices.replace("here * length + at", "at * count + here")
    forward = f"""{indices}
    x = tl.load(x_ptr + place, mask=inside, other=0).to(tl.float32)
    h = {H[activation]}{MEETING.get(last, "")}{Y[operator]}"""
    pointers = ", ".join(f"{name}_ptr" for name in names)
    parameters = ", ".join(f"{name}: torch.Tensor" for name in names)
    gradients = ", ".join(f"d{name}_ptr" for name in names)
    source = f"""
import torch
import triton
import triton.language as tl

AXIS = tl.constexpr({axis})


@triton.jit
def forward({pointers}, y_ptr, count, length, COUNT: tl.constexpr, LENGTH: tl.constexpr):{forward}
    tl.store(y_ptr + place, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def backward({pointers}, dy_ptr, {gradients}, count, length, COUNT: tl.constexpr, LENGTH: tl.constexpr):{forward}
    y = tl.where(inside, y, 0.0)
    dy = tl.load(dy_ptr + place, mask=inside, other=0).to(tl.float32)
    dh = {DH[operator]}
{DOTHER.get(last, "")}
    h = {H[activation]}
    dx = dh * ({slope or SLOPE[activation]})
    tl.store(dx_ptr + place, dx.to(dx_ptr.dtype.element_ty), mask=inside)


def launch(kernel, x, *others):
    count, length = x.shape if AXIS.value else x.shape[::-1]
    block = triton.next_power_of_2(length)
    each = max(1, {elements} // block) if AXIS.value else 16
    kernel[triton.cdiv(count, each),](x, *others, count, length, each, block, num_warps={warps if axis else 16})


@torch.library.custom_op(f"{{__name__}}::operator", mutates_args=())
def operator({parameters}) -> torch.Tensor:
    y = torch.empty_like(x)
    launch(forward, {", ".join(names)}, y)
    return y


@torch.library.custom_op(f"{{__name__}}::operator_backward", mutates_args=())
def operator_backward({parameters}, dy: torch.Tensor) -> list[torch.Tensor]:
    made = [torch.empty_like(x) for _ in range({len(names)})]
    launch(backward, {", ".join(names)}, dy.contiguous(), *made)
    return made


@operator.register_fake
def _({parameters}) -> torch.Tensor:
    return torch.empty_like(x)


@operator_backward.register_fake
def _({parameters}, dy: torch.Tensor) -> list[torch.Tensor]:
    return [torch.empty_like(x) for _ in range({len(names)})]


def save(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


def gradients(ctx, dy):
    made = operator_backward(*ctx.saved_tensors, dy)
    return made[0] if len(made) == 1 else tuple(made)


operator.register_autograd(gradients, setup_context=save)
"""
    file = folder / "deliverable.py"
    file.write_text(source)
    return file
