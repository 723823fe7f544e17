"""Run the operators of CUDA tensors with the kernels of the CPU.

A fallback of the CUDA dispatch key gets every operator, with its tensors as CPU tensors on the same memory. It is below
autograd, autocast and functorch, which therefore work as on a GPU.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import torch

from warpcheck import initcheck, simulated_gpu
from warpcheck.frontends import NotSimulated
from warpcheck.frontends.torch_cuda import accelerator
from warpcheck.frontends.torch_cuda.generators import generator_of_numbers
from warpcheck.frontends.torch_cuda.tensors import (
    CPU,
    CPU_KEYS,
    cpu_alias,
    cpu_bytes,
    cuda_alias,
    cuda_from_cpu,
    set_storage,
)
from warpcheck.hooks import Changed
from warpcheck.hooks import torch_cuda as hooks

__all__ = ["register"]

_aten = torch.ops.aten

# The operators that take CUDA tensors together with CPU tensors of any size. Others take only scalars of the CPU.
_MIXING_OPERATORS = {
    "copy_",
    "_to_copy",
    "index",
    "index_put",
    "index_put_",
    "_index_put_impl_",
    "_unsafe_index",
    "_unsafe_index_put",
    "set_",
    "_ctc_loss",
    "_ctc_loss_backward",
}

# The operators whose result is memory that nothing has written.
_ALLOCATIONS = {"empty.memory_format", "empty_strided"}


class _Call:
    """The conversion of the arguments of one operator to the CPU, and of its results to CUDA.

    Attributes:
        tensors: Each CUDA tensor of the arguments with its CPU tensor.
        device: The device that the operator gets as an argument, which is that of its results; None if it gets none.
        has_cpu_tensor: Whether an argument is a CPU tensor with dimensions. CUDA accepts scalars of the CPU.
    """

    def __init__(self) -> None:
        self.tensors: list[tuple[torch.Tensor, torch.Tensor]] = []
        self.device: torch.device | None = None
        self.has_cpu_tensor = False
        self._storages: dict[int, tuple[torch.UntypedStorage, torch.UntypedStorage]] = {}

    def to_cpu(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self._tensor_to_cpu(value)
        if isinstance(value, (list, tuple)):
            return type(value)([self.to_cpu(item) for item in value])
        if isinstance(value, torch.device):
            self.device = value
            return self._device_to_cpu(value)
        if isinstance(value, torch._C.Generator):
            return generator_of_numbers(value)
        return value

    def _tensor_to_cpu(self, tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.is_cuda:
            self.has_cpu_tensor |= tensor.dim() > 0 and tensor.device.type == "cpu"
            return tensor
        for cuda, cpu in self.tensors:
            if cuda is tensor:
                return cpu
        alias: torch.Tensor = cpu_alias(tensor, self._storages)
        self.tensors.append((tensor, alias))
        return alias

    @staticmethod
    def _device_to_cpu(device: torch.device) -> torch.device:
        if device.type != "cuda":
            return device
        if device.index not in (None, 0):
            raise torch.AcceleratorError("CUDA error: invalid device ordinal")
        return CPU

    def to_cuda(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self._tensor_to_cuda(value)
        if isinstance(value, (list, tuple)):
            return type(value)([self.to_cuda(item) for item in value])
        return value

    def _tensor_to_cuda(self, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.device.type != "cpu" or (self.device is not None and self.device.type != "cuda"):
            return tensor
        for cuda, cpu in self.tensors:
            if cpu is tensor:
                return cuda
        if tensor._is_zerotensor():  # a tangent of zeros, which has no memory
            tensor = torch.zeros(tensor.shape, dtype=tensor.dtype, device=CPU)
        return self._on_cuda_storage(tensor)

    def update_resized(self) -> None:
        """Give the CUDA tensors the memory and layout of CPU tensors that the operator has resized."""
        for cuda, cpu in self.tensors:
            if cpu.data_ptr() != cuda.data_ptr() or cpu.size() != cuda.size() or cpu.stride() != cuda.stride():
                resized = self._on_cuda_storage(cpu)
                set_storage(cuda, resized.untyped_storage(), resized.storage_offset(), resized.size(), resized.stride())

    def _on_cuda_storage(self, cpu: torch.Tensor) -> torch.Tensor:
        """Return a CPU tensor as a CUDA tensor, on the CUDA storage of an argument if the memory is that argument's."""
        storage = cpu.untyped_storage()
        shared = self._storages.get(storage.data_ptr()) if storage.nbytes() else None
        return cuda_from_cpu(cpu) if shared is None else cuda_alias(cpu, shared[1])


