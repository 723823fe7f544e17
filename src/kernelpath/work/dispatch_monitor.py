"""What is seen of a submission's call in its own process: operators that compute, and memory that nothing has written.

On the PTX machine no verdict rests on this: it names the line of what the machine finds.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from kernelpath.device.messages import POISON
from kernelpath.device.placement import DEVICE, ChosenDevices, Placement, tensors_in
from kernelpath.work.confine import SUBMISSION
from kernelpath.work.messages import OperatorCall
from kernelpath.work.tensors import copy_each_, poison_, storage_bytes

GUARD = 512
"""Bytes of poison before and behind every buffer. A multiple of every alignment that a kernel may ask for."""

FACTORIES = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided")
FILLED_FACTORIES = ("zeros", "zeros_like", "new_zeros", "ones", "ones_like", "full", "full_like", "new_full")
FILL_OPERATORS = ("zero_", "fill_")
COPIES = ("clone", "_to_copy")
_FREE = (
    *(*FACTORIES, *FILLED_FACTORIES, *FILL_OPERATORS),
    *("view", "_unsafe_view", "reshape", "as_strided", "slice", "select", "unbind", "split", "chunk", "narrow"),
    *("t", "transpose", "permute", "expand", "unsqueeze", "squeeze", "flatten", "detach", "alias", "lift_fresh"),
    *("unflatten", "is_pinned", "is_same_size", "sym_size", "sym_stride", "_reshape_alias", "view_as_real"),
)

_OPERATORS = frozenset(torch.library._defs)
"""The operators that were defined in Python before there was a submission."""


LibraryMatmul = tuple[tuple[tuple[int, ...], tuple[int, ...]], tuple[tuple[int, ...], tuple[int, ...]], torch.dtype]
"""The sizes of both operands of a torch.mm that a statement leaves to the library, their strides, and their dtype."""


@dataclass
class CallRecord:
    """What a submission did in a call. launches: names of kernels; what they were given may be freed meanwhile.

    products: those that a library made for it on a GPU, where the statement leaves them to it.
    """

    operators: list[OperatorCall] = field(default_factory=list)
    launches: list[str] = field(default_factory=list)
    products: list[LibraryMatmul] = field(default_factory=list)


class AuditLog:
    """Takes notes of what is told through `sys.audit`: a submission cannot reach the hook, nor the notes behind it."""

    def __init__(self) -> None:
        self._notes: CallRecord | None = None
        sys.addaudithook(self._hear)

    @contextlib.contextmanager
    def noting(self, notes: CallRecord) -> Iterator[None]:
        """Take these notes inside the `with` block."""
        self._notes = notes
        try:
            yield
        finally:
            self._notes = None

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self._notes is None:
            return
        if event == "kernelpath.operator":
            self._notes.operators.append(OperatorCall(*arguments))
        elif event == "kernelpath.product":
            self._notes.products.append(arguments)
        elif event == "kernelpath.launched":
            self._notes.launches.append(arguments[0].name)


class DispatchMonitor(TorchDispatchMode):
    """Tells of the operators that a call dispatches, and hands out memory that shows whether it was written.

    allocate: makes a tensor of its own like the one given, or marks that one. met: is told of the other results.
    products: whether torch.mm is the submission's to call.
    placement: notes which tensors a GPU would have in its memory.
    align: gives the tensors that torch fills an address such as a GPU's allocator would give them.
    """

    def __init__(
        self,
        allocate: Callable[[torch.Tensor], torch.Tensor],
        met: Callable[[torch.Tensor], None] = lambda tensor: None,
        products: bool = False,
        placement: Placement | None = None,
        align: Callable[[torch.Tensor], torch.Tensor] | None = None,
    ) -> None:
        TorchDispatchMode.__init__(self)
        self._align = align
        self._placement = placement
        self._chosen_devices = ChosenDevices()
        self._allocate = allocate
        self._met = met
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
            self._placement.dispatched(name, inputs, kwargs or {}, result, _line())
            if _called_by_autograd():  # the zeros that it makes for a gradient that nothing gave are where all else is
                for tensor in tensors_in(result):
                    self._placement.place(tensor)
        return result

    def dispatch(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Run an operator and note it."""
        name = func.overloadpacket.__name__
        if is_defined_by_submission(func):
            return self._inside(func, args, kwargs)
        if self._products and name == "mm":
            return self._product(func, args, kwargs)
        result = func(*args, **kwargs)
        if name not in _FREE and not _goes_to_the_gpu(name, args, kwargs, result):
            sys.audit("kernelpath.operator", name, _line())
        if name in FACTORIES and not result.is_meta and result.layout is torch.strided:
            return self._allocate(result)
        if isinstance(result, torch.Tensor):
            if self._align is not None and name in FILLED_FACTORIES + COPIES and _has_memory_here(result):
                result = self._align(result)
            self._met(result)
        return result

    def _product(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """By the library on a GPU, by a kernel on the PTX machine."""
        from kernelpath.work import products

        a, b = args
        if not products.runs_on_simulator((a, b, *kwargs.values())):
            if a.is_cuda and a.dtype == b.dtype and a.dtype in products.KERNELS:
                operands = tuple(a.shape), tuple(b.shape)
                sys.audit("kernelpath.product", operands, (a.stride(), b.stride()), a.dtype)
            else:
                sys.audit("kernelpath.operator", "mm", _line())
            return func(*args, **kwargs)
        out = kwargs["out"] if kwargs else self._allocate(a.new_empty(a.shape[0], b.shape[1]))
        if self._placement is not None and self._placement.is_on_device(a):
            self._placement.place(out)
        products.multiply(a, b, out)
        return out

    def _inside(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Run an operator that the submission has defined, and watch what it calls."""
        on_gpu = any(value.is_cuda for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor))
        device = torch._C.DispatchKey.CUDA if on_gpu else torch._C.DispatchKey.CPU
        with self:
            return func.redispatch(torch._C.DispatchKeySet(device), *args, **kwargs)


def _has_memory_here(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is strided and in the memory of this process."""
    return type(tensor) is torch.Tensor and tensor.device.type == "cpu" and tensor.layout is torch.strided


def is_defined_by_submission(func: Any) -> bool:
    """Whether an operator was defined since this module was imported: by torch.library, in the submission."""
    name = func._schema.name
    return name in torch.library._defs and name not in _OPERATORS


def _goes_to_the_gpu(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any) -> bool:
    """Whether an operator brings a tensor of the host to the GPU as it is. Without a GPU it goes to DEVICE."""
    if name != "_to_copy" or args[0].dtype != result.dtype:
        return False
    return bool(kwargs.get("device") == DEVICE or (result.device.type == "cuda" and args[0].device.type == "cpu"))


def _called_by_autograd() -> bool:
    """Whether autograd's engine has called an operator, and not a line of Python."""
    return sys._getframe(2).f_code.co_name == "_engine_run_backward"


def _line() -> int:
    """The innermost line of the submission that is running."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__") == SUBMISSION:
            return frame.f_lineno
        if frame.f_back is None:
            break
        frame = frame.f_back
    return 0


class GuardedAllocator:
    """Allocates between guard bands. poison: fill fresh memory too; timed calls poison it before instead."""

    def __init__(self, poison: bool) -> None:
        self._poison = poison
        self._storages: list[torch.Tensor] = []
        self._inputs: list[torch.Tensor] = []
        self.inputs: list[torch.Tensor] = []
        """The bytes of every input's storage, what lies between its rows among them."""

    def allocate(self, wanted: torch.Tensor) -> torch.Tensor:
        """A guarded tensor like `wanted`, which is dropped unused."""
        size, stride, dtype, device = wanted.size(), wanted.stride(), wanted.dtype, wanted.device
        nbytes, pinned = wanted.untyped_storage().nbytes(), wanted.is_pinned()
        del wanted
        storage = _guarded_storage(nbytes, device, self._poison, pinned)
        self._storages.append(storage)
        return storage[GUARD : GUARD + nbytes].view(dtype).as_strided(size, stride, GUARD // dtype.itemsize)

    def guard(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Copies of inputs, strides and storage offsets kept, each in a storage of its own between guard bands."""
        sources = [storage_bytes(tensor) for tensor in tensors]
        storages = [_fresh(source.numel(), source.device) for source in sources]
        bodies = [storage[GUARD : GUARD + source.numel()] for storage, source in zip(storages, sources, strict=True)]
        for device in dict.fromkeys(source.device for source in sources):
            _poison_around([storage for storage in storages if storage.device == device])
        copy_each_(bodies, sources)
        for device in dict.fromkeys(source.device for source in sources if source.is_cuda):
            torch.cuda.synchronize(device)
        self._inputs += storages
        self.inputs += bodies
        return [
            storage.view(tensor.dtype).as_strided(
                tensor.size(), tensor.stride(), tensor.storage_offset() + GUARD // tensor.element_size()
            )
            for storage, tensor in zip(storages, tensors, strict=True)
        ]

    def broken(self) -> str:
        """In words, a guard band that was written to; empty where none was."""
        storages = [*(self._storages if self._poison else []), *self._inputs]
        by_device = {one.device: [other for other in storages if other.device == one.device] for one in storages}
        return next(filter(None, map(_broken, by_device.values())), "")

    def holds(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor shares the memory of an input."""
        address = tensor.untyped_storage().data_ptr()
        return any(storage.untyped_storage().data_ptr() == address for storage in self._inputs)


def _guarded_storage(nbytes: int, device: torch.device, poison: bool, pinned: bool) -> torch.Tensor:
    """A uint8 tensor of nbytes with guard bands, poisoned as a whole if asked, before any stream can use it."""
    storage = _fresh(nbytes, device, pinned)
    if poison:
        poison_(storage)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
    return storage


def _fresh(nbytes: int, device: torch.device, pinned: bool = False) -> torch.Tensor:
    """A uint8 tensor with room for nbytes between guard bands. Its length is even, as poison has two bytes."""
    return torch.empty(nbytes + nbytes % 2 + 2 * GUARD, dtype=torch.uint8, device=device, pin_memory=pinned)


def _poison_around(storages: Sequence[torch.Tensor]) -> None:
    """Poison the guard bands of storages of one device, and the last two bytes between: one may be of no input."""
    poison = poison_(torch.empty(GUARD + 2, dtype=torch.uint8, device=storages[0].device))
    copy_each_([one[:GUARD] for one in storages], [poison[:GUARD]] * len(storages))
    copy_each_([one[-GUARD - 2 :] for one in storages], [poison] * len(storages))


def _broken(storages: Sequence[torch.Tensor]) -> str:
    """In words, the first guard band that was written to, of poisoned storages of one device."""
    bands = [band for storage in storages for band in (storage[:GUARD], storage[-GUARD:])]
    words = torch.cat(bands).view(torch.int16).view(-1, GUARD // 2)
    for place, broken in enumerate((words != POISON).any(1).tolist()):
        if broken:
            side = ("before the start", "past the end")[place % 2]
            return f"wrote {side} of a tensor of {storages[place // 2].numel() - 2 * GUARD:,} bytes"
    return ""
