"""Track which tensors would be in a GPU's memory, on a machine without a GPU.

On such a machine every tensor is a CPU tensor, so a kernel could be given memory that no kernel on a GPU can access.
Inside a `with` block of a `Placement`, `x.device` of an input is DEVICE, which is the CPU with an index. torch treats
`cpu:0` as the CPU, but passes it on as it is: a factory that was called with `device=x.device` differs from one that
was called without.

On the device are inputs, tensors that a factory makes with DEVICE, and tensors that an operator makes from tensors
on the device. A device that the program chose is DEVICE too: `"cuda" if torch.cuda.is_available() else "cpu"` is the
CPU here and the GPU on a GPU. Only a call that says "cpu" itself means the CPU on both (ChosenDevices). All other
tensors are in the memory of the host. Not seen: `x.cpu()` and `x.to("cpu")`, which return `x`, and what threads of the
submission's own do, because torch's modes belong to one thread. Once a thread was started, a tensor that no operator
was seen to make may be on the device, and is not refused.
"""

from __future__ import annotations

import linecache
import re
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode

from warpcheck import backend

# The device of a tensor that a GPU would have in its memory.
DEVICE = torch.device("cpu", 0)

_HOST = torch.device("cpu")


class TensorOnHost(ValueError):
    """A kernel was given memory of the host. The message is the cause.

    Attributes:
        line: The line of the submission that made the tensor; 0 if it is not known.
    """

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line


