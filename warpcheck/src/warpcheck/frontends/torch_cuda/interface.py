"""The functions of torch.cuda for the simulated GPU, on which every operation ends before its call returns."""

from __future__ import annotations

import functools
import gc
import itertools
import time
from collections.abc import Callable
from typing import Any, NoReturn

import torch

from warpcheck import patching, pointers, simulated_gpu
from warpcheck.frontends import NotSimulated
from warpcheck.frontends.torch_cuda.generators import Generator, default_generator
from warpcheck.frontends.torch_cuda.tensors import CPU, CUDA, cuda_from_cpu

__all__ = ["replace_functions"]

# c10::DeviceType::CUDA.
_CUDA_TYPE = 1

# torch.version.cuda, which programs test for whether the build has CUDA.
_CUDA_VERSION = "13.0"


def _check_device(device: Any) -> int:
    """Return 0, the index of the only GPU. Raises RuntimeError for another index."""
    if device is None or isinstance(device, Device):
        return 0
    index = device if isinstance(device, int) else torch.device(device).index
    if index not in (None, 0, -1):
        raise torch.AcceleratorError("CUDA error: invalid device ordinal")
    return 0


class Device:
    """torch.cuda.device, the context manager that chooses a GPU."""

    def __init__(self, device: Any) -> None:
        self.idx = _check_device(device)
        self.prev_idx = 0

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


class DeviceOf(Device):
    """torch.cuda.device_of, which takes a tensor or a storage."""

    def __init__(self, obj: Any) -> None:
        super().__init__(None)


class Event:
    """torch.cuda.Event. The time between two events is that of the host."""

    def __init__(
        self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, **_: Any
    ) -> None:
        self.device = CUDA
        self.cuda_event = 0
        self._enable_timing = enable_timing
        self._recorded: float | None = None

    def record(self, stream: Any = None) -> None:
        # Every operation ends before its call returns, so the host's clock is also that of the stream.
        self._recorded = time.perf_counter()

    def wait(self, stream: Any = None) -> None:
        pass

    def synchronize(self) -> None:
        pass

    def query(self) -> bool:
        return True

    def elapsed_time(self, end_event: Event) -> float:
        """Return the milliseconds of the host between two events, and never 0: programs divide by it."""
        if not (self._enable_timing and end_event._enable_timing):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if self._recorded is None or end_event._recorded is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        return max(1000 * (end_event._recorded - self._recorded), 1e-3)


class DeviceEvent(Event):
    """torch.Event, whose first parameter is the device."""

    def __init__(self, device: Any = None, *, enable_timing: bool = False, **_: Any) -> None:
        super().__init__(enable_timing)


_TorchStream = torch.Stream


class Stream(_TorchStream):
    """torch.cuda.Stream. Every operation ends before the call that issues it returns."""

    _handles = itertools.count(1)

    def __new__(cls, device: Any = None, priority: int = 0, **_: Any) -> Stream:
        return cls._with_id(next(cls._handles), _check_device(device))

    @classmethod
    def _with_id(cls, stream_id: int, index: int = 0) -> Stream:
        stream: Stream = _TorchStream.__new__(cls, stream_id=stream_id, device_index=index, device_type=_CUDA_TYPE)
        return stream

    def __init__(self, device: Any = None, priority: int = 0, **_: Any) -> None:
        self.priority = priority

    @property
    def cuda_stream(self) -> int:
        return self.stream_id

    def __enter__(self) -> Stream:
        _enter_stream(self)
        return self

    def __exit__(self, *_: object) -> None:
        _leave_stream()

    @staticmethod
    def priority_range() -> tuple[int, int]:
        return 0, -5

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        pass

    def wait_event(self, event: Any) -> None:
        pass

    def wait_stream(self, stream: Any) -> None:
        pass

    def record_event(self, event: Any = None) -> Any:
        event = event or Event()
        event.record(self)
        return event


_default_stream = Stream._with_id(0)
# The current stream and those that it replaced.
_streams: list[Stream] = [_default_stream]


def _enter_stream(stream: Stream | None) -> None:
    _streams.append(stream or _streams[-1])


def _leave_stream() -> None:
    # A with block may have begun in a scope that has ended: a fixture of a module may outlive the scope of a test.
    if len(_streams) > 1:
        _streams.pop()


def _current_stream(device: Any = None) -> Stream:
    return _streams[-1]


def _set_stream(stream: Stream | None) -> None:
    if stream is not None:
        _streams[-1] = stream


