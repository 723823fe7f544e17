"""A step of AdamW on a list of tensors, in place.

The list is that of a model, or one of lengths that kernels get wrong: none, one, a tile and one more or less.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import cycle, islice
from typing import Any

import torch

from kernelpath.course import draw
from kernelpath.course.problem import BYTES, Case, Problem, Tolerance

LR, BETA1, BETA2, EPS, WEIGHT_DECAY = SCALARS = 1e-2, 0.9, 0.999, 1e-8, 0.1

Tensors = tuple[torch.Tensor, ...]

# The elements before and after a misaligned tensor in its storage.
_ROOM = 16


def gpt2() -> Iterator[int]:
    """Return the elements of each parameter of GPT-2 with 124 million parameters: 148 tensors."""
    width = 768
    yield from (50_257 * width, 1024 * width)
    for _ in range(12):
        yield from (width, width, width * 3 * width, 3 * width, width * width, width)
        yield from (width, width, width * 4 * width, 4 * width, 4 * width * width, width)
    yield from (width, width)


def resnet50() -> Iterator[int]:
    """Return the elements of each parameter of ResNet-50 with 25.6 million parameters: 161 tensors."""

    def convolution(before: int, after: int, side: int) -> tuple[int, ...]:
        return before * after * side * side, after, after  # and the scale and shift of its normalization

    yield from convolution(3, 64, 7)
    before = 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            yield from (
                *convolution(before, width, 1),
                *convolution(width, width, 3),
                *convolution(width, 4 * width, 1),
            )
            if block == 0:
                yield from convolution(before, 4 * width, 1)
            before = 4 * width
    yield from (before * 1000, 1000)


def llama_block() -> Iterator[int]:
    """Return the elements of each parameter of one block of Llama 3 8B with 218 million parameters: 9 tensors."""
    width = 4096
    keys = 1024
    hidden = 14_336
    yield from (width * width, width * keys, width * keys, width * width)
    yield from (width * hidden, width * hidden, hidden * width, width, width)


def adapters() -> Iterator[int]:
    """Return the elements of low-rank adapters (LoRA, rank 16) of four GEMMs per block of Llama 3 8B: 256 tensors."""
    for _ in range(32):
        for outputs in (4096, 1024, 1024, 4096):
            yield from (16 * 4096, outputs * 16)


def vectors() -> Iterator[int]:
    """Return 512 tensors of 1 to 8192 elements."""
    return (1 + index * 5001 % 8192 for index in range(512))


def odd_lengths() -> Iterator[int]:
    """Yield lengths around tiles, forever."""
    return cycle((777, 0, 1, 4096, 31, 1024, 2049, 8, 129, 4095))


def long() -> Iterator[int]:
    """Yield a length of more than 65,535 elements, and a short one."""
    yield from (70_001, 3)


def many() -> Iterator[int]:
    """Yield lengths of a few elements, forever."""
    return cycle((3, 1, 0, 2))


MODELS: Mapping[str, Callable[[], Iterator[int]]] = {
    "odd": odd_lengths,
    "long": long,
    "many": many,
    "gpt2": gpt2,
    "resnet50": resnet50,
    "llama_block": llama_block,
    "adapters": adapters,
    "vectors": vectors,
}


def lengths(model: str, tensors: int) -> list[int]:
    """Return the elements of the first `count` tensors."""
    return list(islice(MODELS[model](), tensors))


def inputs(
    rng: torch.Generator, model: str, tensors: int, step: int, dtype: str, begin: str
) -> tuple[list[int] | float | torch.Tensor, ...]:
    """Return steps, scalars, and the tensors of four lists, one after another.

    With begin="anywhere", tensors begin at any element of their storages; with "aligned", at the first.
    """
    steps = [step + index % 3 for index in range(tensors)]

    room = _ROOM if begin == "anywhere" else 0

    sizes = [length + 2 * room for length in lengths(model, tensors)]

    def make_list(kind: str, spread: int, square: bool = False) -> list[torch.Tensor]:
        values = draw.normal(rng, sum(sizes), dtype=kind, mean=0.1)  # at once: a list may have hundreds of tensors
        tensors = []
        for index, piece in enumerate((values.square_() if square else values).split(sizes)):
            first = index * spread % room if room else 0  # not drawn: a table may say which are aligned
            tensors.append(piece.clone()[first : first + len(piece) - 2 * room])
        return tensors

    params = make_list(dtype, 1)
    grads = make_list(dtype, 4)
    moments = make_list("float32", 0)
    squares = make_list("float32", 8, square=True)
    return (steps, *SCALARS, *params, *grads, *moments, *squares)


def lists(steps: Sequence[int], tensors: Sequence[torch.Tensor]) -> list[Tensors]:
    """Split the tensors into parameters, gradients, first and second moments."""
    count = len(steps)
    return [tuple(tensors[place * count : (place + 1) * count]) for place in range(4)]


def updated(steps: Sequence[int], *scalars_and_tensors: Any) -> Tensors:
    """Return parameters, first and second moments."""
    params, _, moments, squares = lists(steps, scalars_and_tensors[len(SCALARS) :])
    return (*params, *moments, *squares)


def extreme(rng: torch.Generator, steps: Sequence[int], *scalars_and_tensors: Any) -> None:
    """Set the tensors, in turn: one that never had a gradient, one that eps decides, a large one, a plain one."""
    for index, (param, grad, moment, square) in enumerate(
        zip(*lists(steps, scalars_and_tensors[len(SCALARS) :]), strict=True)
    ):
        if index % 4 == 0:
            for tensor in (grad, moment, square):
                tensor.zero_()
        if index % 4 == 2:
            param *= 1e-3
            for tensor in (grad, moment):
                tensor *= 1e-9
            square *= 1e-18
        if index % 4 == 3:
            grad *= 1e12
            square *= 1e24


def dividing_by(divisor: Callable[[torch.Tensor, float], torch.Tensor]) -> Callable[..., Tensors]:
    """Return the reference, or a fault, given the divisor of the first moment as a function of root and eps."""

    def step_of_all(
        steps: Sequence[int],
        lr: float,
        beta1: float,
        beta2: float,
        eps: float,
        weight_decay: float,
        *tensors: torch.Tensor,
    ) -> Tensors:
        params = []
        moments = []
        squares = []
        for step, parameter, gradient, first_moment, second_moment in zip(steps, *lists(steps, tensors), strict=True):
            grad = gradient.double()
            moment = beta1 * first_moment.double() + (1 - beta1) * grad
            square = beta2 * second_moment.double() + (1 - beta2) * grad * grad
            root = (square / (1 - beta2**step)).sqrt()
            update = lr / (1 - beta1**step) * moment / divisor(root, eps)
            params.append(parameter.double() * (1 - lr * weight_decay) - update)
            moments.append(moment)
            squares.append(square)
        return (*params, *moments, *squares)

    return step_of_all


def magnitudes(
    steps: Sequence[int],
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    *tensors: torch.Tensor,
) -> Tensors:
    """Return the sums of the magnitudes of the terms of p, m and v: a step on magnitudes that adds the update."""
    params = []
    moments = []
    squares = []
    for step, param, grad, first, second in zip(steps, *lists(steps, tensors), strict=True):
        moment = beta1 * first.double().abs() + (1 - beta1) * grad.double().abs()
        square = beta2 * second.double() + (1 - beta2) * grad.double().square()
        root = (square / (1 - beta2**step)).sqrt()
        update = lr / (1 - beta1**step) * moment / (root + eps)
        params.append(param.double().abs() * (1 - lr * weight_decay) + update)
        moments.append(moment)
        squares.append(square)
    return (*params, *moments, *squares)


def one_by_one(
    steps: Sequence[int],
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    *tensors: torch.Tensor,
) -> None:
    """Launch PyTorch's fused kernel for each tensor, which saves all that vertical fusion can save."""
    counts = torch.tensor(steps, dtype=torch.float32, device=tensors[0].device).unbind()
    scalars: dict[str, Any] = {"lr": lr, "beta1": beta1, "beta2": beta2, "weight_decay": weight_decay, "eps": eps}
    for count, *group in zip(counts, *lists(steps, tensors), strict=True):
        param, grad, moment, square = ([tensor] for tensor in group)
        torch._fused_adamw_(param, grad, moment, square, [], [count], amsgrad=False, maximize=False, **scalars)


