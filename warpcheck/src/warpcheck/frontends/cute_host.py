"""Runs the host code that CuTe DSL compiles, with its calls to the CUDA runtime redirected.

Compiled host code works out the grid, then asks the CUDA runtime for a kernel and to launch it. It runs here as it is.
Only those two calls come to us, so that every launch is seen:

- `GpuHost` passes a launch on to the runtime, on PyTorch's current stream.
- `CpuHost` runs the kernel's PTX on `warpcheck.simt`.

The DSL has no public hook for this, hence its exact version in pyproject.toml.
"""

from __future__ import annotations

import ctypes
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from cuda.bindings import runtime

from warpcheck import backend, frontends
from warpcheck.backend import Ran
from warpcheck.errors import Fault, FaultKind
from warpcheck.hooks import cute as hooks
from warpcheck.tensor_map import BYTES, encode_tiled

Argument = torch.Tensor | int | float


class Attribute(ctypes.Structure):
    """cudaLaunchAttribute of the CUDA runtime; of its union what comes first."""

    _fields_ = (("id", ctypes.c_uint32), ("padding", ctypes.c_uint32), ("value", ctypes.c_uint32 * 16))


_COOPERATIVE, _CLUSTER, _EARLY = 2, 4, 6
_WITHOUT_EFFECT = (0, 3, 5, 7, 8)
"""Of cudaLaunchAttributeID: what says how blocks are spread, and when others may begin, changes no result."""
_ENTRY = re.compile(r"\.entry\s+(\w+)(.*?)(?=\.entry|\Z)", re.DOTALL)


class LaunchConfig(ctypes.Structure):
    """cudaLaunchConfig_t of the CUDA runtime."""

    _fields_ = (
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("shared", ctypes.c_size_t),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(Attribute)),
        ("attribute_count", ctypes.c_uint32),
    )

    def asked(self) -> dict[int, ctypes.Array[ctypes.c_uint32]]:
        """Its attributes by their numbers. Raises ValueError for anything else."""
        given = {one.id: one.value for one in self.attributes[: self.attribute_count]}
        if unknown := given.keys() - {_COOPERATIVE, _CLUSTER, _EARLY, *_WITHOUT_EFFECT}:
            raise ValueError(f"invalid argument: launch attribute {min(unknown)}")
        return given


GetKernel = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p, ctypes.c_char_p)
LaunchKernel = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.POINTER(LaunchConfig), ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p)
)
Anything = ctypes.CFUNCTYPE(ctypes.c_int)
_Counts, _Lengths = ctypes.POINTER(ctypes.c_uint32), ctypes.POINTER(ctypes.c_uint64)
_Kind, _Rank, _Mode = ctypes.c_uint32, ctypes.c_uint32, ctypes.c_uint32
EncodeTiled = ctypes.CFUNCTYPE(
    ctypes.c_int,
    *(ctypes.c_void_p, _Kind, _Rank, ctypes.c_void_p),
    *(_Lengths, _Lengths, _Counts, _Counts),
    *(_Mode, _Mode, _Mode, _Mode),
)
"""cuTensorMapEncodeTiled."""

_UNAWAITED = (
    "may begin while the kernel before it still runs, as use_pdl says, and never waits for what that one writes: "
    "call cute.arch.griddepcontrol_wait() before it is read"
)
NOT_COUNTED = Ran(0)

SUCCESS, UNKNOWN_ERROR = 0, 999  # of cudaError_t


class Packed:
    """A tensor in memory, as host code takes it; the DSL asks an argument for `__c_pointers__`."""

    def __init__(self, content: bytes) -> None:
        self.memory = (ctypes.c_char * len(content)).from_buffer_copy(content)

    def __c_pointers__(self) -> list[int]:
        return [ctypes.addressof(self.memory)]


