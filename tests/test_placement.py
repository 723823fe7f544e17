"""Test which tensors count as device memory on a machine without a GPU."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import pytest
import torch

from kernelpath.device.placement import DEVICE, Placement, TensorOnHost
from kernelpath.work.dispatch_monitor import DispatchMonitor

Make = Callable[[torch.Tensor], torch.Tensor]


def create_on_default_device(x: torch.Tensor) -> torch.Tensor:
    torch.set_default_device(x.device)
    try:
        return torch.tensor([1.0, 2.0])
    finally:
        torch.set_default_device(None)


def create_in_device_context(x: torch.Tensor) -> torch.Tensor:
    with torch.device(x.device):
        return torch.zeros(3)


def differentiate(x: torch.Tensor) -> torch.Tensor:
    (gradient,) = torch.autograd.grad((x.detach().requires_grad_() * 2).sum(), x.detach(), allow_unused=True)
    return gradient if gradient is not None else torch.zeros_like(x)


class TwoOutputs(torch.autograd.Function):
    """Return two outputs. Autograd creates zeros for the gradient of the second output, which nothing uses."""

    @staticmethod
    def forward(ctx, x):  # type: ignore[no-untyped-def]
        return x * 2, x * 3

    @staticmethod
    def backward(ctx, first, second):  # type: ignore[no-untyped-def]
        TwoOutputs.second = second  # type: ignore[attr-defined]
        return first + second


def undefined_gradient(x: torch.Tensor) -> torch.Tensor:
    leaf = x.detach().requires_grad_()
    torch.autograd.grad(TwoOutputs.apply(leaf)[0].sum(), leaf)  # type: ignore[no-untyped-call]
    return TwoOutputs.second  # type: ignore[attr-defined, no-any-return]


# Most programs choose their device like this.
CHOSEN = "cuda" if torch.cuda.is_available() else "cpu"

ON_DEVICE: dict[str, Make] = {
    "input": lambda x: x,
    "view": lambda x: x[1:].view(-1),
    "empty_like": torch.empty_like,
    "new_empty": lambda x: x.new_empty(3),
    "new_tensor": lambda x: x.new_tensor([1, 2]),
    "empty": lambda x: torch.empty(3, device=x.device),
    "full": lambda x: torch.full((3,), 1.0, device=x.device),
    "arange": lambda x: torch.arange(3, device=x.device),
    "tensor": lambda x: torch.tensor([1, 2], device=x.device),
    "tensor of NumPy": lambda x: torch.tensor(np.ones(3), device=x.device),
    "as_tensor": lambda x: torch.as_tensor(np.ones(3), device=x.device),
    "to a device": lambda x: torch.from_numpy(np.ones(3)).to(x.device, non_blocking=True),
    "to a device and a dtype": lambda x: torch.from_numpy(np.ones(3)).to(x.device, torch.float32),
    "to by name": lambda x: torch.zeros(3).to(device=x.device),
    "to like a tensor": lambda x: torch.tensor([1.0]).to(x),
    "type_as": lambda x: torch.tensor([1]).type_as(x),
    "index of the device": lambda x: torch.empty(3, device=f"{x.device.type}:{x.device.index}"),
    "chosen by the program": lambda x: torch.empty(3, device=CHOSEN),
    "chosen in the call": lambda x: torch.zeros(3, device="cuda" if torch.cuda.is_available() else "cpu"),
    "of the type of an input": lambda x: torch.ones(3, device=x.device.type),
    "tensor on what was chosen": lambda x: torch.tensor([1, 2], device=CHOSEN),
    "like, on what was chosen": lambda x: torch.empty_like(x, device=CHOSEN),
    "to what was chosen": lambda x: torch.from_numpy(np.ones(3)).to(CHOSEN),
    "to what was chosen, by name": lambda x: torch.zeros(3).to(device=torch.device(CHOSEN)),
    "default device": create_on_default_device,
    "device context": create_in_device_context,
    "operator": lambda x: torch.stack([x, x]),
    "gradient": undefined_gradient,
    "parameter": lambda x: torch.nn.Parameter(x),
    "nothing": lambda x: torch.empty(0),
}

ON_HOST: dict[str, tuple[Make, str]] = {
    "empty": (lambda x: torch.empty(x.shape), "by empty without the device of an input"),
    "named in a call": (lambda x: torch.zeros(3).to("cpu"), "is a CPU tensor"),
    "named": (lambda x: torch.zeros(3, device="cpu"), "by zeros without the device of an input"),
    "like": (lambda x: torch.empty_like(x, device="cpu"), "by empty_like without the device of an input"),
    "tensor": (lambda x: torch.tensor([1, 2]), "copy it with .to(x.device)"),
    "from_numpy": (lambda x: torch.from_numpy(np.ones(3)), "copy it with .to(x.device)"),
    "frombuffer": (lambda x: torch.frombuffer(bytearray(8), dtype=torch.uint8), "copy it with .to(x.device)"),
    "arange": (lambda x: torch.arange(4) * 2, "is a CPU tensor"),
}


def launch(make: Make) -> torch.Tensor:
    """Pass to a kernel the tensor that `make` returns for an input."""
    placement = Placement()
    (x,) = placement.inputs([torch.randn(4)])
    with placement, DispatchMonitor(lambda fresh: fresh, placement=placement):
        out = make(x)
        assert out.device == (DEVICE if placement.is_on_device(out) and out.numel() else out.device)
        placement.check_launch([("x", x), ("out", out)])
    return out


@pytest.mark.parametrize("make", ON_DEVICE.values(), ids=ON_DEVICE)
def test_a_kernel_accepts_tensors_on_the_device(make: Make) -> None:
    launch(make)


@pytest.mark.parametrize(("make", "message"), ON_HOST.values(), ids=ON_HOST)
def test_a_kernel_refuses_tensors_on_the_host(make: Make, message: str) -> None:
    with pytest.raises(TensorOnHost, match=r"^out is a CPU tensor") as raised:
        launch(make)
    assert message in str(raised.value)


def test_a_tensor_on_the_device_is_moved_there_without_a_copy() -> None:
    placement = Placement()
    (x,) = placement.inputs([torch.randn(4)])
    with placement, DispatchMonitor(lambda fresh: fresh, placement=placement):
        assert x.to(x.device) is x
        assert x.to(x.device, copy=True).data_ptr() != x.data_ptr()
        assert x.device.type == "cpu"
        assert x.device == torch.empty_like(x).device != torch.empty(3).device


def test_outside_of_a_call_devices_are_unchanged() -> None:
    placement = Placement()
    x, device = placement.inputs([torch.randn(4), torch.device("cpu")])
    assert device == DEVICE
    with placement:
        assert x.device == DEVICE
    assert x.device == torch.device("cpu")
    assert torch.tensor([1.0]).to(x).device == torch.device("cpu")


def add_in_a_thread(x: torch.Tensor) -> torch.Tensor:
    sums: list[torch.Tensor] = []
    thread = threading.Thread(target=lambda: sums.append(x + x))
    thread.start()
    thread.join()
    return sums[0]


def test_a_tensor_created_by_a_thread_is_accepted() -> None:
    placement = Placement()
    (x,) = placement.inputs([torch.randn(4)])
    with placement, DispatchMonitor(lambda fresh: fresh, placement=placement):
        placement.check_launch([("sums", add_in_a_thread(x))])
        with pytest.raises(TensorOnHost, match="by empty without the device of an input"):
            placement.check_launch([("out", torch.empty(4))])
