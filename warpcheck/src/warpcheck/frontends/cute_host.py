"""Run the host code that CuTe DSL compiles, with its calls to the CUDA runtime redirected.

Compiled host code computes the grid, then calls the CUDA runtime to get a kernel and to launch it. It runs here
unchanged. Only those two calls are redirected, so that every launch is recorded:

- `GpuHost` forwards a launch to the runtime, on PyTorch's current stream.
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
from warpcheck.backend import LaunchResult
from warpcheck.errors import Fault, FaultKind
from warpcheck.hooks import cute as hooks
from warpcheck.tensor_map import BYTES, encode_im2col, encode_tiled

Argument = torch.Tensor | int | float


class Attribute(ctypes.Structure):
    """cudaLaunchAttribute of the CUDA runtime, with its union as an array of words."""

    _fields_ = (("id", ctypes.c_uint32), ("padding", ctypes.c_uint32), ("value", ctypes.c_uint32 * 16))


# Numbers of cudaLaunchAttributeID. Those without effect control placement and synchronization, but not results.
#
# A GPU may take the preferred cluster (11) or the other one; here it is always the other one.
_COOPERATIVE = 2
_CLUSTER = 4
_PROGRAMMATIC_STREAM_SERIALIZATION = 6
_WITHOUT_EFFECT = (0, 3, 5, 7, 8, 11)

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

    def parse_attributes(self) -> dict[int, ctypes.Array[ctypes.c_uint32]]:
        """Return the values of the attributes by their numbers. Raises ValueError for an unknown attribute."""
        attributes = {attribute.id: attribute.value for attribute in self.attributes[: self.attribute_count]}
        if unknown := attributes.keys() - {
            _COOPERATIVE,
            _CLUSTER,
            _PROGRAMMATIC_STREAM_SERIALIZATION,
            *_WITHOUT_EFFECT,
        }:
            raise ValueError(f"invalid argument: launch attribute {min(unknown)}")
        return attributes


GetKernel = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p, ctypes.c_char_p)
LaunchKernel = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.POINTER(LaunchConfig), ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p)
)
GetDevice = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int32))
# TVMFFISafeCallType of TVM FFI: a handle, the arguments, their number, and the result.
SafeCall = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p)

# A runtime function whose arguments are ignored, which C's calling conventions allow.
NoOp = ctypes.CFUNCTYPE(ctypes.c_int)

_U32 = ctypes.c_uint32
_U32s = ctypes.POINTER(ctypes.c_uint32)
_U64s = ctypes.POINTER(ctypes.c_uint64)
# cuTensorMapEncodeTiled.
EncodeTiled = ctypes.CFUNCTYPE(
    ctypes.c_int,
    *(ctypes.c_void_p, _U32, _U32, ctypes.c_void_p),  # the map, element type, rank, address
    *(_U64s, _U64s, _U32s, _U32s),  # extents, strides, box, element strides
    *(_U32, _U32, _U32, _U32),  # interleave, swizzle, L2 promotion, fill
)

_I32s = ctypes.POINTER(ctypes.c_int32)
# cuTensorMapEncodeIm2col.
EncodeIm2col = ctypes.CFUNCTYPE(
    ctypes.c_int,
    *(ctypes.c_void_p, _U32, _U32, ctypes.c_void_p),  # the map, element type, rank, address
    *(_U64s, _U64s, _I32s, _I32s),  # extents, strides, lower and upper corner
    *(_U32, _U32, _U32s),  # channels per pixel, pixels per column, element strides
    *(_U32, _U32, _U32, _U32),  # interleave, swizzle, L2 promotion, fill
)

_UNAWAITED = (
    "may begin while the kernel before it still runs, as use_pdl says, and never waits for what that one writes: "
    "call cute.arch.griddepcontrol_wait() before it is read"
)
NOT_COUNTED = LaunchResult(0)

# Values of cudaError_t.
SUCCESS = 0
UNKNOWN_ERROR = 999


class Packed:
    """A tensor in the memory layout that host code reads; the DSL calls `__c_pointers__` of each argument."""

    def __init__(self, content: bytes) -> None:
        self.memory = (ctypes.c_char * len(content)).from_buffer_copy(content)

    def __c_pointers__(self) -> list[int]:
        return [ctypes.addressof(self.memory)]


class Host(ABC):
    """Compiled host code, which calls `get_kernel` once for each kernel and `launch` for each launch."""

    def __init__(self, compiled: Any, functions: Iterable[str]) -> None:
        """Load the code and redirect its calls. functions: names that include those of its kernel functions."""
        self._compiled = compiled
        self._names = _plain_names(hooks.KERNELS.of(compiled), functions)
        self._kernels: dict[int, str] = {}  # the name behind each handle
        self._arguments: Mapping[str, Argument] = {}  # of the call in progress
        self._error: BaseException | None = None
        self._callbacks = self._redirected()  # kept, because the engine holds only their addresses
        module = hooks.MODULE.of(compiled)
        function = hooks.FUNCTION.of(compiled)
        # Host code runs once for a launch: optimizing it would take longer than it saves.
        self._engine = hooks.ENGINE.get()(module, opt_level=0, shared_libs=[_runtime_library()])
        for name, callback in self._callbacks.items():
            hooks.REDIRECT.get()(self._engine, name, ctypes.cast(callback, ctypes.c_void_p))
        self._code = hooks.LOOKUP.get()(self._engine, function)
        self._packed = hooks.PASSED.of(compiled)

    def __call__(self, values: Sequence[Any], arguments: Mapping[str, Argument]) -> None:
        """Run the host code.

        Args:
            values: The arguments that are not compiled in, with tensors packed.
            arguments: All arguments by parameter name.
        """
        pointers, adapted = self._packed(*values)
        self.run(pointers, arguments)
        del adapted  # not earlier: host code reads its memory

    def run(self, pointers: Sequence[Any], arguments: Mapping[str, Argument]) -> None:
        """Run the host code with its arguments in the form in which it reads them.

        Args:
            pointers: The addresses of the arguments' values.
            arguments: The tensors among the arguments, by name.
        """
        status = ctypes.c_int32()
        # Host code writes its status through the pointer behind its arguments.
        packed = (ctypes.c_void_p * (len(pointers) + 1))(*pointers, ctypes.addressof(status))
        self.observe(lambda: self._code(packed), arguments)
        self._check(status.value)

    def observe(self, call: Callable[[], Any], arguments: Mapping[str, Argument]) -> Any:
        """Return the result of `call`, which runs the host code, or raise the exception of one of its launches."""
        self._arguments = arguments
        try:
            return call()
        except Exception:
            # Code that was called by TVM FFI raises an error that has only the status of the launch.
            self._check(SUCCESS)
            raise
        finally:
            self._arguments = {}

    def find(self, function: str) -> Callable[[Any], None]:
        """Return a function of the host code. It takes an array of pointers to its arguments and to its result."""
        return ctypes.CFUNCTYPE(None, ctypes.c_void_p)(hooks.RAW_LOOKUP.get()(self._engine, function))

    def export_to_tvm_ffi(self) -> int:
        """Return the address of the C function that TVM FFI calls. It is valid for as long as this object lives."""
        function = self.find(f"__tvm_ffi_{hooks.FUNCTION.of(self._compiled)}")

        def call(handle: int | None, arguments: int | None, count: int, result: int | None) -> int:
            values = (
                ctypes.c_void_p(handle),
                ctypes.c_void_p(arguments),
                ctypes.c_int32(count),
                ctypes.c_void_p(result),
            )
            status = ctypes.c_int32()
            function((ctypes.c_void_p * 5)(*map(ctypes.addressof, (*values, status))))
            return status.value

        self._callbacks["call of TVM FFI"] = exported = SafeCall(call)
        return ctypes.cast(exported, ctypes.c_void_p).value or 0

    def _check(self, status: int) -> None:
        error = self._error
        self._error = None
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
        """Store an exception of `function` in `_error`, because exceptions cannot propagate through compiled code."""

        def call(*args: Any) -> int:
            try:
                return function(*args)
            except BaseException as error:
                self._error = error
                return UNKNOWN_ERROR

        return call

    @abstractmethod
    def get_kernel(self, handle: Any, library: int | None, name: bytes) -> int:
        """Set `handle[0]` to a handle of the kernel, remember the kernel's name, and return a status."""

    @abstractmethod
    def launch(self, config: Any, handle: int, parameters: Any) -> int:
        """Launch a kernel and return a status.

        Args:
            config: A pointer to a LaunchConfig.
            handle: The kernel, as returned by `get_kernel`.
            parameters: An array of pointers to the values of the kernel's parameters.
        """

    def _record(self, handle: int, device: str, result: LaunchResult = NOT_COUNTED) -> None:
        arguments = tuple(self._arguments.values())
        frontends.record(
            frontends.Launched("cute", self._kernels[handle], device, arguments, result.known_cost, result.launch)
        )