class Host(ABC):
    """Compiled host code. It calls `get_kernel` for each kernel once, and `launch` for each launch."""

    def __init__(self, compiled: Any, functions: Iterable[str]) -> None:
        """functions: names among which those of its kernels are."""
        self._compiled = compiled
        self._names = _plain_names(hooks.KERNELS.of(compiled), functions)
        self._kernels: dict[int, str] = {}  # the name behind each handle
        self._arguments: Mapping[str, Argument] = {}  # of the call in progress
        self._error: BaseException | None = None
        self._callbacks = self._redirected()  # kept, because the engine holds only their addresses
        module, function = hooks.MODULE.of(compiled), hooks.FUNCTION.of(compiled)
        self._engine = hooks.ENGINE.get()(module, opt_level=0, shared_libs=[_runtime_library()])
        for name, callback in self._callbacks.items():
            hooks.REDIRECT.get()(self._engine, name, ctypes.cast(callback, ctypes.c_void_p))
        self._code = hooks.LOOKUP.get()(self._engine, function)
        self._packed = hooks.PASSED.of(compiled)

    def __call__(self, given: Sequence[Any], arguments: Mapping[str, Argument]) -> None:
        """Run. given: what is not compiled in, tensors packed; arguments: all of them by parameter name."""
        pointers, adapted = self._packed(*given)
        status = ctypes.c_int32()
        self._arguments = arguments
        self._code((ctypes.c_void_p * (len(pointers) + 1))(*pointers, ctypes.addressof(status)))
        self._arguments = {}
        del adapted  # not earlier: host code reads its memory
        self._check(status.value)

    def _check(self, status: int) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error
        if status != SUCCESS:
            raise RuntimeError(f"the CUDA runtime refused the launch: {_error_text(status)}")

    def _redirected(self) -> dict[str, Any]:
        return {
            "_cudaLibraryGetKernel": GetKernel(self._guarded(self.get_kernel)),
            "_cudaLaunchKernelEx": LaunchKernel(self._guarded(self.launch)),
        }

    def _guarded(self, function: Callable[..., int]) -> Callable[..., int]:
        """What `function` raises waits in `_error`: no exception passes through compiled code."""

        def call(*args: Any) -> int:
            try:
                return function(*args)
            except BaseException as error:
                self._error = error
                return UNKNOWN_ERROR

        return call

    @abstractmethod
    def get_kernel(self, handle: Any, library: int | None, name: bytes) -> int:
        """Set `handle[0]` to something that stands for the kernel, and remember its name; a status is returned."""

    @abstractmethod
    def launch(self, config: Any, handle: int, parameters: Any) -> int:
        """Launch a kernel. config: pointer to a LaunchConfig; parameters: an array of pointers to their values."""

    def _record(self, handle: int, device: str, ran: Ran = NOT_COUNTED) -> None:
        arguments = tuple(self._arguments.values())
        frontends.record(frontends.Launched("cute", self._kernels[handle], device, arguments, ran.cost, ran.launch))


class CpuHost(Host):
    """Launches go to the PTX machine; every other call to the runtime succeeds and does nothing."""

    def __init__(self, compiled: Any, functions: Iterable[str]) -> None:
        super().__init__(compiled, functions)
        if self._names:  # a host function may do without kernels
            ptx = _renamed(hooks.PTX.of(compiled), self._names)
            self._waiting = {name for name, body in _ENTRY.findall(ptx) if "griddepcontrol.wait" in body}
            self._module = backend.device().load(ptx)
            self._load_kernels()

    def _load_kernels(self) -> None:
        """Let host code ask for its kernels. The DSL's own loader would ask the driver first."""
        library, device, status = ctypes.pointer(ctypes.c_void_p()), ctypes.c_int32(), ctypes.c_int32()
        packed = (ctypes.c_void_p * 3)(*map(ctypes.addressof, (library, device, status)))
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(hooks.RAW_LOOKUP.get()(self._engine, "cuda_load_to_device"))(packed)
        self._check(status.value)

    def _redirected(self) -> dict[str, Any]:
        others = (
            "_cudaGetDevice",
            "_cudaDeviceGetAttribute",
            "_cuKernelGetAttribute",
            "_cudaFuncSetAttribute",
            "_cudaKernelSetAttributeForDevice",
        )
        encode = {"_cuTensorMapEncodeTiled": EncodeTiled(self._guarded(_encode_tiled))}
        return dict.fromkeys(others, Anything(lambda: SUCCESS)) | encode | super()._redirected()

    def get_kernel(self, handle: Any, library: int | None, name: bytes) -> int:
        handle[0] = len(self._kernels) + 1
        self._kernels[handle[0]] = self._names[name.decode()]
        with frontends.compiling():
            self._module.compile(self._kernels[handle[0]])
        return SUCCESS

    def launch(self, config: Any, handle: int, parameters: Any) -> int:
        name, wanted = self._kernels[handle], config[0]
        sizes = [parameter.size for parameter in self._module.kernels[name].params]
        tensors = ((key, value) for key, value in self._arguments.items() if isinstance(value, torch.Tensor))
        attributes = wanted.asked()
        if _EARLY in attributes and attributes[_EARLY][0] and name not in self._waiting:
            raise Fault(FaultKind.RACE, f"{name} {_UNAWAITED}", name, "", 0, (0, 0, 0), (0, 0, 0))
        ran = self._module.launch(
            name,
            grid=tuple(wanted.grid),
            block=tuple(wanted.block),
            shared=wanted.shared,
            arguments=[ctypes.string_at(parameters[i], size) for i, size in enumerate(sizes)],
            tensors=list(tensors),
            cooperative=_COOPERATIVE in attributes and bool(attributes[_COOPERATIVE][0]),
            cluster=tuple(attributes[_CLUSTER][:3]) if _CLUSTER in attributes else None,
        )
        self._record(handle, "cpu", ran)
        return SUCCESS


