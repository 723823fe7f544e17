"""Simulate the CUDA runtime for a host program that runs without a GPU (`host_program`).

Kernels run on the PTX machine, and so do copies: the host's arrays and device memory are memory of the machine, so that
the machine knows which bytes were copied and which nothing has written. Device pointers are addresses that the host
cannot use. A launch returns before the kernel has run, as far as the program can tell: the next call that waits reports
the errors of kernels, and an event has happened when something has waited for it.

Reference: CUDA Runtime API, "Memory Management", "Execution Control", "Event Management" and "Error Handling".
"""

from __future__ import annotations

import bisect
import ctypes
import re
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from warpcheck import backend, frontends, simulated_gpu
from warpcheck.backend import Dim3, LaunchResult
from warpcheck.errors import Fault, TimedOut, Uninitialized
from warpcheck.frontends import cuda
from warpcheck.frontends.arguments import C_TYPES, POINTED_DTYPES
from warpcheck.frontends.declarations import Parameter, declared_parameters, ptx_types, source_kernels
from warpcheck.frontends.host_program_errors import ERRORS, MEMCPY, MEMSET, HostProgramError, Problem, error_name
from warpcheck.ptx import clear_bytes, parse, unread
from warpcheck.tensor_map import encode_im2col, encode_tiled

if TYPE_CHECKING:
    from warpcheck.backend import Module

_SOURCE = """
extern "C" __global__ void cudaMemcpy(ELEMENT* target, const ELEMENT* source, long long count) {
    const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) target[i] = source[i];
}
extern "C" __global__ void cudaMemset(ELEMENT* target, int value, long long count) {
    const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) target[i] = value;
}
"""

_COPY_THREADS = 256
_KERNELS = {
    (name, element): cuda.Kernel(f"{name}.cu", _SOURCE, name, (f"-DELEMENT={c_type}",))
    for name, element, c_type in (
        (MEMCPY, 4, "unsigned int"),
        (MEMCPY, 1, "unsigned char"),
        (MEMSET, 1, "unsigned char"),
    )
}

_INVALID_VALUE, _OUT_OF_MEMORY, _INVALID_CONFIGURATION, _INVALID_DIRECTION = 1, 2, 9, 21
_INVALID_DEVICE, _INVALID_HANDLE, _NOT_READY, _ILLEGAL_ADDRESS, _LAUNCH_FAILURE = 101, 400, 600, 700, 719

_DIRECTIONS = (
    "cudaMemcpyHostToHost",
    "cudaMemcpyHostToDevice",
    "cudaMemcpyDeviceToHost",
    "cudaMemcpyDeviceToDevice",
    "cudaMemcpyDefault",
)
_DEFAULT_DIRECTION = 4

# The first address that stands for device memory. Linux has none of a program there, and GPU drivers use it, too.
DEVICE_START = 0x302000000

# The size of the range of these addresses.
DEVICE_BYTES = 1 << 36

_ALIGNMENT = 256  # CUDA C++ Programming Guide, "Device Memory Accesses"

# The simulated duration of a copy and of a kernel: a constant, and a rate.
_COPY_SECONDS, _COPY_BYTES_PER_SECOND = 10e-6, 25e9
_LAUNCH_SECONDS, _SECONDS_PER_COST = 5e-6, 1e-9

# Numbers of cudaDeviceAttr and cudaFuncAttribute: driver_types.h.
_ATTRIBUTE_MULTIPROCESSORS, _ATTRIBUTE_SHARED_OPTIN = 16, 97
_MAX_DYNAMIC_SHARED = 8

# The limits of a launch. Source: CUDA C++ Programming Guide, "Compute Capabilities".
MOST_THREADS = 1024
MOST_BLOCKS = (2**31 - 1, 65_535, 65_535)


@dataclass
class Allocation:
    """Device memory.

    Attributes:
        address: The first address, as the program knows it.
        memory: The bytes on the PTX machine.
        line: The line of its cudaMalloc.
        freed_line: The line of its cudaFree; 0 as long as it is not freed.
    """

    address: int
    memory: torch.Tensor
    line: int
    freed_line: int = 0

    @property
    def nbytes(self) -> int:
        return self.memory.numel()

    def __str__(self) -> str:
        return f"the {self.nbytes:,} bytes of device memory from line {self.line}"


@dataclass
class _Event:
    line: int
    # The number of operations that were queued before it was recorded; -1 before that.
    position: int = -1

    seconds: float = 0.0
    destroyed: bool = False