class Placement:
    """The storages that a GPU would have in its memory. At most one placement is entered at a time, for one call."""

    def __init__(self) -> None:
        self._on_device: dict[int, StorageWeakRef] = {}
        self._origins: dict[int, tuple[StorageWeakRef, str, int]] = {}
        self._sees_every_operator = True

    @staticmethod
    def prepare() -> None:
        """Let torch tell its devices apart: to be called before a submission is imported."""
        _patch_torch()

    def __enter__(self) -> Placement:
        global _current
        _patch_torch()
        self._on_device = _alive(self._on_device)
        self._origins = {address: origin for address, origin in self._origins.items() if not origin[0].expired()}
        _current = self
        return self

    def __exit__(self, *_: object) -> None:
        global _current
        _current = None

    def inputs(self, values: Sequence[Any]) -> tuple[Any, ...]:
        """Place the arguments of an entry on the device; a torch.device among them becomes DEVICE."""
        for value in values:
            if isinstance(value, torch.Tensor):
                self.place(value)
        return tuple(DEVICE if isinstance(value, torch.device) else value for value in values)

    def place(self, tensor: torch.Tensor) -> None:
        """Note that a tensor's storage is on the device."""
        if _has_memory(tensor):
            storage = tensor.untyped_storage()
            self._on_device[storage.data_ptr()] = StorageWeakRef(storage)

    def is_on_device(self, tensor: torch.Tensor) -> bool:
        """Return whether a tensor's storage is on the device. An empty tensor may be anywhere."""
        if not _has_memory(tensor):
            return True
        reference = self._on_device.get(tensor.untyped_storage().data_ptr())
        return reference is not None and not reference.expired()

    def dispatched(self, name: str, inputs: Any, kwargs: Mapping[str, Any], result: Any, line: int) -> None:
        """Note where the result of an operator is.

        Args:
            name: The name of the operator.
            inputs: The values of all its arguments.
            kwargs: Its keyword arguments.
            result: Its result.
            line: The line of the submission, for messages.
        """
        device = kwargs.get("device")
        results = list(tensors_in(result))
        # empty_like and new_empty have no device among their arguments unless the caller gives one
        moved_away = device == _HOST and (name.endswith("_like") or name.startswith("new_"))
        follows = any(self.is_on_device(tensor) and _has_memory(tensor) for tensor in tensors_in(inputs))
        if device == DEVICE or (follows and not moved_away):
            for tensor in results:
                self.place(tensor)
            return
        for tensor in results:
            if _has_memory(tensor) and not self.is_on_device(tensor):
                storage = tensor.untyped_storage()
                self._origins.setdefault(storage.data_ptr(), (StorageWeakRef(storage), name, line))

    def check_launch(self, tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Raise TensorOnHost where a kernel is given a tensor, of these named tensors, that is not on the device."""
        for name, tensor in tensors:
            if isinstance(tensor, torch.Tensor) and not self.is_on_device(tensor) and self._is_known(tensor):
                raise self._refusal(name, tensor)

    def thread_started(self) -> None:
        """Note that operators may be called in a thread that is not observed."""
        self._sees_every_operator = False

    def _is_known(self, tensor: torch.Tensor) -> bool:
        """Return whether it is certain who made a tensor: an operator that was seen, or no operator at all."""
        return self._sees_every_operator or self._origin(tensor) is not None

    def _origin(self, tensor: torch.Tensor) -> tuple[str, int] | None:
        """Return the operator that made a tensor in the memory of the host, and the line that called it."""
        reference, operator, line = self._origins.get(tensor.untyped_storage().data_ptr(), (None, "", 0))
        return None if reference is None or reference.expired() else (operator, line)

    def _refusal(self, name: str, tensor: torch.Tensor) -> TensorOnHost:
        operator, line = self._origin(tensor) or ("", 0)
        advice = "give it device=x.device, or use torch.empty_like(x) or x.new_empty(…)"
        if operator in ("", "lift_fresh"):  # torch.tensor, torch.from_numpy, and what no operator makes
            advice = "copy it with .to(x.device)"
        origin = f", made in line {line}" if line else ""
        origin += f" by {operator} without the device of an input" if operator and operator != "lift_fresh" else ""
        cause = (
            f"{name} is a CPU tensor{origin}: a GPU refuses the launch, as a kernel cannot use the memory of the CPU"
        )
        return TensorOnHost(f"{cause}; {advice}", line)


_current: Placement | None = None


def check_launch(tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
    """Call check_launch of the placement that is entered, if any."""
    if _current is not None:
        _current.check_launch(tensors)


def _alive(storages: Mapping[int, StorageWeakRef]) -> dict[int, StorageWeakRef]:
    return {address: reference for address, reference in storages.items() if not reference.expired()}


def _has_memory(tensor: torch.Tensor) -> bool:
    """Return whether a tensor has a storage on this CPU."""
    if tensor.layout is not torch.strided or tensor.is_meta:
        return False
    try:
        return bool(tensor.untyped_storage().nbytes())
    except (NotImplementedError, RuntimeError):  # a wrapper of torch.func
        return False


def tensors_in(value: Any) -> Iterable[torch.Tensor]:
    """Yield the tensors of an operator's result or arguments, whatever tuples and lists hold them."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from tensors_in(item)


# What the dispatcher does not show is seen through methods of torch.Tensor and through torch.tensor. They are replaced
# once, before a submission can import them, and do what they did before while no placement is entered.

# Subclasses such as FakeTensor have devices of their own.
_PLAIN_TYPES = (torch.Tensor, torch.nn.Parameter)
_device_of = torch.Tensor.device.__get__
_to = torch.Tensor.to
_type_as = torch.Tensor.type_as
_new_tensor = torch.Tensor.new_tensor
_make_tensor = torch.tensor
_start_thread = threading.Thread.start


def _patch_torch() -> None:
    """Replace these methods and functions of torch once."""
    if torch.tensor is not _tensor:
        torch.Tensor.device = property(_device)  # type: ignore[assignment]
        torch.Tensor.to = _to_device  # type: ignore[method-assign, assignment]
        torch.Tensor.type_as = _to_type_of  # type: ignore[method-assign, assignment]
        torch.Tensor.new_tensor = _new_tensor_like_self  # type: ignore[method-assign, assignment]
        torch.tensor = _tensor
        threading.Thread.start = _start_observed  # type: ignore[method-assign]
        backend.on_allocation(_place_on_device)


def _place_on_device(tensor: torch.Tensor) -> None:
    if _current is not None:
        _current.place(tensor)


def _device(self: torch.Tensor) -> torch.device:
    if _current is not None and type(self) in _PLAIN_TYPES and _current.is_on_device(self) and not self.is_meta:
        return DEVICE
    return _device_of(self)


def _start_observed(self: threading.Thread) -> None:
    if _current is not None:
        _current.thread_started()
    _start_thread(self)


def _to_device(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    if _current is None or type(self) not in _PLAIN_TYPES:
        return _to(self, *args, **kwargs)
    arguments = (*args, *kwargs.values())
    if _current.is_on_device(self):  # torch would copy from the CPU to cpu:0, but the tensor is there already
        args = tuple(_HOST if _is_device(value) else value for value in args)
        kwargs = {name: _HOST if _is_device(value) else value for name, value in kwargs.items()}
        return _to(self, *args, **kwargs)
    chosen = any(map(_is_chosen, arguments))
    moved = _to(self, *args, **kwargs)
    if chosen:  # torch returns `self`: a tensor of the host is on the CPU already
        moved = moved.clone() if moved is self else moved
        _current.place(moved)
    if any(isinstance(value, torch.Tensor) and _current.is_on_device(value) for value in arguments):
        _current.place(moved)
    return moved


class ChosenDevices(TorchFunctionMode):
    """Make DEVICE of the CPU where a call is given it as `device=`, unless the call says "cpu" itself.

    Belongs to the thread that enters it. Does nothing while no placement is entered.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if _is_chosen(kwargs.get("device")):
            kwargs["device"] = DEVICE
        return func(*args, **kwargs)


_LITERAL_CPU = re.compile(r"""["']cpu["']""")


def _is_chosen(value: object) -> bool:
    """Return whether an argument is the CPU as a device that the program chose, and not the literal of its call."""
    if _current is None or not isinstance(value, (str, torch.device)) or str(value) != "cpu":
        return False
    frame = sys._getframe(1)
    libraries = ("torch", "kernelpath", "warpcheck")
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in libraries:
        frame = frame.f_back
    line = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
    return "is_available" in line or not _LITERAL_CPU.search(line)


def _is_device(value: object) -> bool:
    return isinstance(value, (torch.device, str)) and value in (DEVICE, str(DEVICE))


def _to_type_of(self: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return _with_device_of(other, _type_as(self, other))


def _new_tensor_like_self(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    return _with_device_of(self, _new_tensor(self, *args, **kwargs))


def _with_device_of(model: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    if _current is not None and type(model) in _PLAIN_TYPES and _current.is_on_device(model):
        _current.place(tensor)
    return tensor


def _tensor(*args: Any, **kwargs: Any) -> torch.Tensor:
    tensor = _make_tensor(*args, **kwargs)
    if _current is not None:
        device = kwargs.get("device")
        if device is None:
            device = torch.get_default_device()
        if _is_device(device) or _is_chosen(kwargs.get("device")):
            _current.place(tensor)
    return tensor