class CpuHost(Host):
    """Host code whose launches run on the PTX machine; every other runtime call succeeds without doing anything."""

    def __init__(self, compiled: Any, functions: Iterable[str]) -> None:
        super().__init__(compiled, functions)
        if self._names:  # a host function may do without kernels
            ptx = _renamed(hooks.PTX.of(compiled), self._names)
            self._waiting_kernels = {name for name, body in _ENTRY.findall(ptx) if "griddepcontrol.wait" in body}
            self._module = backend.device().load(ptx)
            self._load_kernels()

    def _load_kernels(self) -> None:
        """Run the part of the host code that gets its kernels. The DSL's own loader would call the driver first."""
        library = ctypes.pointer(ctypes.c_void_p())
        device = ctypes.c_int32()
        status = ctypes.c_int32()
        packed = (ctypes.c_void_p * 3)(*map(ctypes.addressof, (library, device, status)))
        self.find("cuda_load_to_device")(packed)
        self._check(status.value)

    def _redirected(self) -> dict[str, Any]:
        ignored = (
            "_cudaSetDevice",
            "_cudaDeviceGetAttribute",
            "_cuKernelGetAttribute",
            "_cudaFuncSetAttribute",
            "_cudaKernelSetAttributeForDevice",
            # Code for TVM FFI loads its kernels at its first call; `_load_kernels` has loaded them.
            "cuda_dialect_init_library_once",
            "cuda_dialect_unload_library_once",
        )
        functions = {
            "_cudaGetDevice": GetDevice(_get_device),
            "_cuTensorMapEncodeTiled": EncodeTiled(self._guarded(_encode_tiled)),
            "_cuTensorMapEncodeIm2col": EncodeIm2col(self._guarded(_encode_im2col)),
        }
        return dict.fromkeys(ignored, NoOp(lambda: SUCCESS)) | functions | super()._redirected()

    def get_kernel(self, handle: Any, library: int | None, name: bytes) -> int:
        handle[0] = len(self._kernels) + 1
        self._kernels[handle[0]] = self._names[name.decode()]
        with frontends.compiling():
            self._module.compile(self._kernels[handle[0]])
        return SUCCESS

    def launch(self, config: Any, handle: int, parameters: Any) -> int:
        name = self._kernels[handle]
        launch_config = config[0]
        sizes = [parameter.size for parameter in self._module.kernels[name].params]
        tensors = ((key, value) for key, value in self._arguments.items() if isinstance(value, torch.Tensor))
        attributes = launch_config.parse_attributes()
        serialization = attributes.get(_PROGRAMMATIC_STREAM_SERIALIZATION)
        # Programmatic dependent launch: the kernel may begin before the one in front of it has ended. Only
        # griddepcontrol.wait orders it behind that one's writes (PTX ISA, "griddepcontrol").
        if serialization and serialization[0] and name not in self._waiting_kernels:
            raise Fault(FaultKind.RACE, f"{name} {_UNAWAITED}", name, "", 0, (0, 0, 0), (0, 0, 0))
        result = self._module.launch(
            name,
            grid=tuple(launch_config.grid),
            block=tuple(launch_config.block),
            shared=launch_config.shared,
            # The runtime gets addresses of arguments; the sizes are those of the kernel's parameters.
            arguments=[ctypes.string_at(parameters[i], size) for i, size in enumerate(sizes)],
            tensors=list(tensors),
            cooperative=_COOPERATIVE in attributes and bool(attributes[_COOPERATIVE][0]),
            cluster=tuple(attributes[_CLUSTER][:3]) if _CLUSTER in attributes else None,
            programmatic_stream_serialization=bool(serialization and serialization[0]),
        )
        self._record(handle, "cpu", result)
        return SUCCESS