@dataclass(frozen=True)
class _Configuration:
    grid: Dim3
    block: Dim3
    shared: int
    cluster: Dim3 | None


@dataclass(frozen=True)
class _FailedCall:
    call: str
    line: int
    status: int

    def __str__(self) -> str:
        return f"{self.call} failed with {error_name(self.status)}"


class SourceLines:
    """The lines of a compiled library's source, by address. Read from its debugging information by addr2line."""

    def __init__(self, library: str, base: int, source: str) -> None:
        self._library = library
        self._base = base
        self._name = Path(source).name
        self.of_call = cache(self._of_call)

    def _of_call(self, return_address: int) -> int:
        """Return the line of the call that returns to an address; 0 if it is unknown."""
        return self.of_instruction(return_address - 1)

    def of_instruction(self, address: int) -> int:
        """Return the line of the instruction at an address; 0 if it is unknown."""
        # -i also prints the lines into which a function of a header was inlined, from the innermost to the outermost.
        command = ["addr2line", "-i", "-e", self._library, hex(address - self._base)]
        try:
            output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        except (OSError, subprocess.CalledProcessError):
            return 0
        places = (re.match(r"(.*):(\d+)", line) for line in output.splitlines())
        return next((int(place[2]) for place in places if place and Path(place[1]).name == self._name), 0)