class GpuHost(Host):
    """Launches go to the GPU, on PyTorch's current stream where the source names none."""

    def __init__(self, compiled: Any, functions: Iterable[str]) -> None:
        library = ctypes.CDLL(_runtime_library())
        self._runtime_get_kernel = GetKernel(("_cudaLibraryGetKernel", library))
        self._runtime_launch = LaunchKernel(("_cudaLaunchKernelEx", library))
        super().__init__(compiled, functions)
        if not self._names:
            raise ValueError(f"{compiled.function_name} launches no kernel, and host code cannot reach a GPU's memory")
        compiled.engine = self._engine
        self._libraries = hooks.LOADED.of(compiled)()

    def __call__(self, given: Sequence[Any], arguments: Mapping[str, Argument]) -> None:
        device = next(value.device for value in arguments.values() if isinstance(value, torch.Tensor))
        if device.index == torch.cuda.current_device():  # the usual case; to switch there and back takes its time
            return super().__call__(given, arguments)
        with torch.cuda.device(device):
            return super().__call__(given, arguments)

    def get_kernel(self, handle: Any, library: int | None, name: bytes) -> int:
        status: int = self._runtime_get_kernel(handle, library, name)
        self._kernels[handle[0]] = self._names[name.decode()]
        return status

    def launch(self, config: Any, handle: int, parameters: Any) -> int:
        config[0].stream = config[0].stream or torch.cuda.current_stream().cuda_stream
        status: int = self._runtime_launch(config, handle, parameters)
        if status == SUCCESS:
            self._record(handle, "cuda")
        return status


def _encode_tiled(
    to: int, kind: int, rank: int, address: int, extents: Any, strides: Any, box: Any, steps: Any, *modes: int
) -> int:
    """Write a tensor map. modes: interleave, swizzle, promotion to L2, and what is outside. Raises ValueError."""
    lists = extents[:rank], strides[: rank - 1], box[:rank], steps[:rank]
    ctypes.memmove(to, encode_tiled(kind, address or 0, *lists, *modes), BYTES)
    return SUCCESS


def _runtime_library() -> str:
    return str(hooks.LIBRARIES.of(hooks.DSL.get()())()[0])


def _error_text(status: int) -> str:
    return str(runtime.cudaGetErrorString(runtime.cudaError_t(status))[1].decode())


def _plain_names(mangled: Iterable[str], functions: Iterable[str]) -> dict[str, str]:
    """For each kernel's name that of its Python function, numbered where several kernels come from one function.

    The DSL writes a prefix, if the kernel has one, then the function's name, then what it thinks of its arguments. A
    function that is not among those given is named up to the first tensor.
    """
    by_length, plain = sorted(functions, key=len, reverse=True), {}
    for name in mangled:
        told = name.partition("kernel_cutlass_")[2] or name
        short = re.sub(r"_(?:tensorptr|tensor\d|Copy_?Atom_|object_at_).*$|_\d+$", "", told)
        plain[name] = next((one for one in by_length if f"{told}_".startswith(f"{one}_")), short)
    uses = Counter(plain.values())
    return {name: short if uses[short] == 1 else short + name[name.rindex("_") :] for name, short in plain.items()}


def _renamed(ptx: str, names: Mapping[str, str]) -> str:
    """The PTX with every kernel under its plain name, which is the one that a fault names."""
    for mangled in sorted(names, key=len, reverse=True):  # one name may begin another
        ptx = ptx.replace(mangled, names[mangled])
    return ptx
