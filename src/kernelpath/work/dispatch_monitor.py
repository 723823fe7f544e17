"""Monitor a submission's call in its own process: operators that compute, and memory that nothing has written.

On the PTX machine no verdict depends on this module. There it only supplies the line of what the machine detects.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from kernelpath.device.large_offsets import reserve_readonly
from kernelpath.device.messages import POISON
from kernelpath.device.placement import DEVICE, ChosenDevices, Placement, tensors_in
from kernelpath.work.confine import submission_line
from kernelpath.work.messages import OperatorCall
from kernelpath.work.tensors import copy_each_, poison_, storage_bytes
from warpcheck import simt

# Bytes of poison before and behind every buffer. A multiple of every alignment that a kernel may require.
GUARD = 512

FACTORIES = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided")
FILLED_FACTORIES = ("zeros", "zeros_like", "new_zeros", "ones", "ones_like", "full", "full_like", "new_full")
FILL_OPERATORS = ("zero_", "fill_")
COPIES = ("clone", "_to_copy")

# Operators that allocate, fill or view memory. A submission may call them, since they do none of a kernel's work.
_NOT_COMPUTING = (
    *(*FACTORIES, *FILLED_FACTORIES, *FILL_OPERATORS),
    *("view", "_unsafe_view", "reshape", "as_strided", "slice", "select", "unbind", "split", "chunk", "narrow"),
    *("t", "transpose", "permute", "expand", "unsqueeze", "squeeze", "flatten", "detach", "alias", "lift_fresh"),
    *("unflatten", "is_pinned", "is_same_size", "sym_size", "sym_stride", "_reshape_alias", "view_as_real"),
)

# The operators that were defined in Python before the submission was loaded.
_OPERATORS = frozenset(torch.library._defs)


# A torch.mm that a statement leaves to the library: the sizes of both operands, their strides, and their dtype.
LibraryMatmul = tuple[tuple[tuple[int, ...], tuple[int, ...]], tuple[tuple[int, ...], tuple[int, ...]], torch.dtype]


@dataclass
class CallRecord:
    """A record of the submission's activity in a call.

    Attributes:
        operators: The operators that compute.
        launches: The names of kernels. Their arguments are not kept, since they may be freed during the call.
        products: The matrix products that a library made for it on a GPU, where the statement leaves them to it.
    """

    operators: list[OperatorCall] = field(default_factory=list)
    launches: list[str] = field(default_factory=list)
    products: list[LibraryMatmul] = field(default_factory=list)


class AuditLog:
    """Records events of `sys.audit`. A submission can reach neither the hook nor the record behind the hook."""

    def __init__(self) -> None:
        self._record: CallRecord | None = None
        # An audit hook can neither be removed nor listed, so the submission cannot take it out.
        sys.addaudithook(self._on_event)

    @contextlib.contextmanager
    def recording(self, record: CallRecord) -> Iterator[None]:
        """Add events to this record inside the `with` block."""
        self._record = record
        try:
            yield
        finally:
            self._record = None

    def _on_event(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self._record is None:
            return
        if event == "kernelpath.operator":
            self._record.operators.append(OperatorCall(*arguments))
        elif event == "kernelpath.product":
            self._record.products.append(arguments)
        elif event == "warpcheck.launched":
            self._record.launches.append(arguments[0].name)


class DispatchMonitor(TorchDispatchMode):
    """Reports the operators that a call dispatches, and allocates memory that shows whether it was written.

    Args:
        allocate: Returns a tensor of its own like a fresh one, or marks the fresh one and returns it.
        on_result: Called with every other tensor that an operator returns.
        products: Whether the submission may call torch.mm.
        placement: Tracks which tensors a GPU would have in its memory.
        align: Moves a tensor that torch fills to an address such as a GPU's allocator would choose.
    """

    def __init__(
        self,
        allocate: Callable[[torch.Tensor], torch.Tensor],
        on_result: Callable[[torch.Tensor], None] = lambda tensor: None,
        products: bool = False,
        placement: Placement | None = None,
        align: Callable[[torch.Tensor], torch.Tensor] | None = None,
    ) -> None:
        TorchDispatchMode.__init__(self)
        self._align = align
        self._placement = placement
        self._chosen_devices = ChosenDevices()
        self._allocate = allocate
        self._on_result = on_result
        self._products = products

    def __enter__(self) -> DispatchMonitor:
        super().__enter__()  # type: ignore[no-untyped-call]
        if self._placement is not None:
            self._chosen_devices.__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        if self._placement is not None:
            self._chosen_devices.__exit__(*error)  # type: ignore[no-untyped-call]
        super().__exit__(*error)  # type: ignore[no-untyped-call]

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # True, torch's default, imports torch._dynamo at the first call, which takes 2 s

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        result = self.dispatch(func, args, kwargs or {})
        if self._placement is not None:
            name = func.overloadpacket.__name__
            inputs = (*args, *(kwargs or {}).values())
            self._placement.dispatched(name, inputs, kwargs or {}, result, submission_line(sys._getframe()))
            # Autograd makes zeros for a gradient that no formula gave. They belong to the same device as the rest.
            if _called_by_autograd():
                for tensor in tensors_in(result):
                    self._placement.place(tensor)
        return result

    def dispatch(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Run an operator, report it where it computes, and return its result, or a guarded tensor like it."""
        name = func.overloadpacket.__name__
        # The submission's own operator is no work of PyTorch's; the operators that it calls are.
        if is_defined_by_submission(func):
            return self._run_nested(func, args, kwargs)
        if self._products and name == "mm":
            return self._matmul(func, args, kwargs)
        # The operator runs before it is reported, so that one that raises is not held against the submission.
        result = func(*args, **kwargs)
        if name not in _NOT_COMPUTING and not _copies_to_gpu(name, args, kwargs, result):
            sys.audit("kernelpath.operator", name, submission_line(sys._getframe()))
        if name in FACTORIES and not result.is_meta and result.layout is torch.strided:
            return self._allocate(result)
        if isinstance(result, torch.Tensor):
            if self._align is not None and name in FILLED_FACTORIES + COPIES and _is_in_host_memory(result):
                result = self._align(result)
            self._on_result(result)
        return result

    def _matmul(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Multiply two matrices by the library on a GPU, and by a kernel of the grader's on the PTX machine."""
        from kernelpath.work import products

        a, b = args
        if not products.runs_on_simulator((a, b, *kwargs.values())):
            if a.is_cuda and a.dtype == b.dtype and a.dtype in products.KERNELS:
                shapes = tuple(a.shape), tuple(b.shape)
                sys.audit("kernelpath.product", shapes, (a.stride(), b.stride()), a.dtype)
            else:
                sys.audit("kernelpath.operator", "mm", submission_line(sys._getframe()))
            return func(*args, **kwargs)
        out = kwargs["out"] if kwargs else self._allocate(a.new_empty(a.shape[0], b.shape[1]))
        if self._placement is not None and self._placement.is_on_device(a):
            self._placement.place(out)
        products.multiply(a, b, out)
        return out

    def _run_nested(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Run an operator that the submission has defined, and monitor the operators that it calls.

        Inside __torch_dispatch__ the mode is off, so it is entered again. Redispatching to the device's key skips
        autograd, which has already run for this call.
        """
        on_gpu = any(value.is_cuda for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor))
        device = torch._C.DispatchKey.CUDA if on_gpu else torch._C.DispatchKey.CPU
        with self:
            return func.redispatch(torch._C.DispatchKeySet(device), *args, **kwargs)


def _is_in_host_memory(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is strided and in the memory of this process."""
    return type(tensor) is torch.Tensor and tensor.device.type == "cpu" and tensor.layout is torch.strided


def is_defined_by_submission(func: Any) -> bool:
    """Return whether an operator was defined with torch.library after this module was imported."""
    name = func._schema.name
    return name in torch.library._defs and name not in _OPERATORS


def _copies_to_gpu(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any) -> bool:
    """Return whether an operator copies a host tensor to the GPU unchanged. Without a GPU the target is DEVICE."""
    if name != "_to_copy" or args[0].dtype != result.dtype:
        return False
    return bool(kwargs.get("device") == DEVICE or (result.device.type == "cuda" and args[0].device.type == "cpu"))


def _called_by_autograd() -> bool:
    """Return whether autograd's engine has called an operator, and not a line of Python."""
    # Frame 0 is this function, 1 is __torch_dispatch__, and 2 called the operator.
    return sys._getframe(2).f_code.co_name == "_engine_run_backward"


class GuardedAllocator:
    """Allocates tensors between guard bands.

    Layout of a storage, where n is the bytes of the tensor: GUARD bytes of poison, the n bytes, one byte of padding
    where n is odd, GUARD bytes of poison.

    Args:
        poison: Whether to fill fresh memory as well. Timed calls poison memory before the clock starts instead.
    """

    def __init__(self, poison: bool) -> None:
        self._poison = poison
        self._storages: list[torch.Tensor] = []
        self._input_storages: list[torch.Tensor] = []
        # The bytes of every input's storage, including the bytes between its rows.
        self.input_bytes: list[torch.Tensor] = []

    def allocate(self, fresh: torch.Tensor) -> torch.Tensor:
        """Return a guarded tensor like `fresh`, which is dropped unused."""
        size = fresh.size()
        stride = fresh.stride()
        dtype = fresh.dtype
        device = fresh.device
        nbytes = fresh.untyped_storage().nbytes()
        pinned = fresh.is_pinned()
        del fresh  # its memory may serve the guarded tensor
        storage = _guarded_storage(nbytes, device, self._poison, pinned)
        self._storages.append(storage)
        return storage[GUARD : GUARD + nbytes].view(dtype).as_strided(size, stride, GUARD // dtype.itemsize)

    def copy_inputs(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return copies of inputs with the same strides and storage offsets, each in a guarded storage of its own."""
        sources = [storage_bytes(tensor) for tensor in tensors]
        storages = [_new_storage(source.numel(), source.device) for source in sources]
        bodies = [storage[GUARD : GUARD + source.numel()] for storage, source in zip(storages, sources, strict=True)]
        for device in dict.fromkeys(source.device for source in sources):
            _poison_guards([storage for storage in storages if storage.device == device])
        copy_each_(bodies, sources)
        for device in dict.fromkeys(source.device for source in sources if source.is_cuda):
            # The submission may use streams that do not wait for these copies.
            torch.cuda.synchronize(device)
        self._input_storages += storages
        self.input_bytes += bodies
        return [
            storage.view(tensor.dtype).as_strided(
                tensor.size(), tensor.stride(), tensor.storage_offset() + GUARD // tensor.element_size()
            )
            for storage, tensor in zip(storages, tensors, strict=True)
        ]

    def describe_broken_guard(self) -> str:
        """Describe a guard band that was written to; empty where none was."""
        # Timed calls do not poison fresh storages, whose guard bands then hold anything.
        guarded = [*(self._storages if self._poison else []), *self._input_storages]
        by_device: dict[torch.device, list[torch.Tensor]] = {}
        for storage in guarded:
            by_device.setdefault(storage.device, []).append(storage)
        return next(filter(None, map(_describe_broken_guard, by_device.values())), "")

    def is_input(self, tensor: torch.Tensor) -> bool:
        """Return whether a tensor shares the memory of an input."""
        address = tensor.untyped_storage().data_ptr()
        return any(storage.untyped_storage().data_ptr() == address for storage in self._input_storages)


def _guarded_storage(nbytes: int, device: torch.device, poison: bool, pinned: bool) -> torch.Tensor:
    """Return a uint8 tensor of nbytes with guard bands, poisoned as a whole before any stream can use it."""
    storage = _new_storage(nbytes, device, pinned)
    if poison:
        poison_(storage)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
    return storage


def _new_storage(nbytes: int, device: torch.device, pinned: bool = False) -> torch.Tensor:
    """Return a uint8 tensor for nbytes between guard bands. Its length is even, as the poison pattern has two bytes."""
    return torch.empty(nbytes + nbytes % 2 + 2 * GUARD, dtype=torch.uint8, device=device, pin_memory=pinned)


def _poison_guards(storages: Sequence[torch.Tensor]) -> None:
    """Poison the guard bands of storages of one device, and the last two bytes between them.

    One of these two bytes belongs to no input where the input's length is odd. The input's bytes are copied afterwards.
    """
    poison = poison_(torch.empty(GUARD + 2, dtype=torch.uint8, device=storages[0].device))
    copy_each_([storage[:GUARD] for storage in storages], [poison[:GUARD]] * len(storages))
    copy_each_([storage[-GUARD - 2 :] for storage in storages], [poison] * len(storages))


def _describe_broken_guard(storages: Sequence[torch.Tensor]) -> str:
    """Describe the first guard band that was written to, of poisoned storages of one device."""
    # One comparison for all bands: on a GPU each copy to the host waits for the device.
    bands = [band for storage in storages for band in (storage[:GUARD], storage[-GUARD:])]
    words = torch.cat(bands).view(torch.int16).view(-1, GUARD // 2)
    for index, is_broken in enumerate((words != POISON).any(1).tolist()):
        if is_broken:
            side = ("before the start", "past the end")[index % 2]
            return f"wrote {side} of a tensor of {storages[index // 2].numel() - 2 * GUARD:,} bytes"
    return ""


# Bytes of addresses that the call may use, besides memory.
ADDRESS_SPACE_BYTES = 1 << 40


class LargeOffsetMonitor(DispatchMonitor):
    """Gives tensors of simt.FAR bytes and more an address span without memory, and fills none of them."""

    def dispatch(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        name = func.overloadpacket.__name__
        if name in FACTORIES + FILLED_FACTORIES:
            # The operator itself computes sizes and strides; on the meta device it allocates nothing.
            shape = func(*args, **{**kwargs, "device": "meta"})
            if _nbytes(shape) >= simt.FAR:
                span = reserve_readonly(_nbytes(shape)).view(shape.dtype)
                self._on_result(span)
                return span.as_strided(shape.size(), shape.stride())
        if name in FILL_OPERATORS and _nbytes(args[0]) >= simt.FAR:
            return args[0]
        return super().dispatch(func, args, kwargs)


def _nbytes(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().nbytes()