class StreamContext:
    """torch.cuda.StreamContext: run the with block on a stream, or on the current one for None."""

    def __init__(self, stream: Stream | None) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        _enter_stream(self.stream)

    def __exit__(self, *_: object) -> None:
        _leave_stream()


def _forget_streams() -> None:
    _streams[:] = [_default_stream]


# The most bytes that a call of `_memory_allocated` has found since the scope began, or since `_reset_peak`.
_peak = 0


def _memory_allocated(device: Any = None) -> int:
    """Return the bytes of all storages of CUDA tensors."""
    global _peak
    _check_device(device)
    sizes: dict[int, int] = {}
    for value in gc.get_objects():
        is_cuda = type(value) in (torch.Tensor, torch.nn.Parameter) and value.device.type == "cuda"
        if is_cuda and (nbytes := pointers.storage_bytes(value)):
            sizes[value.untyped_storage().data_ptr()] = nbytes
    _peak = max(_peak, sum(sizes.values()))
    return sum(sizes.values())


def _max_memory_allocated(device: Any = None) -> int:
    """Return the largest number of bytes that a call of `_memory_allocated` has found."""
    _memory_allocated(device)
    return _peak


def _reset_peak(device: Any = None) -> None:
    global _peak
    _peak = 0


def _memory_stats(device: Any = None) -> dict[str, int]:
    current = _memory_allocated(device)
    values = {"current": current, "peak": _peak, "allocated": _peak, "freed": max(_peak - current, 0)}
    pools = ("allocated", "reserved", "active")
    return {f"{pool}_bytes.all.{name}": value for pool in pools for name, value in values.items()}


def _mem_get_info(device: Any = None) -> tuple[int, int]:
    total = int(simulated_gpu.shown()["total_memory"])
    return total - _memory_allocated(device), total


def _storage_new(cls: Any, *args: Any, device: Any = None, **kwargs: Any) -> Any:
    """Allocate an UntypedStorage, as torch.load and copy.deepcopy do for a device."""
    if device is not None and torch.device(device).type == "cuda":
        sizes = [argument for argument in args if isinstance(argument, int)]
        memory = torch.empty(sizes[0] if sizes else 0, dtype=torch.uint8, device=CPU)
        return cuda_from_cpu(memory).untyped_storage()
    if device is not None:
        kwargs["device"] = device
    return torch._C.StorageBase.__new__(cls, *args, **kwargs)


class CUDAGraph:
    """torch.cuda.CUDAGraph and torch.cuda.graph. They are classes, which programs name in annotations."""

    def __init__(self, *_: Any, **__: Any) -> None:
        _refuse_graphs()


def _refuse_graphs(*_: Any, **__: Any) -> NoReturn:
    raise NotSimulated("warpcheck does not simulate CUDA graphs")


def _return(value: Any) -> Callable[..., Any]:
    return lambda *_, **__: value


def _synchronize(device: Any = None) -> None:
    _check_device(device)


def _seed(seed: int) -> None:
    default_generator.manual_seed(int(seed))


def _set_rng_state(new_state: torch.Tensor, device: Any = None) -> None:
    default_generator.set_state(new_state)


def _set_rng_states(new_states: list[torch.Tensor]) -> None:
    _set_rng_state(new_states[0])


def _rng_state(device: Any = None) -> torch.Tensor:
    return default_generator.get_state()


_NO_OPS = (
    "_lazy_init",
    "init",
    "ipc_collect",
    "empty_cache",
    "reset_accumulated_memory_stats",
    "set_per_process_memory_fraction",
    "set_sync_debug_mode",
    "_sleep",
)


