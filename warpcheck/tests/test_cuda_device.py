"""Test programs that use device="cuda" on a machine without a GPU."""

from __future__ import annotations

import copy
import inspect
import io
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

import warpcheck
from warpcheck import initcheck
from warpcheck.frontends.torch_cuda import accelerator, operators
from warpcheck.hooks import Changed, Hook, torch_cuda
from warpcheck.initcheck import POISON

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU has tensors of its own")


@pytest.fixture
def gpu() -> Iterator[warpcheck.Report]:
    with warpcheck.gpu("sm_80") as report:
        yield report


# Kernels and functions as the author of a kernel library writes them.


@triton.jit  # type: ignore[untyped-decorator]
def scale_kernel(x, out, factor, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    tl.store(out + i, factor * tl.load(x + i, mask=mask), mask=mask)


@triton.jit  # type: ignore[untyped-decorator]
def scale_kernel_without_mask(x, out, factor, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, factor * tl.load(x + i), mask=i < n)  # the load has no mask


@triton.jit  # type: ignore[untyped-decorator]
def sum_kernel(x, out, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out, tl.sum(tl.load(x + i, mask=i < n, other=0.0)))


@triton.jit  # type: ignore[untyped-decorator]
def sum_kernel_without_atomic(x, out, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.sum(tl.load(x + i, mask=i < n, other=0.0))
    tl.store(out, tl.load(out) + total)  # not atomic


@triton.jit  # type: ignore[untyped-decorator]
def shift_kernel(x, out, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i + 1, mask=i + 1 < n)  # the neighbor's element
    tl.store(out + i, value, mask=i + 1 < n)


@triton.jit  # type: ignore[untyped-decorator]
def softmax_kernel(x, out, columns, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    i = tl.arange(0, BLOCK)
    row = tl.load(x + tl.program_id(0) * columns + i, mask=i < columns, other=-float("inf"))
    numerator = tl.exp(row - tl.max(row))
    tl.store(out + tl.program_id(0) * columns + i, numerator / tl.sum(numerator), mask=i < columns)


def scale(x: torch.Tensor, factor: float, kernel: Any = scale_kernel) -> torch.Tensor:
    out = torch.empty_like(x)
    kernel[(triton.cdiv(x.numel(), 256),)](x, out, factor, x.numel(), BLOCK=256)
    return out


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, factor: float) -> torch.Tensor:
        ctx.factor = factor
        return scale(x.contiguous(), factor)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        return scale(gradients[0].contiguous(), ctx.factor), None


def total(x: torch.Tensor, kernel: Any = sum_kernel) -> torch.Tensor:
    out = torch.zeros(1, device=x.device)
    kernel[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256)
    return out


def shift(x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    shift_kernel[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256)
    return out


def softmax(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    softmax_kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return out


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("size", [1, 255, 1000])
def test_a_correct_kernel_has_no_fault(gpu: warpcheck.Report, size: int, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x = torch.randn(size, device="cuda", dtype=dtype)
    out = scale(x, 2.0)
    assert out.device == torch.device("cuda", 0)
    torch.testing.assert_close(out, 2 * x)
    assert len(gpu.launches) == 1


def test_correct_reductions_have_no_fault(gpu: warpcheck.Report) -> None:
    x = torch.randn(1000, device="cuda")
    torch.testing.assert_close(total(x), x.sum().reshape(1))
    logits = torch.randn(8, 100).cuda()
    torch.testing.assert_close(softmax(logits), torch.softmax(logits, -1))
    out = shift(x, torch.zeros_like(x))
    assert out[:-1].equal(x[1:])


def unset_output(x: torch.Tensor) -> torch.Tensor:
    return total(x) + scale(torch.empty_like(x), 1.0)[0]


def short_output(x: torch.Tensor) -> None:
    out = torch.empty(x.numel() - 1, device="cuda")
    scale_kernel[(4,)](x, out, 1.0, x.numel(), BLOCK=256)


@pytest.mark.parametrize(
    ("program", "fault", "kernel", "text"),
    [
        (
            lambda x: scale(x, 2.0, scale_kernel_without_mask),
            warpcheck.OutOfBounds,
            scale_kernel_without_mask,
            "the load has no mask",
        ),
        (lambda x: total(x, sum_kernel_without_atomic), warpcheck.Race, sum_kernel_without_atomic, "not atomic"),
        (lambda x: shift(x, x), warpcheck.Race, shift_kernel, "neighbor's element"),
        (unset_output, warpcheck.Uninitialized, scale_kernel, "tl.load(x + i"),
        (short_output, warpcheck.OutOfBounds, scale_kernel, "tl.store(out + i"),
    ],
    ids=["missing mask", "sum without atomic", "shift in place", "unset output", "short output"],
)
def test_a_planted_fault_is_reported(
    gpu: warpcheck.Report, program: Callable[[torch.Tensor], Any], fault: type[warpcheck.Fault], kernel: Any, text: str
) -> None:
    with pytest.raises(fault) as caught:
        program(torch.randn(1000, device="cuda"))
    lines, first = inspect.getsourcelines(kernel.fn)
    assert caught.value.file == __file__
    marked = {first + offset for offset, line in enumerate(lines) if text in line}
    # A race has two lines, and the message names the second one.
    assert caught.value.line in marked or f"line {min(marked)}" in caught.value.message
    assert gpu.faults == [caught.value]


def test_host_writes_are_tracked_by_element(gpu: warpcheck.Report) -> None:
    """The host may write the number whose bits equal the pattern of unwritten memory."""
    pattern = torch.full((1000,), POISON, dtype=torch.int16, device="cuda")
    assert scale(pattern, 1).equal(pattern)
    partly = torch.empty(4, 500, dtype=torch.int16, device="cuda")
    partly.t()[::2, 1:3].fill_(POISON)
    assert scale(partly.view(-1)[500:501], 1).item() == POISON
    with pytest.raises(warpcheck.Uninitialized, match=r"x\[1\]"):
        scale(partly.view(-1)[500:502], 1)


def test_the_states_of_freed_or_resized_memory_are_forgotten(gpu: warpcheck.Report) -> None:
    def move_states(source: torch.Tensor, target: torch.Tensor) -> int:
        """Make the allocator's records say that the target's address was the source's."""
        address = target.untyped_storage().data_ptr()
        initcheck._allocations[address] = initcheck._allocations.pop(source.untyped_storage().data_ptr())
        return address

    target = torch.zeros(1000, device="cuda")
    freed = torch.empty(1, device="cuda")
    address = move_states(freed, target)
    del freed
    target.fill_(1)
    assert address not in initcheck._allocations
    resized = torch.empty(1, device="cuda")
    address = move_states(resized, target)
    assert scale(target, 2.0).sum().item() == 2000
    assert address not in initcheck._allocations


def test_autograd_through_a_kernel(gpu: warpcheck.Report) -> None:
    x = torch.randn(300, device="cuda", requires_grad=True)
    y = Scale.apply(x, 3.0)  # type: ignore[no-untyped-call]
    (y * y).sum().backward()
    assert x.grad is not None
    assert x.grad.device.type == "cuda"
    torch.testing.assert_close(x.grad, 18 * x.detach())
    assert len(gpu.launches) == 2


def test_a_training_step(gpu: warpcheck.Report) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(16, 32), torch.nn.LayerNorm(32), torch.nn.GELU(), torch.nn.Linear(32, 4)
    ).to("cuda")
    reference = copy.deepcopy(model).cpu()
    x = torch.randn(8, 16)
    target = torch.randint(4, (8,))
    for network, device in ((model, "cuda"), (reference, "cpu")):
        optimizer = torch.optim.AdamW(network.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(network(x.to(device)), target.to(device))
            loss.backward()
            optimizer.step()
        assert {parameter.device.type for parameter in network.parameters()} == {device}
    for trained, expected in zip(model.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(trained.cpu(), expected)


def test_autocast_and_gradient_scaling(gpu: warpcheck.Report) -> None:
    layer = torch.nn.Linear(8, 8, device="cuda")
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    with torch.autocast("cuda", dtype=torch.float16):
        output = layer(torch.randn(4, 8, device="cuda"))
        loss = torch.nn.functional.mse_loss(output.float(), torch.zeros(4, 8, device="cuda"))
    assert output.dtype == torch.float16
    before = layer.weight.detach().clone()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    assert not before.equal(layer.weight)


@pytest.mark.parametrize(
    "layer",
    [
        lambda: torch.nn.Conv2d(4, 4, 3, padding=1, groups=4),
        lambda: torch.nn.Conv1d(4, 8, 3),
        lambda: torch.nn.BatchNorm2d(4),
        lambda: torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True),
        lambda: torch.nn.LSTM(8, 8, batch_first=True),
        lambda: torch.nn.GRU(8, 8),
        lambda: torch.nn.Embedding(10, 8),
    ],
    ids=["depthwise", "convolution", "batch norm", "transformer", "LSTM", "GRU", "embedding"],
)
def test_layers_compute_as_on_the_cpu(gpu: warpcheck.Report, layer: Callable[[], torch.nn.Module]) -> None:
    torch.manual_seed(0)
    module = layer()
    shapes = {"Conv2d": (2, 4, 8, 8), "BatchNorm2d": (2, 4, 8, 8), "Conv1d": (2, 4, 8)}
    name = type(module).__name__
    x = torch.randint(10, (3, 4)) if name == "Embedding" else torch.randn(shapes.get(name, (2, 4, 8)))
    results = []
    for device in ("cpu", "cuda"):
        network = copy.deepcopy(module).to(device)
        output = network(x.to(device))
        output = output[0] if isinstance(output, tuple) else output
        output.square().sum().backward()
        assert output.device.type == device
        results.append([output.detach().cpu(), *(p.grad.cpu() for p in network.parameters() if p.grad is not None)])
    for got, expected in zip(results[1], results[0], strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("layer", [torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN])
def test_recurrent_layers_of_inference_mode(
    gpu: warpcheck.Report, layer: Callable[[int, int], torch.nn.Module]
) -> None:
    torch.manual_seed(0)
    module = layer(8, 8)
    x = torch.randn(2, 4, 8)
    with torch.inference_mode():
        expected = module(x)[0]
        torch.testing.assert_close(module.cuda()(x.cuda())[0].cpu(), expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("norm", [torch.nn.LayerNorm, lambda size: torch.nn.GroupNorm(4, size)])
def test_norms_accumulate_in_float32(
    gpu: warpcheck.Report, norm: Callable[[int], torch.nn.Module], dtype: torch.dtype
) -> None:
    torch.manual_seed(0)
    x = torch.randn(2048, 64).to(dtype)
    gradient = torch.randn(2048, 64).to(dtype)
    gradients = []
    for target, device in ((torch.float32, "cpu"), (dtype, "cuda")):
        layer = norm(64).to(device, target)
        layer(x.to(device, target)).backward(gradient.to(device, target))
        weight = next(layer.parameters())
        assert weight.grad is not None
        assert weight.grad.dtype == target
        gradients.append(weight.grad.cpu().float())
    torch.testing.assert_close(gradients[1], gradients[0], rtol=2 * torch.finfo(dtype).eps, atol=0.1)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("softmax", [torch.softmax, torch.log_softmax])
def test_softmax_rounds_once(gpu: warpcheck.Report, softmax: Any, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x = torch.randn(8, 4096).to(dtype)
    gradient = torch.randn(8, 4096)
    expected = softmax(x.float(), -1)
    assert softmax(x.cuda(), -1).cpu().equal(expected.to(dtype))

    leaf = x.cuda().requires_grad_()
    result = softmax(leaf, -1, dtype=torch.float32)
    torch.testing.assert_close(result.cpu(), expected)
    result.backward(gradient.cuda())
    reference = x.float().requires_grad_()
    softmax(reference, -1).backward(gradient)
    assert leaf.grad is not None
    assert reference.grad is not None
    torch.testing.assert_close(leaf.grad.cpu(), reference.grad.to(dtype), rtol=torch.finfo(dtype).eps, atol=1e-6)


def test_the_gradient_of_label_smoothing_is_accurate(gpu: warpcheck.Report) -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 32000)
    target = torch.arange(4)
    gradients = []
    for device, dtype in (("cuda", torch.float32), ("cpu", torch.float64)):
        leaf = x.to(device, dtype).requires_grad_()
        torch.nn.functional.cross_entropy(leaf, target.to(device), label_smoothing=0.2).backward()
        assert leaf.grad is not None
        gradients.append(leaf.grad.cpu().double())
    torch.testing.assert_close(*gradients, rtol=3e-6, atol=1e-11)


def test_attention_equals_the_cpu(gpu: warpcheck.Report) -> None:
    q, k, v = (torch.randn(2, 4, 16, 8, device="cuda", requires_grad=True) for _ in range(3))
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    out.sum().backward()
    expected = torch.nn.functional.scaled_dot_product_attention(q.cpu(), k.cpu(), v.cpu(), is_causal=True)
    torch.testing.assert_close(out.cpu(), expected)
    assert q.grad is not None


def test_views_share_memory(gpu: warpcheck.Report) -> None:
    x = torch.zeros(4, 6, device="cuda")
    view = x.t()[1:3].unsqueeze(0)
    view.fill_(1)
    assert x.sum().item() == 8
    assert view.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    assert view._base is x
    (row,) = x[:1].unbind()
    row.add_(5)
    assert x[0].tolist() == [5, 6, 6, 5, 5, 5]
    assert x.view(torch.int32).dtype == torch.int32


def test_an_output_argument_is_resized(gpu: warpcheck.Report) -> None:
    x = torch.arange(4.0, device="cuda")
    out = torch.empty(0, device="cuda")
    assert torch.add(x, 1, out=out) is out
    assert out.tolist() == [1, 2, 3, 4]
    out.resize_(6)
    assert out[:4].tolist() == [1, 2, 3, 4]
    out.resize_(2)
    assert out.tolist() == [1, 2]


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.uint16, torch.complex64, torch.bool, torch.int8])
def test_tensors_of_each_dtype(gpu: warpcheck.Report, dtype: torch.dtype) -> None:
    x = torch.zeros(3, 5, device="cuda", dtype=dtype)
    assert (x.dtype, x.device.type, x.shape) == (dtype, "cuda", (3, 5))
    assert x[:, 1:].contiguous().cpu().view(torch.uint8).eq(0).all()
    if not dtype.is_complex:
        assert torch.ones(3, device="cuda").copy_(x[:, 0]).eq(0).all()
    else:
        y = torch.randn(3, dtype=dtype).cuda()
        torch.testing.assert_close((y.conj() * y).cpu().imag, torch.zeros(3))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x % 4,
        lambda x: x % 2.5,
        lambda x: x & 3,
        lambda x: torch.bitwise_xor(3, x),
        lambda x: torch.fmod(x, 4),
        lambda x: x[0] % 4,
        lambda x: x.int().sum() % 3,
        lambda x: x.half() % 3,
        lambda x: x.clone().remainder_(3),
        lambda x: torch.special.xlogy(x.float(), 2),
        lambda x: torch.where(x > 2, x, 7),
    ],
)
def test_operators_with_a_number_equal_the_cpu(
    gpu: warpcheck.Report, function: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    x = torch.arange(6, dtype=torch.uint8)
    result = function(x.cuda())
    expected = function(x)
    assert result.is_cuda
    assert result.dtype == expected.dtype
    assert result.cpu().equal(expected)


def test_a_program_may_replace_the_kernel_of_an_operator(gpu: warpcheck.Report) -> None:
    library = torch.library.Library("aten", "IMPL")
    library.impl("abs", lambda x: x * 0 + 7, "CUDA")  # warpcheck runs this operator in its fallback
    library.impl("_flash_attention_forward", lambda *_: None, "CUDA")  # warpcheck registers a kernel for this operator
    assert torch.ones(2, device="cuda").abs().tolist() == [7, 7]
    del library


def test_histograms_of_integers(gpu: warpcheck.Report) -> None:
    experts = torch.tensor([1, 2, 2, 5], device="cuda")
    counts = torch.histc(experts, bins=6, min=0, max=5)
    assert counts.tolist() == [0, 1, 2, 0, 0, 1]
    assert counts.dtype == torch.int64
    assert torch.histc(experts.float(), bins=6, min=0, max=5).tolist() == counts.tolist()


def test_matmul_with_an_output_dtype(gpu: warpcheck.Report) -> None:
    a = torch.full((2, 3, 3), 1 / 3, device="cuda", dtype=torch.bfloat16)
    b = torch.eye(3, device="cuda", dtype=torch.bfloat16).expand(2, 3, 3)
    expected = a.float() + a.float() / 256  # not representable in bfloat16
    b = b + torch.eye(3, device="cuda").roll(1, 0).bfloat16() / 256
    assert torch.equal(torch.bmm(a, b, out_dtype=torch.float32), expected)
    assert torch.equal(torch.mm(a[0], b[0], out_dtype=torch.float32), expected[0])
    if "dtype" in torch.ops.aten.addmm.overloads():
        bias = torch.ones(3, device="cuda")
        result = torch.addmm(bias, a[0], b[0], out_dtype=torch.float32, alpha=2)
        assert torch.equal(result, 1 + 2 * expected[0])


@triton.jit(repr=lambda specialization: f"named_{specialization.constants['BLOCK']}")  # type: ignore[untyped-decorator]
def named_kernel(x, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    tl.store(x + tl.arange(0, BLOCK), 1.0)


def test_a_kernel_with_a_name_of_its_own(gpu: warpcheck.Report) -> None:
    x = torch.zeros(32, device="cuda")
    named_kernel[(1,)](x, BLOCK=32)
    assert x.eq(1).all()
    assert [launch.kernel for launch in gpu.launches] == ["named_32"]


def test_a_compiled_kernel_is_called_with_its_constants(gpu: warpcheck.Report) -> None:
    x = torch.zeros(32, device="cuda")
    compiled = named_kernel[(1,)](x, BLOCK=32)
    x.zero_()
    compiled[(1, 1, 1)](x, 32)
    assert x.eq(1).all()
    with pytest.raises(TypeError, match=r"named_32 takes 2 arguments \(x, BLOCK\) and not 1"):
        compiled[(1, 1, 1)](x)


class Reversed:
    """A vector in reverse order. It is not a tensor, because PyTorch has no negative strides."""

    def __init__(self, base: torch.Tensor) -> None:
        self.base = base
        self.shape = base.shape
        self.dtype = base.dtype
        self.device = base.device

    def stride(self) -> tuple[int]:
        return (-1,)

    def numel(self) -> int:
        return self.base.numel()

    def element_size(self) -> int:
        return self.base.element_size()

    def data_ptr(self) -> int:
        return self.base.data_ptr() + (self.numel() - 1) * self.element_size()


@triton.jit  # type: ignore[untyped-decorator]
def reverse_kernel(x, out, first, n: tl.constexpr):  # type: ignore[no-untyped-def]
    i = tl.arange(0, n)
    tl.store(out + i, tl.load(x - first - i))


def test_an_object_with_negative_strides(gpu: warpcheck.Report) -> None:
    x = torch.arange(64.0, device="cuda")
    out = torch.empty_like(x)
    reverse_kernel[(1,)](Reversed(x), out, 0, 64)
    assert out.equal(x.flip(0))
    with pytest.raises(warpcheck.OutOfBounds):
        reverse_kernel[(1,)](Reversed(x), out, 1, 64)


def test_an_object_that_represents_a_part_of_its_base(gpu: warpcheck.Report) -> None:
    x = torch.arange(64.0, device="cuda")
    half = Reversed(x)
    half.shape = torch.Size([32])
    half.numel = lambda: 32  # type: ignore[method-assign]
    out = torch.empty(64, device="cuda")
    reverse_kernel[(1,)](half, out, 0, 32)
    assert out[:32].equal(x[:32].flip(0))
    with pytest.raises(warpcheck.OutOfBounds, match=r"x \(32 float32\)"):
        reverse_kernel[(1,)](half, out, 0, 64)


class TypedPointer:
    """An address and a dtype, which is all that Triton needs of an argument."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.dtype = tensor.dtype
        self.data_ptr = tensor.data_ptr


def test_an_object_with_only_an_address_and_a_dtype(gpu: warpcheck.Report) -> None:
    x = torch.arange(64.0, device="cuda")
    out = torch.empty_like(x)
    reverse_kernel[(1,)](TypedPointer(x[63:]), out, 0, 64)
    assert out.equal(x.flip(0))
    with pytest.raises(warpcheck.OutOfBounds):
        reverse_kernel[(1,)](TypedPointer(x[63:]), out, 1, 64)


def test_a_tensor_that_triton_reinterprets(gpu: warpcheck.Report) -> None:
    x = torch.arange(64, device="cuda", dtype=torch.int32)
    out = torch.empty(64, device="cuda", dtype=torch.int32)
    reverse_kernel[(1,)](triton.reinterpret(x[63:], tl.uint32), out, 0, 1)
    assert out[0] == 63
    with pytest.raises(warpcheck.OutOfBounds, match=r"x \(1 int32\)"):
        reverse_kernel[(1,)](triton.reinterpret(x[63:], tl.uint32), out, 1, 1)


def test_unwritten_memory_behind_an_object_that_represents_a_tensor(gpu: warpcheck.Report) -> None:
    x = torch.empty(64, device="cuda")
    out = torch.empty_like(x)
    with pytest.raises(warpcheck.Uninitialized):
        reverse_kernel[(1,)](Reversed(x), out, 0, 64)
    x.zero_()
    reverse_kernel[(1,)](Reversed(x), out, 0, 64)
    assert out.eq(0).all()


def test_mixed_devices_raise_as_on_a_gpu(gpu: warpcheck.Report) -> None:
    x = torch.ones(3, device="cuda")
    with pytest.raises(RuntimeError, match=r"at least two devices, cuda:0 and cpu"):
        x + torch.ones(3)
    with pytest.raises(TypeError, match="can't convert cuda:0 device type tensor to numpy"):
        x.numpy()
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        x.to("cuda:1")
    assert (x + torch.tensor(1.0)).tolist() == [2, 2, 2]
    assert x[torch.tensor([0, 1])].device.type == "cuda"
    assert x.cpu().numpy().tolist() == [1, 1, 1]


def test_the_functions_of_torch_cuda(gpu: warpcheck.Report) -> None:
    assert torch.cuda.is_available()
    assert torch.cuda.device_count() == 1
    assert torch.cuda.current_device() == 0
    assert torch.cuda.get_device_capability("cuda:0") == (8, 0)
    assert torch.cuda.get_device_properties(0).multi_processor_count == 108
    assert torch.accelerator.current_accelerator() == torch.device("cuda")
    assert triton.runtime.driver.active.get_active_torch_device() == torch.device("cuda", 0)
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    stream = torch.cuda.Stream()
    with torch.cuda.device(0), torch.cuda.stream(stream):
        assert torch.cuda.current_stream() == stream
        start.record()
        x = torch.ones(3, device="cuda")
        x.record_stream(stream)
        end.record()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    assert torch.Event("cuda", enable_timing=True).query()
    assert start.elapsed_time(end) > 0
    assert torch.cuda.memory_allocated() >= 12
    assert torch.cuda.max_memory_allocated() >= torch.cuda.memory_allocated()
    assert torch.accelerator.memory_allocated() >= 12
    assert torch.vmap(lambda row: row * torch.cuda.memory_allocated())(x.reshape(3, 1)).gt(0).all()
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.empty_cache()
    assert torch.cuda.CUDAGraph | None  # annotations contain this expression
    with pytest.raises(NotImplementedError, match="CUDA graphs"):
        torch.cuda.CUDAGraph()


def test_the_state_of_torch_cuda_ends_with_the_scope() -> None:
    with warpcheck.gpu():
        entered = torch.cuda.stream(torch.cuda.Stream())
        entered.__enter__()
        nbytes = 1 << 26
        x = torch.ones(nbytes, dtype=torch.int8, device="cuda")
        assert torch.cuda.max_memory_allocated() >= nbytes
        del x
    with warpcheck.gpu():
        assert torch.cuda.max_memory_allocated() < nbytes
        entered.__exit__(None, None, None)
        assert torch.cuda.current_stream() == torch.cuda.default_stream()


def test_random_numbers_repeat(gpu: warpcheck.Report) -> None:
    torch.cuda.manual_seed(1)
    first = torch.randn(4, device="cuda")
    state = torch.cuda.get_rng_state()
    second = torch.rand(4, device="cuda")
    torch.cuda.manual_seed_all(1)
    assert torch.randn(4, device="cuda").equal(first)
    torch.cuda.set_rng_state(state)
    assert torch.rand(4, device="cuda").equal(second)
    generator = torch.Generator(device="cuda")
    assert generator.device.type == "cuda"
    assert all(isinstance(value, torch.Generator) for value in (generator, torch.default_generator))
    assert not isinstance(state, torch.Generator)
    numbers = torch.randn(4, device="cuda", generator=generator.manual_seed(2))
    assert torch.randn(4, device="cuda", generator=generator.manual_seed(2)).equal(numbers)


@pytest.mark.parametrize("is_default", [True, False])
def test_the_state_of_a_generator_is_a_seed_and_an_offset(gpu: warpcheck.Report, is_default: bool) -> None:
    """Kernels that generate random numbers read both, and advance the offset by the numbers that they use."""
    generator = torch.cuda.default_generators[0] if is_default else torch.Generator("cuda")

    def generate() -> torch.Tensor:
        return torch.rand(4, device="cuda", generator=generator)

    for seed in (7, -1, 2**63):
        generator.manual_seed(seed)
        assert generator.get_state().view(torch.int64).tolist() == [(seed + 2**63) % 2**64 - 2**63, 0]
        assert generator.initial_seed() == seed % 2**64
    generator.manual_seed(7)
    first = generate()
    state = generator.get_state()
    assert state.view(torch.int64).tolist() == [7, 4]
    second = generate()
    assert generator.get_offset() == 8
    generator.set_state(state)
    assert generator.get_offset() == 4
    assert generate().equal(second)
    state.view(torch.int64)[1] += 40
    generator.set_state(state)
    assert generator.get_state().equal(state)
    assert not generate().equal(second)
    generator.manual_seed(7)  # the same seed as before
    assert generator.get_offset() == 0
    assert generate().equal(first)
    generator.set_offset(0)
    assert generate().equal(first)


def test_functions_draw_from_the_default_generator_of_the_gpu(gpu: warpcheck.Report) -> None:
    torch.manual_seed(3)
    assert torch.cuda.initial_seed() == 3
    first = torch.rand(4, device="cuda")
    torch.cuda.default_generators[0].manual_seed(3)
    assert torch.rand(4, device="cuda", generator=torch.cuda.default_generators[0]).equal(first)
    assert torch.cuda.get_rng_state().view(torch.int64).tolist() == [3, 4]


def test_copying_saving_and_pinning_tensors(gpu: warpcheck.Report) -> None:
    layer = torch.nn.Linear(3, 3).cuda()
    assert copy.deepcopy(layer).weight.equal(layer.weight)
    file = io.BytesIO()
    torch.save(layer.state_dict(), file)
    file.seek(0)
    loaded = torch.load(file)
    assert loaded["weight"].device.type == "cuda"
    assert loaded["weight"].equal(layer.weight)
    file.seek(0)
    assert torch.load(file, map_location="cpu")["weight"].device.type == "cpu"
    pinned = torch.ones(3).pin_memory()
    assert pinned.to("cuda", non_blocking=True).sum().item() == 3
    dataset = torch.utils.data.TensorDataset(torch.ones(4, 2))
    for (batch,) in torch.utils.data.DataLoader(dataset, batch_size=2, pin_memory=True):
        assert batch.to("cuda", non_blocking=True).sum().item() == 4


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_the_default_device_and_function_modes(gpu: warpcheck.Report) -> None:
    with torch.device("cuda"):
        assert torch.ones(3).device.type == "cuda"
        assert torch.nn.Linear(2, 2).weight.is_cuda
    with torch.inference_mode():
        torch.ones(2, device="cuda").add_(1)
    x = torch.ones(2, device="cuda", requires_grad=True)
    (gradient,) = torch.autograd.grad((x * x).sum(), x)
    assert gradient.tolist() == [2, 2]
    assert torch.func.grad(lambda t: (t**3).sum())(x.detach()).tolist() == [3, 3]
    hessian = torch.func.hessian(lambda t: (t**3).sum())(x.detach())
    assert hessian.tolist() == [[6, 0], [0, 6]]
    assert torch.vmap(torch.dot)(torch.ones(2, 3).cuda(), torch.ones(2, 3).cuda()).tolist() == [3, 3]


def test_a_cuda_kernel_takes_a_table_of_pointers_to_cuda_tensors(gpu: warpcheck.Report) -> None:
    kernel = warpcheck.cuda.kernel(
        "__global__ void copy(float* out, float* const* table) {\n"
        "    out[threadIdx.x] = table[threadIdx.x / 4][threadIdx.x % 4];\n}\n",
        "copy",
    )
    rows = [torch.full((4,), float(i), device="cuda") for i in range(2)]
    table = torch.tensor([row.data_ptr() for row in rows], device="cuda")
    out = torch.empty(8, device="cuda")
    kernel[1, 8](out, table)
    assert out.tolist() == [0] * 4 + [1] * 4
    with pytest.raises(warpcheck.OutOfBounds):
        kernel[1, 12](out, table)


def test_cpu_tensors_still_work(gpu: warpcheck.Report) -> None:
    x = torch.randn(1000)
    out = scale(x, 2.0)
    assert out.device.type == "cpu"
    assert out.equal(2 * x)


def test_a_scope_restores_pytorch() -> None:
    def read_state() -> dict[str, Any]:
        modules = (torch.cuda, torch.cuda.memory, torch.cuda.random, torch.cuda.nvtx, torch._C, torch.accelerator)
        return {
            **{f"{module.__name__}.{name}": value for module in modules for name, value in vars(module).items()},
            "torch": dict(vars(torch)),
            "storage": dict(vars(torch.UntypedStorage)),
            "accelerator": torch.accelerator.current_accelerator(),
            "version": torch.version.cuda,
            "backward": vars(torch.autograd)["_engine_run_backward"],
        }

    escaped: list[torch.Tensor] = []

    def step_and_fail() -> None:
        escaped.append(torch.ones(3, device="cuda", requires_grad=True))
        (escaped[0] * 2).sum().backward()
        raise ZeroDivisionError

    before = read_state()
    with pytest.raises(ZeroDivisionError), warpcheck.gpu():
        step_and_fail()
    assert read_state() == before
    (x,) = escaped
    with pytest.raises((AssertionError, RuntimeError), match=r"CUDA|NVIDIA"):
        torch.ones(3, device="cuda")
    with pytest.raises((AssertionError, RuntimeError), match=r"CUDA|NVIDIA"):
        torch.ones(3).cuda()
    y = torch.ones(3, requires_grad=True)
    (y * y).sum().backward()
    assert x.cpu().tolist() == (x + 0).tolist() == [1, 1, 1], "a tensor that outlives its scope can be read"
    assert "cuda:0" in repr(x)
    with pytest.raises(RuntimeError, match=r"accelerator|hasPrimaryContext"):
        (x * x).sum().backward()
    with warpcheck.gpu():  # a tensor from an earlier scope works in this one
        (x * 3).sum().backward()
        assert x.grad is not None
        assert x.grad.tolist() == [5, 5, 5]


def test_an_unknown_version_of_pytorch_is_not_modified(monkeypatch: pytest.MonkeyPatch) -> None:
    def read_words() -> tuple[int, int]:
        guard, table = accelerator._words()
        return guard._word.value, table._word.value

    before = read_words()
    missing_hook = Hook("torch._C", "_missing", "the loss")
    monkeypatch.setattr(torch_cuda, "ENSURE_GUARD", missing_hook)
    with pytest.raises(Changed, match=r"no longer has torch\._C\._missing: the loss"):
        accelerator._guard_word()
    assert read_words() == before
    with pytest.raises(Changed, match="has no operator aten::missing"):
        operators._overload("missing.out")
    monkeypatch.setattr(torch_cuda, "ACCELERATOR", replace(missing_hook, name="_get_accelerator_name"))
    monkeypatch.setattr(torch._C, "_get_accelerator_name", lambda: "xpu", raising=False)
    with pytest.raises(Changed, match="does not take its accelerator"):
        accelerator.install()
    assert read_words()[1] == before[1]


def test_backward_before_the_first_scope_and_on_other_threads() -> None:
    """The autograd engine starts its threads at the first backward of a process, before there is a simulated GPU."""
    program = """
        import threading, torch, warpcheck
        x = torch.ones(3, requires_grad=True)
        (x * x).sum().backward()
        def step():
            y = torch.ones(3, device="cuda", requires_grad=True)
            (y * y).sum().backward()
            assert y.grad.tolist() == [2, 2, 2]
            done.append(1)
        done = []
        with warpcheck.gpu():
            step()
            thread = threading.Thread(target=step)
            thread.start()
            thread.join()
        assert len(done) == 2
        scope = warpcheck.gpu()
        scope.__enter__()
        step()
        print("ended inside a scope")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=False, timeout=120
    )
    assert (done.returncode, done.stdout.strip()) == (0, "ended inside a scope"), done.stderr


def test_scopes_do_not_leak_memory() -> None:
    import gc
    import resource

    def enter_scope() -> None:
        with warpcheck.gpu():
            torch.empty(1 << 18, device="cuda").fill_(1)

    for _ in range(20):
        enter_scope()
    gc.collect()
    object_count = len(gc.get_objects())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(300):
        enter_scope()
    gc.collect()
    # A leak of one object per scope would add at least 300.
    assert len(gc.get_objects()) - object_count < 100
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak < 50 << 10, (
        "the peak grew by more than 50 MB, while the scopes allocated 300 MB in total"
    )