class CudaRuntime:
    """The state of the CUDA runtime during one call of a host program.

    Args:
        file: The source of the program.
        source: Its text.
        ptx: Its kernels.
        lines: Finds the lines of calls.
        arrays: Host memory that the machine knows, as one-dimensional tensors of bytes, with names for messages.
        fail_at: The number of the call that fails, from 1; 0 lets no call fail. Calls that release something or that
            return errors do not count.
    """

    def __init__(
        self,
        file: str,
        source: str,
        ptx: str,
        lines: SourceLines,
        arrays: Sequence[tuple[str, torch.Tensor]] = (),
        fail_at: int = 0,
    ) -> None:
        self._file = file
        self._source = source
        self._ptx = ptx
        self._lines = lines
        self._arrays = arrays
        self._module: Module | None = None
        self._allocations: list[Allocation] = []  # in the order of their addresses
        self._events: dict[int, _Event] = {}
        self._next_address = DEVICE_START
        self._last_error = 0
        self._shared_limits: dict[str, int] = {}  # bytes of dynamic shared memory, by the name of the kernel
        self._device_error = 0  # of a kernel; every later call returns it
        self._queued = 0
        self._completed = 0  # operations in the queue that are certain to be done
        self._is_kernel_unobserved = False  # whether no call has returned the error of the last kernel yet
        self._seconds = 0.0
        self.last_launch_line = 0
        self._fail_at = fail_at
        self.calls = 0
        """The calls so far that may fail."""
        self.kernel_seconds = 0.0
        """The simulated duration of the kernels of the program."""
        self.injected: _FailedCall | None = None
        self._failed: _FailedCall | None = None
        self.problem: HostProgramError | None = None
        """The first mistake of the program."""
        self.exception: Exception | None = None
        """The exception that ended the first kernel or copy that did not complete."""
        self._keep_alive: dict[int, tuple[ctypes.Array[ctypes.c_char], ...]] = {
            status: tuple(ctypes.create_string_buffer(text.encode()) for text in texts)
            for status, texts in ERRORS.items()
        }
        self._functions: dict[str, Callable[..., int]] = {
            "cudaMalloc": self._malloc,
            "cudaMemcpy": self._memcpy,
            "cudaMemset": self._memset,
            "<<<>>>": self._launch,
            "cudaDeviceSynchronize": self._synchronize,
            "cudaEventCreate": self._event_create,
            "cudaEventRecord": self._event_record,
            "cudaEventSynchronize": self._event_synchronize,
            "cudaEventElapsedTime": self._event_elapsed_time,
            "cudaGetDeviceCount": self._get_device_count,
            "cudaSetDevice": self._set_device,
            "cudaDeviceGetAttribute": self._get_device_attribute,
            "cudaFuncSetAttribute": self._set_function_attribute,
            "cuTensorMapEncodeTiled": self._encode_tensor_map,
            "cuTensorMapEncodeIm2col": self._encode_im2col_map,
        }
        self._never_failing: dict[str, Callable[..., int]] = {
            "cudaFree": self._free,
            "cudaEventDestroy": self._event_destroy,
        }

    def handle(self, name: str, caller: int, words: Sequence[int]) -> int:
        """Execute a call of the program, and return the value that it returns: a status, or the address of a text."""
        if name in ("cudaGetErrorName", "cudaGetErrorString"):
            texts = self._keep_alive.get(words[0], self._keep_alive[_INVALID_VALUE])
            return ctypes.addressof(texts[name == "cudaGetErrorString"])
        if name in ("cudaGetLastError", "cudaPeekAtLastError"):
            status = self._device_error or self._last_error
            if name == "cudaGetLastError":
                self._last_error = 0
            return status
        line = self._lines.of_call(caller)
        status = self._inject(name, line) or self._execute(name, line, words)
        if status:
            self._last_error = status
            self._failed = self._failed or _FailedCall("the launch" if name == "<<<>>>" else name, line, status)
        # Code that nvcc generates for <<<>>> discards the status. A program that calls cudaLaunchKernel gets it.
        return status

    def check(self, status: int) -> None:
        """Raise what is wrong with the call of the program that has returned this status.

        Raises HostProgramError, or the exception that ended a kernel.
        """
        if self.injected is not None:
            self._check_after_failure(self.injected, status)
        elif self.exception is not None:
            raise self.exception
        elif self.problem is not None:
            raise self.problem
        elif self._failed is not None:
            raise self._mistake("call failed", f"{self._failed}: {ERRORS[self._failed.status][1]}", self._failed.line)
        elif status:
            raise self._mistake("call failed", f"the function returned {error_name(status)}, and no call failed", 0)
        elif leak := self._find_leak():
            raise leak
        elif self._is_kernel_unobserved:
            message = "no call after the launch returns the kernel's errors: cudaDeviceSynchronize waits for them"
            raise self._mistake("not awaited", message, self.last_launch_line)

    def _check_after_failure(self, injected: _FailedCall, status: int) -> None:
        after = f"when {injected},"
        if self.problem is not None:
            message = f"{after} the program went on: {self.problem.message} in line {self.problem.line}"
        elif self.exception is not None:
            message = f"{after} the program went on, and a kernel failed: {self.exception}"
        elif status != injected.status:
            message = f"{after} the function returned {error_name(status)}"
        elif leak := self._find_leak():
            message = f"{leak.message} when {injected} in line {injected.line}"
            raise self._mistake("not released", message, leak.line)
        else:
            return
        raise self._mistake("error ignored", message, injected.line)

    def _find_leak(self) -> HostProgramError | None:
        """Return the mistake of not releasing something, if there is one."""
        for allocation in self._allocations:
            if not allocation.freed_line:
                return self._mistake("not released", f"nothing frees {allocation}", allocation.line)
        for event in self._events.values():
            if not event.destroyed:
                return self._mistake("not released", "nothing destroys the event", event.line)
        return None

    def describe_host_access(self, address: int, pc: int) -> HostProgramError:
        """Return the mistake of host code that used the address of device memory."""
        line = self._lines.of_instruction(pc)
        allocation = self._find(address)
        memory = str(allocation) if allocation else "device memory"
        message = f"host code reads or writes {memory}: copy it with cudaMemcpy"
        return self._mistake("invalid call", message, line)

    # Errors

    def _inject(self, name: str, line: int) -> int:
        """Return the status with which a call fails without doing anything, because it is its turn; else 0."""
        if name not in self._functions:
            return 0
        self.calls += 1
        if self.calls != self._fail_at:
            return 0
        status = {"cudaMalloc": _OUT_OF_MEMORY, "<<<>>>": _INVALID_CONFIGURATION}.get(name, _ILLEGAL_ADDRESS)
        self.injected = _FailedCall("the launch" if name == "<<<>>>" else name, line, status)
        return status

    def _execute(self, name: str, line: int, words: Sequence[int]) -> int:
        if self._device_error and name not in self._never_failing:
            return self._device_error
        try:
            return (self._functions | self._never_failing)[name](line, words)
        except HostProgramError as error:
            self.problem = self.problem or error
            self._device_error = _ILLEGAL_ADDRESS
            return _INVALID_DIRECTION if error.message.startswith("cudaMemcpy") else _INVALID_VALUE
        except Exception as error:  # ctypes would print it and go on; the program ends first
            self.exception = self.exception or error
            self._device_error = _ILLEGAL_ADDRESS if isinstance(error, Fault) else _LAUNCH_FAILURE
            # A launch has returned by the time that its kernel fails.
            return 0 if name == "<<<>>>" else self._device_error

    def _mistake(self, problem: Problem, message: str, line: int) -> HostProgramError:
        return HostProgramError(problem, message, self._file, line)

    # Memory

    def _malloc(self, line: int, words: Sequence[int]) -> int:
        target, nbytes = words[:2]
        if self._next_address + nbytes > DEVICE_START + DEVICE_BYTES:
            return _OUT_OF_MEMORY
        # cpu:0 is the device of memory that a GPU would have, for those who track that.
        memory = torch.empty(nbytes, dtype=torch.uint8, device="cpu:0")
        allocation = Allocation(self._next_address, memory, line)
        self._allocations.append(allocation)
        # One alignment unit at least between two allocations, so that the end of one is not the start of the next.
        self._next_address += (nbytes // _ALIGNMENT + 1) * _ALIGNMENT
        ctypes.c_uint64.from_address(target).value = allocation.address if nbytes else 0
        return 0

    def _free(self, line: int, words: Sequence[int]) -> int:
        address = words[0]
        if not address:
            return self._device_error
        allocation = self._find(address)
        if allocation is None:
            raise self._mistake("invalid call", "cudaFree is given a pointer that is not from cudaMalloc", line)
        if allocation.freed_line:
            message = f"cudaFree is given {allocation}, which line {allocation.freed_line} has freed already"
            raise self._mistake("invalid call", message, line)
        if address != allocation.address:
            raise self._mistake("invalid call", f"cudaFree is given a pointer into the middle of {allocation}", line)
        allocation.freed_line = line
        self._completed = self._queued  # cudaFree waits for the device
        return self._device_error

    def _memcpy(self, line: int, words: Sequence[int]) -> int:
        target, source, nbytes, direction = words[:4]
        for verb, address in (("writes to", target), ("reads from", source)):
            if address == 0 and nbytes:
                raise self._mistake("invalid call", f"cudaMemcpy {verb} a null pointer", line)
        actual = 2 * self._is_device(source) + self._is_device(target)
        if direction not in (_DEFAULT_DIRECTION, actual):
            name = _DIRECTIONS[direction] if direction < len(_DIRECTIONS) else str(direction)
            message = (
                f"cudaMemcpy is given {name}, but its target is {self._describe(target)} and its source is "
                f"{self._describe(source)}: that direction is {_DIRECTIONS[actual]}"
            )
            raise self._mistake("invalid call", message, line)
        target_bytes = self._bytes_at("writes", target, nbytes, line)
        source_bytes = self._bytes_at("reads", source, nbytes, line)
        element = 4 if all(value % 4 == 0 for value in (target, source, nbytes)) else 1
        dtype = {4: torch.int32, 1: torch.uint8}[element]
        if nbytes:
            arguments = (target_bytes.view(dtype), source_bytes.view(dtype), nbytes // element)
            try:
                _KERNELS[MEMCPY, element][-(-nbytes // element // _COPY_THREADS), _COPY_THREADS](*arguments)
            except Uninitialized:
                message = f"cudaMemcpy copies {self._describe(source)}, of which nothing has written some bytes"
                raise self._mistake("uninitialized", message, line) from None
        if not self._is_device(target) and self._array(target, nbytes) is None:
            ctypes.memmove(target, target_bytes.data_ptr(), nbytes)
        self._enqueue(_COPY_SECONDS + nbytes / _COPY_BYTES_PER_SECOND)
        self._wait()  # copies from and to pageable memory wait
        return 0

    def _memset(self, line: int, words: Sequence[int]) -> int:
        target, value, nbytes = words[:3]
        if not self._is_device(target):
            raise self._mistake("invalid call", f"cudaMemset is given {self._describe(target)}", line)
        content = self._bytes_at("writes", target, nbytes, line)
        if nbytes:
            _KERNELS[MEMSET, 1][-(-nbytes // _COPY_THREADS), _COPY_THREADS](content, value & 0xFF, nbytes)
        self._enqueue(_COPY_SECONDS)
        return 0

    def _is_device(self, address: int) -> bool:
        return DEVICE_START <= address < DEVICE_START + DEVICE_BYTES

    def _find(self, address: int) -> Allocation | None:
        """Return the allocation that contains an address, also after it was freed."""
        index = bisect.bisect_right(self._allocations, address, key=lambda allocation: allocation.address) - 1
        allocation = self._allocations[index] if index >= 0 else None
        return allocation if allocation and address <= allocation.address + allocation.nbytes else None

    def _array(self, address: int, nbytes: int) -> torch.Tensor | None:
        """Return the bytes of a host array that the machine knows; None where they are in no such array."""
        for _, memory in self._arrays:
            start = memory.data_ptr()
            if start <= address < start + memory.numel():
                offset = address - start
                return memory[offset : offset + nbytes]
        return None

    def _describe(self, address: int) -> str:
        if address == 0:
            return "a null pointer"
        if allocation := self._find(address):
            freed = f", which line {allocation.freed_line} has freed" if allocation.freed_line else ""
            return f"{allocation}{freed}"
        names = (name for name, memory in self._arrays if 0 <= address - memory.data_ptr() < max(memory.numel(), 1))
        name = next(names, "")
        return f"memory of the host ({name})" if name else "memory of the host"

    def _bytes_at(self, verb: str, address: int, nbytes: int, line: int) -> torch.Tensor:
        """Return memory that a copy reads or writes. Raise HostProgramError where it is not all there."""
        allocation = self._find(address)
        if self._is_device(address) and allocation is None:
            raise self._mistake("invalid call", f"cudaMemcpy {verb} an address outside of all device memory", line)
        if allocation is not None:
            if allocation.freed_line:
                message = f"cudaMemcpy {verb} {allocation}, which line {allocation.freed_line} has freed"
                raise self._mistake("invalid call", message, line)
            offset = address - allocation.address
            content = allocation.memory[offset : offset + nbytes]
            memory = str(allocation)
        else:
            known = self._array(address, nbytes)
            if known is None:
                return torch.frombuffer(bytearray(ctypes.string_at(address, nbytes)) or bytearray(1), dtype=torch.uint8)
            content = known
            memory = self._describe(address)
        if content.numel() < nbytes:
            message = f"cudaMemcpy {verb} {nbytes:,} bytes, and {content.numel():,} are there: {memory}"
            raise self._mistake("invalid call", message, line)
        return content

    # Launches

    def _launch(self, line: int, words: Sequence[int]) -> int:
        name = ctypes.string_at(words[0]).decode() if words[0] else ""
        grid: Dim3 = (words[1], words[2], words[3])
        block: Dim3 = (words[4], words[5], words[6])
        parameters_address, shared = words[7], words[8]
        cluster: Dim3 | None = (words[10], words[11], words[12]) if words[10] else None
        threads = block[0] * block[1] * block[2]
        has_blocks = all(0 < extent <= most for extent, most in zip(grid, MOST_BLOCKS, strict=True))
        if not (0 < threads <= MOST_THREADS and has_blocks):
            return _INVALID_CONFIGURATION
        if shared > self._shared_limits.get(name, simulated_gpu.target().shared_static):
            return _INVALID_VALUE
        types = ptx_types(self._ptx, name)
        base = next((key for key in source_kernels(self._source) if f"{len(key)}{key}" in name or key == name), name)
        parameters = declared_parameters(self._source, base, types)
        arguments: list[int | float | bytes] = []
        tensors: list[tuple[str, torch.Tensor]] = []
        for index, parameter in enumerate(parameters):
            place = ctypes.c_uint64.from_address(parameters_address + 8 * index).value
            content = ctypes.string_at(place, _parameter_bytes(parameter))
            if parameter.type.startswith("b8["):
                content = clear_bytes(content, _unread_bytes(self._ptx, name)[index])
            arguments.append(self._argument(base, parameter, content, tensors, line))
        self.last_launch_line = line
        result = self._run(name, base, _Configuration(grid, block, shared, cluster), arguments, tensors)
        seconds = _LAUNCH_SECONDS + result.cost * _SECONDS_PER_COST
        self.kernel_seconds += seconds
        self._enqueue(seconds)
        self._is_kernel_unobserved = True
        return 0

    def _argument(
        self, kernel: str, parameter: Parameter, content: bytes, tensors: list[tuple[str, torch.Tensor]], line: int
    ) -> int | float | bytes:
        """Return an argument for the PTX machine. Device memory that it points to is added to `tensors`."""
        if parameter.type.startswith("b8["):
            words = memoryview(bytearray(content))
            for offset in range(0, len(content) - 7, 8):
                address = int.from_bytes(content[offset : offset + 8], "little")
                words[offset : offset + 8] = self._translate(parameter, address, tensors).to_bytes(8, "little")
            return bytes(words)
        if parameter.type in ("f32", "f64"):
            return float(C_TYPES[parameter.type].from_buffer_copy(content).value)
        value = int.from_bytes(content, "little")
        if parameter.type not in ("ptr", "u64"):
            return value
        allocation = self._find(value)
        is_live = allocation is not None and not allocation.freed_line
        if parameter.type == "ptr" and not is_live and (value or self.injected):
            message = f"{kernel} is given {self._describe(value)} as {parameter.name}: a kernel needs device memory"
            raise self._mistake("invalid call", message, line)
        return self._translate(parameter, value, tensors)

    def _translate(self, parameter: Parameter, address: int, tensors: list[tuple[str, torch.Tensor]]) -> int:
        """Return the machine's address for a device address, and any other number as it is."""
        allocation = self._find(address)
        if allocation is None or allocation.freed_line:
            return address
        # A struct may have several pointers, and each tensor needs a name of its own.
        is_named = parameter.name not in dict(tensors)
        name = parameter.name if is_named else f"{parameter.name}, pointer {len(tensors)}"
        tensors.append((name, _view_as_declared(allocation.memory, parameter)))
        return allocation.memory.data_ptr() + address - allocation.address

    def _run(
        self,
        name: str,
        base: str,
        configuration: _Configuration,
        arguments: Sequence[int | float | bytes],
        tensors: Sequence[tuple[str, torch.Tensor]],
    ) -> LaunchResult:
        if self._module is None:
            self._module = backend.device().load(self._ptx, self._file)
        with frontends.compiling():
            self._module.compile(name)
        try:
            result = self._module.launch(
                name,
                grid=configuration.grid,
                block=configuration.block,
                shared=configuration.shared,
                cluster=configuration.cluster,
                arguments=arguments,
                tensors=tensors,
            )
        except (Fault, TimedOut) as error:
            error.source = self._source
            raise
        memory = tuple(tensor for _, tensor in tensors)
        frontends.record(
            frontends.Launched("cuda", base, "cpu", memory, result.known_cost, result.launch, self._source)
        )
        return result

    # Waiting

    def _enqueue(self, seconds: float) -> None:
        self._queued += 1
        self._seconds += seconds

    def _wait(self) -> None:
        self._completed = self._queued
        self._is_kernel_unobserved = False

    def _synchronize(self, line: int, words: Sequence[int]) -> int:
        self._wait()
        return 0

    def _event_create(self, line: int, words: Sequence[int]) -> int:
        handle = len(self._events) + 1
        self._events[handle] = _Event(line)
        ctypes.c_uint64.from_address(words[0]).value = handle
        return 0

    def _event_record(self, line: int, words: Sequence[int]) -> int:
        event = self._event(words[0])
        if event is None:
            return _INVALID_HANDLE
        event.position = self._queued
        event.seconds = self._seconds
        return 0

    def _event_synchronize(self, line: int, words: Sequence[int]) -> int:
        event = self._event(words[0])
        if event is None:
            return _INVALID_HANDLE
        if event.position == self._queued:
            self._wait()
        self._completed = max(self._completed, event.position)
        return 0

    def _event_elapsed_time(self, line: int, words: Sequence[int]) -> int:
        start = self._event(words[1])
        end = self._event(words[2])
        if start is None or end is None or -1 in (start.position, end.position):
            return _INVALID_HANDLE
        if self._completed < max(start.position, end.position):
            return _NOT_READY
        ctypes.c_float.from_address(words[0]).value = 1e3 * (end.seconds - start.seconds)
        return 0

    def _event_destroy(self, line: int, words: Sequence[int]) -> int:
        event = self._event(words[0])
        if event is None:
            raise self._mistake("invalid call", "cudaEventDestroy is given no event, or one destroyed before", line)
        event.destroyed = True
        return 0

    def _event(self, handle: int) -> _Event | None:
        event = self._events.get(handle)
        return None if event is None or event.destroyed else event

    def _get_device_count(self, line: int, words: Sequence[int]) -> int:
        ctypes.c_int.from_address(words[0]).value = 1
        return 0

    def _set_device(self, line: int, words: Sequence[int]) -> int:
        return 0 if words[0] == 0 else _INVALID_DEVICE

    def _get_device_attribute(self, line: int, words: Sequence[int]) -> int:
        target, attribute, device = words[:3]
        if device != 0:
            return _INVALID_DEVICE
        simulated = simulated_gpu.target()
        values = {
            _ATTRIBUTE_MULTIPROCESSORS: simulated.multiprocessors,
            _ATTRIBUTE_SHARED_OPTIN: simulated.shared,
        }
        if attribute not in values:
            message = f"the CUDA runtime of the PTX machine does not know attribute {attribute} of a device"
            raise frontends.NotSimulated(message)
        ctypes.c_int.from_address(target).value = values[attribute]
        return 0

    def _set_function_attribute(self, line: int, words: Sequence[int]) -> int:
        name_address, attribute, value = words[:3]
        if attribute != _MAX_DYNAMIC_SHARED or not name_address:
            return 0  # preferences, which change no result
        if value > simulated_gpu.target().shared:
            return _INVALID_VALUE
        self._shared_limits[ctypes.string_at(name_address).decode()] = value
        return 0

    def _encode_tensor_map(self, line: int, words: Sequence[int]) -> int:
        """Execute cuTensorMapEncodeTiled."""
        box = ctypes.c_uint32 * (words[2] & 0xFFFFFFFF)
        return self._write_map(line, encode_tiled, words, (tuple(box.from_address(words[6])),), words[7:12])

    def _encode_im2col_map(self, line: int, words: Sequence[int]) -> int:
        """Execute cuTensorMapEncodeIm2col."""
        corner = ctypes.c_int32 * max((words[2] & 0xFFFFFFFF) - 2, 0)
        lower_corner, upper_corner = (tuple(corner.from_address(word)) for word in words[6:8])
        channels, pixels = (word & 0xFFFFFFFF for word in words[8:10])
        return self._write_map(line, encode_im2col, words, (lower_corner, upper_corner, channels, pixels), words[10:15])

    def _write_map(
        self,
        line: int,
        encode: Callable[..., bytes],
        words: Sequence[int],
        box: Sequence[object],
        modes: Sequence[int],
    ) -> int:
        """Encode a tensor map, and write it. The map has the device address, which the launch translates.

        Args:
            line: The line of the call.
            encode: The function of ``tensor_map`` that the call stands for.
            words: All arguments of the call. The first six are the same for each kind of map.
            box: The decoded arguments after these, which say what one copy moves.
            modes: The address of the element strides, and the four modes that end the call.
        """
        target, element_type, rank, address, extents, strides = words[:6]
        rank &= 0xFFFFFFFF
        try:
            content = encode(
                element_type & 0xFFFFFFFF,
                address,
                tuple((ctypes.c_uint64 * rank).from_address(extents)),
                tuple((ctypes.c_uint64 * (rank - 1)).from_address(strides)),
                *box,
                tuple((ctypes.c_uint32 * rank).from_address(modes[0])),
                *(word & 0xFFFFFFFF for word in modes[1:]),
            )
        except ValueError as error:
            raise self._mistake("invalid call", str(error), line) from None
        ctypes.memmove(target, content, len(content))
        return 0


_ELEMENT_TYPE = re.compile(rf"\b({'|'.join(POINTED_DTYPES)})\s*(?:const\s*)?\*(?!.*\*)")


def _view_as_declared(memory: torch.Tensor, parameter: Parameter) -> torch.Tensor:
    """Return memory as a tensor of the elements that a pointer is declared for, which messages count."""
    match = _ELEMENT_TYPE.search(parameter.declared)
    dtype: torch.dtype = getattr(torch, POINTED_DTYPES[match[1]][0]) if match else torch.uint8
    return memory.view(dtype) if memory.numel() % dtype.itemsize == 0 else memory


def _parameter_bytes(parameter: Parameter) -> int:
    if parameter.type.startswith("b8["):
        return int(parameter.type[len("b8[") : -1])
    return 8 if parameter.type == "ptr" else int(re.sub(r"\D", "", parameter.type)) // 8


@lru_cache(maxsize=16)
def _unread_bytes(ptx: str, kernel: str) -> list[frozenset[int]]:
    """Return for each parameter of a kernel the offsets of the bytes that it never reads.

    A program that passes a struct by value passes the padding between its members as well, which holds whatever was on
    the stack.
    """
    return unread(parse(ptx).functions[kernel])