def _functions() -> dict[str, Any]:
    """Return the replacements of functions and classes in torch.cuda, by their names."""
    functions: dict[str, Any] = dict.fromkeys(_NO_OPS, _return(None))
    functions |= {
        "is_available": _return(True),
        "is_initialized": _return(True),
        "_is_compiled": _return(True),
        "_lazy_call": lambda call, **_: call(),
        "device_count": _return(1),
        "current_device": _return(0),
        "set_device": _check_device,
        "synchronize": _synchronize,
        "_exchange_device": _return(0),
        "_maybe_exchange_device": _return(0),
        "device": Device,
        "device_of": DeviceOf,
        "can_device_access_peer": _return(False),
        "is_bf16_supported": _return(True),
        "is_tf32_supported": _return(True),
        "get_arch_list": lambda: [simulated_gpu.target().name],
        "get_sync_debug_mode": _return(0),
        "utilization": _return(0),
        "Stream": Stream,
        "ExternalStream": Stream,
        "Event": Event,
        "stream": StreamContext,
        "StreamContext": StreamContext,
        "current_stream": _current_stream,
        "default_stream": _return(_default_stream),
        "set_stream": _set_stream,
        "is_current_stream_capturing": _return(False),
        "CUDAGraph": CUDAGraph,
        "graph": CUDAGraph,
        "make_graphed_callables": _refuse_graphs,
        "manual_seed": _seed,
        "manual_seed_all": _seed,
        "seed": lambda: default_generator.seed(),
        "seed_all": lambda: default_generator.seed(),
        "initial_seed": lambda: default_generator.initial_seed(),
        "get_rng_state": _rng_state,
        "get_rng_state_all": lambda: [_rng_state()],
        "set_rng_state": _set_rng_state,
        "set_rng_state_all": _set_rng_states,
        "default_generators": (default_generator,),
        "memory_allocated": _memory_allocated,
        "max_memory_allocated": _max_memory_allocated,
        "memory_reserved": _memory_allocated,
        "max_memory_reserved": _max_memory_allocated,
        "reset_peak_memory_stats": _reset_peak,
        "reset_max_memory_allocated": _reset_peak,
        "memory_stats": _memory_stats,
        "mem_get_info": _mem_get_info,
        "memory_summary": _return(""),
    }
    return functions


_FUNCTIONS = _functions()


# Functions of torch.accelerator that are those of torch.cuda.
_ACCELERATOR_FUNCTIONS = (
    "empty_cache",
    "memory_allocated",
    "max_memory_allocated",
    "memory_reserved",
    "max_memory_reserved",
    "memory_stats",
    "reset_peak_memory_stats",
    "reset_accumulated_memory_stats",
)


# Functions that take pin_memory=True, for which a build with CUDA would initialize CUDA.
_FACTORIES = ("tensor", "empty", "zeros", "ones", "full", "arange", "rand", "randn", "randint")


def _without_pinning(factory: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Return a function that makes tensors in ordinary memory, which is as fast to copy from here."""

    @functools.wraps(factory)
    def make(*args: Any, pin_memory: bool = False, **kwargs: Any) -> torch.Tensor:
        return factory(*args, **kwargs)

    return make


def replace_functions() -> None:
    """Replace the functions of torch.cuda until the current `patching` scope ends."""
    homes = (torch.cuda, torch.cuda.memory, torch.cuda.random, torch.cuda.streams)
    for name, function in _FUNCTIONS.items():
        for home in homes:
            if name in vars(home) or home is torch.cuda:
                patching.replace(home, name, function)
    binding = torch._C
    patching.replace(binding, "_cuda_getDeviceCount", _return(1))
    patching.replace(binding, "_cuda_getDevice", _return(0))
    patching.replace(binding, "_cuda_getCurrentRawStream", lambda device: _streams[-1].cuda_stream)
    patching.replace(torch.UntypedStorage, "__new__", _storage_new)
    # PyTorch's own method would initialize CUDA, which no scope can undo.
    patching.replace(torch.Tensor, "pin_memory", lambda tensor, device=None: tensor.clone())
    if torch.version.cuda is not None:
        for name in _FACTORIES:
            patching.replace(torch, name, _without_pinning(getattr(torch, name)))
    patching.replace(torch, "Generator", Generator)
    patching.replace(torch, "Event", DeviceEvent)
    patching.replace(torch, "Stream", Stream)
    patching.replace(torch.version, "cuda", _CUDA_VERSION)
    patching.replace(torch.backends.cudnn, "is_acceptable", _return(False))
    patching.replace(torch.accelerator, "synchronize", lambda device=None: None)
    for name in _ACCELERATOR_FUNCTIONS:
        if name in vars(torch.accelerator):
            patching.replace(torch.accelerator, name, _FUNCTIONS[name])
    for name in ("range_push", "range_pop", "mark", "range_start", "range_end"):
        patching.replace(torch.cuda.nvtx, name, _return(0))
    patching.replace(torch.cuda, "_initialized", True)  # code of PyTorch in C++ sets it
    _disable_cudnn()
    patching.on_exit(_forget_streams)
    patching.on_exit(_reset_peak)


def _disable_cudnn() -> None:
    """Let composite operators of a build with cuDNN choose kernels that the CPU has, too."""
    previous = torch._C._get_cudnn_enabled()
    patching.on_exit(lambda: torch._C._set_cudnn_enabled(previous))
    torch._C._set_cudnn_enabled(False)