def compulsory_bytes(model: str, tensors: int, step: int, dtype: str, begin: str) -> int:
    """Count p, g, m and v read, and p, m and v written."""
    return (3 * BYTES[dtype] + 4 * BYTES["float32"]) * sum(lengths(model, tensors))


def case(model: str, tensors: int, step: int = 1, dtype: str = "float32", begin: str = "aligned") -> Case:
    return {"model": model, "tensors": tensors, "step": step, "dtype": dtype, "begin": begin}


PROBLEM = Problem(
    inputs=inputs,
    cases=(
        case("odd", 1),
        case("odd", 11, step=1000),
        case("odd", 37, dtype="bfloat16"),
        case("odd", 17, step=3, begin="anywhere"),
        case("odd", 13, dtype="bfloat16", begin="anywhere"),
        case("odd", 41, step=20),
    ),
    limits=(case("long", 2), case("many", 130)),
    reference=dividing_by(lambda root, eps: root + eps),
    in_place=updated,
    outputs=("p", "m", "v"),
    # 1 - beta2 computed in float32 from 0.999 is off by 1.3e-5, which v has in full, and p half of it and as much from
    # the bias correction; everything else is a dozen roundings of 6e-8. m is a difference where the gradient's sign is
    # not the moment's, and so is p beside its update: their errors are in units of the terms (mtol), not of the result.
    # atol spares most timed rounds the magnitudes. Rounding p to bfloat16 alone costs 2^-8 = 3.9e-3.
    tolerance={
        "float32": Tolerance(rtol=3e-5, atol=1e-5, mtol=3e-5),
        "bfloat16": Tolerance(rtol=4e-3, atol=1e-6, mtol=3e-5),
    },
    magnitudes=magnitudes,
    extreme=extreme,
    faults={
        "no eps": dividing_by(lambda root, _: root),  # 0 / 0 where a parameter has never had a gradient
        "eps inside the root": dividing_by(lambda root, eps: (root.square() + eps).sqrt()),
    },
    compulsory_bytes=compulsory_bytes,
    flops=lambda model, tensors, step, dtype, begin: 15 * sum(lengths(model, tensors)),
)