class GpuHost(Host):
    """Host code whose launches run on the GPU, on PyTorch's current stream if the source names none."""

    def __init__(self, compiled: Any, functions: Iterable[str]) -> None:
        library = ctypes.CDLL(_runtime_library())
        self._runtime_get_kernel = GetKernel(("_cudaLibraryGetKernel", library))
        self._runtime_launch = LaunchKernel(("_cudaLaunchKernelEx", library))
        super().__init__(compiled, functions)
        if not self._names:
            raise ValueError(f"{compiled.function_name} launches no kernel, and host code cannot reach a GPU's memory")
        compiled.engine = self._engine
        self._libraries = hooks.LOADED.of(compiled)()

    def __call__(self, values: Sequence[Any], arguments: Mapping[str, Argument]) -> None:
        device = next(value.device for value in arguments.values() if isinstance(value, torch.Tensor))
        if device.index == torch.cuda.current_device():  # the usual case, for which switching twice costs time
            return super().__call__(values, arguments)
        with torch.cuda.device(device):
            return super().__call__(values, arguments)

    def get_kernel(self, handle: Any, library: int | None, name: bytes) -> int:
        status: int = self._runtime_get_kernel(handle, library, name)
        self._kernels[handle[0]] = self._names[name.decode()]
        return status

    def launch(self, config: Any, handle: int, parameters: Any) -> int:
        # Null where the source names no stream: PyTorch's current one need not be the default stream.
        config[0].stream = config[0].stream or torch.cuda.current_stream().cuda_stream
        status: int = self._runtime_launch(config, handle, parameters)
        if status == SUCCESS:
            self._record(handle, "cuda")
        return status