def _run(operator: Any, *args: Any, **kwargs: Any) -> Any:
    """Run an operator with at least one CUDA tensor, or with the device "cuda", on the CPU."""
    if simulated_gpu.has_cuda_tensors():
        return _run_on_cpu(operator, args, kwargs)
    with accelerator.initialized():  # for a tensor that has outlived its scope
        return _run_on_cpu(operator, args, kwargs)


def _run_on_cpu(operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    # The conversion calls methods of tensors, which a TorchFunctionMode such as torch.device("cuda") would intercept.
    with torch._C.DisableTorchFunction():
        call = _Call()
        cpu_args = [call.to_cpu(value) for value in args]
        cpu_kwargs = {name: call.to_cpu(value) for name, value in kwargs.items()}
        if cpu_kwargs.get("pin_memory"):
            cpu_kwargs["pin_memory"] = False
        _replace_numbers(operator, cpu_args, cpu_kwargs)
        if call.has_cpu_tensor and call.tensors and operator._opname not in _MIXING_OPERATORS:
            raise RuntimeError(
                "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu! "
                f"(when checking the arguments of {operator})"
            )
        try:
            result = operator(*cpu_args, **cpu_kwargs)
        except NotImplementedError as error:
            if "'CPU' backend" not in str(error):
                raise
            raise NotSimulated(f"{operator} has no kernel for the CPU, on which warpcheck runs it") from error
        if operator._schema.is_mutable:
            call.update_resized()
            for tensor in _written_tensors(operator, args, kwargs):
                initcheck.note_write(tensor)
        cuda_result = call.to_cuda(result)
        if operator.name().removeprefix("aten::") in _ALLOCATIONS:
            initcheck.mark(cuda_result)
        return cuda_result


@cache
def _tensor_arguments(operator: Any) -> tuple[tuple[int, str], ...]:
    """Return position and name of each argument that is a tensor."""
    arguments = enumerate(operator._schema.arguments)
    return tuple(
        (index, argument.name) for index, argument in arguments if isinstance(argument.real_type, torch.TensorType)
    )


def _replace_numbers(operator: Any, args: list[Any], kwargs: dict[str, Any]) -> None:
    """Replace Python's numbers that stand for tensors by tensors without dimensions.

    x % 2 is the operator remainder.Tensor with a "wrapped number" for PyTorch, which a fallback gets as an int. Most
    operators do not take an int for a tensor. A number does not decide the dtype of the result, unless it is of a
    higher category, such as a float with a tensor of integers.
    """
    values = [
        (index, name, args[index] if index < len(args) else kwargs.get(name))
        for index, name in _tensor_arguments(operator)
    ]
    numbers = [(index, name, value) for index, name, value in values if isinstance(value, (int, float, complex))]
    if not numbers:
        return
    dtypes = {value.dtype for _, _, value in values if isinstance(value, torch.Tensor)}
    for index, name, value in numbers:
        number = torch.tensor(value, device=CPU)
        if dtypes:
            dtype = functools.reduce(torch.promote_types, dtypes)
            number = number.to(torch.result_type(torch.empty((), dtype=dtype, device=CPU), value))
        if index < len(args):
            args[index] = number
        else:
            kwargs[name] = number


@cache
def _written_arguments(operator: Any) -> tuple[tuple[int, str], ...]:
    """Return position and name of each argument that an operator writes."""
    arguments = enumerate(operator._schema.arguments)
    return tuple(
        (index, argument.name) for index, argument in arguments if argument.alias_info and argument.alias_info.is_write
    )


def _written_tensors(operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[torch.Tensor]:
    for index, name in _written_arguments(operator):
        value = args[index] if index < len(args) else kwargs.get(name)
        values = value if isinstance(value, (list, tuple)) else (value,)
        yield from (tensor for tensor in values if isinstance(tensor, torch.Tensor) and tensor.is_cuda)


def _view(operator: Any) -> Callable[..., Any]:
    """Return the CPU's kernel of a view operator, whose result is on the device of its input."""
    return partial(operator.redispatch, CPU_KEYS)


_VIEWS = (
    "as_strided",
    "view",
    "_reshape_alias",
    "unfold",
    "view.dtype",
    "set_.source_Storage_storage_offset",
    "set_.source_Tensor",
)

# Operators that run as one operator of the CPU. On a GPU, PyTorch composes them of others, or of CUDA's own.
_CALLED_AS_A_WHOLE = (
    "copy_",
    "is_pinned",
    "convolution",
    "convolution_backward",
    "_conv_depthwise2d",
    "native_batch_norm",
)

# Matrix products that may have another dtype than their factors: `torch.mm(a, b, out_dtype=torch.float32)`.
_WIDENED = ("mm", "bmm", "addmm", "baddbmm")

# Recurrent layers, which PyTorch composes of operators that only GPUs have.
_RECURRENT = ("lstm.input", "lstm.data", "gru.input", "gru.data", "rnn_tanh.input", "rnn_relu.input")


_HALVES = (torch.float16, torch.bfloat16)

# Operators whose means and sums are float32 on a GPU, and of the dtype of their tensors on the CPU.
#
# The value is the number of results, from the first on, that are rounded to the dtype of the tensors. The means that
# follow them stay float32 for the backward pass.
_COMPUTED_IN_FLOAT32 = {
    "native_layer_norm": 1,
    "native_group_norm": 1,
    "native_layer_norm_backward": 3,
    "native_group_norm_backward": 3,
}


def _in_float32(operator: Any, num_rounded: int) -> Callable[..., Any]:
    """Return an operator that computes tensors of 16 bits in float32, and rounds its results."""

    def run(*args: Any) -> Any:
        dtype = args[0].dtype
        if dtype not in _HALVES:
            return _run(operator, *args)
        widened = [value.float() if isinstance(value, torch.Tensor) else value for value in args]
        results = list(_run(operator, *widened))
        for index in range(num_rounded):
            if results[index] is not None:
                results[index] = results[index].to(dtype)
        return tuple(results)

    return run


def _softmax(operator: Any) -> Callable[..., torch.Tensor]:
    """Return a softmax whose result is float32 if `half_to_float` is true, and is otherwise rounded once.

    The operator of the CPU has no `half_to_float`, and rounds the logarithm of the sum to bfloat16 as well.
    """

    def run(x: torch.Tensor, dim: int, half_to_float: bool) -> torch.Tensor:
        result: torch.Tensor = _run(operator, x.float() if x.dtype in _HALVES else x, dim, False)
        return result if half_to_float else result.to(x.dtype)

    return run


def _softmax_backward(operator: Any) -> Callable[..., torch.Tensor]:
    """Return the gradient of a softmax, whose input may have 16 bits where its output has 32."""

    def run(gradient: torch.Tensor, output: torch.Tensor, dim: int, input_dtype: torch.dtype) -> torch.Tensor:
        result: torch.Tensor = _run(operator, gradient, output, dim, gradient.dtype)
        return result.to(input_dtype)

    return run


def _log_softmax_backward(
    gradient: torch.Tensor, output: torch.Tensor, dim: int, input_dtype: torch.dtype
) -> torch.Tensor:
    """Return the gradient of log_softmax, whose input may have 16 bits where its output has 32.

    The operator of the CPU adds each row one element after the other: with 32,000 equal terms, as from label smoothing,
    the gradient has an error of 1.7e-5. A GPU adds in a tree, as `sum` does.
    """
    if gradient.dtype in _HALVES:
        gradient, output = gradient.float(), output.float()
    return (gradient - output.exp() * gradient.sum(dim, keepdim=True)).to(input_dtype)


def _resize_(self: torch.Tensor, size: Any, *, memory_format: Any = None) -> torch.Tensor:
    """Resize a tensor. If its storage is too small, the tensor gets new memory, which counts as written."""
    shape = torch.empty(size, dtype=self.dtype, device="meta", memory_format=memory_format or torch.contiguous_format)
    storage = self.untyped_storage()
    offset = self.storage_offset()
    nbytes = (offset + shape.numel()) * self.element_size()
    if nbytes > storage.nbytes():
        content = torch.zeros(nbytes, dtype=torch.uint8, device=CPU)
        if storage.nbytes():
            content[: storage.nbytes()] = cpu_bytes(storage)
        storage = cuda_from_cpu(content).untyped_storage()
    set_storage(self, storage, offset, shape.size(), shape.stride())
    return self


def _attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    output, _ = _aten._scaled_dot_product_attention_math(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
    )
    return output  # type: ignore[no-any-return]


def _recurrent(operator: Any) -> Callable[..., Any]:
    """Return an operator that runs on copies on the CPU. The copies are differentiable, and so is the operator."""

    def move(value: Any, device: torch.device) -> Any:
        if isinstance(value, torch.Tensor):
            return value.to(device)
        if isinstance(value, (list, tuple)):
            return type(value)([move(item, device) for item in value])
        return value

    def run(*args: Any) -> Any:
        return move(operator(*move(args, CPU)), torch.device("cuda", 0))

    return run


def _histc(self: torch.Tensor, bins: int = 100, min: float = 0, max: float = 0) -> torch.Tensor:
    """Count integers in bins, which the CPU does for floating-point numbers alone."""
    if self.is_floating_point():
        return _run(_aten.histc.default, self, bins, min, max)  # type: ignore[no-any-return]
    counts = _run(_aten.histc.default, self.double(), bins, min, max)
    return counts.to(self.dtype)  # type: ignore[no-any-return]


def _widened(operator: Any) -> Callable[..., torch.Tensor]:
    """Return a matrix product with the argument `out_dtype`, for which the CPU has no kernel.

    The dtype of the result is that of the accumulators, so that the factors are converted first.
    """

    def run(*args: Any, out: torch.Tensor | None = None, **kwargs: Any) -> torch.Tensor:
        *tensors, out_dtype = args
        result: torch.Tensor = operator(*(tensor.to(out_dtype) for tensor in tensors), **kwargs)
        return result if out is None else out.copy_(result)

    return run


def _record_stream(tensor: torch.Tensor, stream: Any) -> None:
    """Do nothing: every operation on every stream has ended, so that no stream still uses the memory."""


def _set_storage(self: torch.Tensor, source: torch.UntypedStorage) -> torch.Tensor:
    return set_storage(self, source, 0, (source.nbytes() // self.element_size(),), (1,))


def _overload(name: str) -> Any:
    """Return an operator by its name in the dispatcher, such as "view.dtype". Raises Changed."""
    base, _, overload = name.partition(".")
    try:
        return getattr(getattr(_aten, base), overload or "default")
    except AttributeError as error:
        raise Changed(hooks.changed(f"has no operator aten::{name}")) from error


@cache
def register() -> tuple[Any, ...]:
    """Register all operators for CUDA tensors, once in a process: doing it for every scope would take 30 ms.

    Without a scope there are no CUDA tensors, except for those that have outlived one, so that nothing else gets here.

    Returns:
        The libraries, which unregister their operators when nothing refers to them any more.

    Raises:
        Changed: This PyTorch lacks an operator or a function that is necessary. Nothing stays registered.
    """
    hooks.FALLBACK.get()  # raises Changed
    fallback = torch.library.Library("_", "IMPL")
    fallback.fallback(_run, "CUDA")
    aten = torch.library.Library("aten", "IMPL")
    kernels: dict[str, Callable[..., Any]] = {}
    # The composite kernels of these operators would be preferred to the fallback, and call others one by one.
    composed = hooks.REGISTRATIONS.get()("CompositeExplicitAutogradNonFunctional")
    # A build with CUDA has kernels for GPUs, which must not see the memory of the CPU.
    for qualified_name in {*composed, *hooks.REGISTRATIONS.get()("CUDA")}:
        namespace, _, name = qualified_name.partition("::")
        if namespace == "aten":
            kernels[name] = partial(_run, _overload(name))
    kernels |= {name: partial(_run, _overload(name)) for name in _CALLED_AS_A_WHOLE}
    for name, num_rounded in _COMPUTED_IN_FLOAT32.items():
        kernels[name] = _in_float32(_overload(name), num_rounded)
    kernels |= {name: _softmax(_overload(name)) for name in ("_softmax", "_log_softmax")}
    kernels["_softmax_backward_data"] = _softmax_backward(_overload("_softmax_backward_data"))
    kernels["_log_softmax_backward_data"] = _log_softmax_backward
    kernels |= {name: _view(_overload(name)) for name in _VIEWS}
    for choice in ("_use_cudnn_ctc_loss", "_use_miopen_ctc_loss"):
        packet = getattr(_aten, choice, None)  # depends on PyTorch's version
        for overload in packet.overloads() if packet else ():
            kernels[getattr(packet, overload).name().removeprefix("aten::")] = lambda *_: False
    kernels |= {"set_.source_Storage": _set_storage, "resize_": _resize_, "record_stream": _record_stream}
    kernels["histc"] = _histc
    for name in _WIDENED:
        packet = getattr(_aten, name)
        # The overloads depend on PyTorch's version.
        for overload in {"dtype", "dtype_out"} & set(packet.overloads()):
            kernels[f"{name}.{overload}"] = _widened(packet.default)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about kernels that are overridden
        for name, kernel in kernels.items():
            aten.impl(name, kernel, "CUDA")
        aten.impl("scaled_dot_product_attention", _attention, "AutogradCUDA")
        for name in _RECURRENT:
            aten.impl(name, _recurrent(_overload(name)), "AutogradCUDA")
            aten.impl(name, _recurrent(_overload(name)), "CUDA")  # tensors of torch.inference_mode skip autograd
    # A program may register a kernel of its own for an operator, as it can on a GPU: PyTorch's Python interface refuses
    # an operator whose name is in this set.
    hooks.PYTHON_KERNELS.get().difference_update(aten._op_impls)
    return fallback, aten