def _get_device(device: Any) -> int:
    if device:  # code that needs no device passes a null pointer
        device[0] = 0
    return SUCCESS


def _encode_tiled(
    to: int, kind: int, rank: int, address: int, extents: Any, strides: Any, box: Any, steps: Any, *modes: int
) -> int:
    """Write a tensor map to the address `to`. Raises ValueError for arguments that the driver rejects.

    modes: Interleave, swizzle, L2 promotion and out-of-bounds fill.
    """
    # The arguments are bare pointers: the rank says how many numbers each has, strides one fewer.
    lists = extents[:rank], strides[: rank - 1], box[:rank], steps[:rank]
    ctypes.memmove(to, encode_tiled(kind, address or 0, *lists, *modes), BYTES)
    return SUCCESS


def _encode_im2col(
    to: int,
    kind: int,
    rank: int,
    address: int,
    extents: Any,
    strides: Any,
    lower: Any,
    upper: Any,
    channels: int,
    pixels: int,
    steps: Any,
    *modes: int,
) -> int:
    """Write a tensor map of the im2col mode to the address `to`; see `_encode_tiled`."""
    lists = extents[:rank], strides[: rank - 1], lower[: rank - 2], upper[: rank - 2]
    ctypes.memmove(to, encode_im2col(kind, address or 0, *lists, channels, pixels, steps[:rank], *modes), BYTES)
    return SUCCESS


def _runtime_library() -> str:
    return str(hooks.LIBRARIES.of(hooks.DSL.get()())()[0])


def _error_text(status: int) -> str:
    return str(runtime.cudaGetErrorString(runtime.cudaError_t(status))[1].decode())


def _plain_names(mangled: Iterable[str], functions: Iterable[str]) -> dict[str, str]:
    """Return the name of the Python function behind each kernel, numbered if several kernels share a function.

    A mangled name is the kernel's prefix, if any, the function's name and a description of the arguments. If no name
    in `functions` fits, the result is the mangled name up to the description of the first tensor.
    """
    by_length = sorted(
        functions, key=len, reverse=True
    )  # The longest match is the function: one name may begin another.
    plain = {}
    for name in mangled:
        unprefixed = name.partition("kernel_cutlass_")[2] or name
        short = re.sub(r"_(?:tensorptr|tensor\d|Copy_?Atom_|object_at_).*$|_\d+$", "", unprefixed)
        matches = (function for function in by_length if f"{unprefixed}_".startswith(f"{function}_"))
        plain[name] = next(matches, short)
    uses = Counter(plain.values())
    return {name: short if uses[short] == 1 else short + name[name.rindex("_") :] for name, short in plain.items()}


def _renamed(ptx: str, names: Mapping[str, str]) -> str:
    """Return the PTX with the plain name of every kernel, which faults and reports use."""
    for mangled in sorted(names, key=len, reverse=True):  # one name may begin another
        ptx = ptx.replace(mangled, names[mangled])
    return ptx
