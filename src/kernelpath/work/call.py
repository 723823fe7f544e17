"""Call an entry once in the submission's own process, and describe the call to the grader."""

from __future__ import annotations

import dataclasses
import gc
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from kernelpath.course import labs
from kernelpath.course.inputs import tensors_of
from kernelpath.course.spec import Exercise
from kernelpath.course.traces import Fact
from kernelpath.work import confine, messages
from kernelpath.work.dispatch_monitor import AuditLog, CallRecord, DispatchMonitor, GuardedAllocator, LibraryMatmul
from kernelpath.work.exception_findings import WrongType
from kernelpath.work.tamper_check import SubmissionThread
from kernelpath.work.tensors import dtype_name, fingerprints, from_bytes, to_bytes_each

# Bytes of address space that a call on the CPU may add.
#
# This is less than quota.MEMORY: an allocation fails in a line of the submission before the quota ends the process.
_CPU_MEMORY = 6 << 30

_collect_garbage = gc.collect  # as it is before the submission can replace it


class GuardedCall:
    """One call of the entry: its guarded inputs, the record of the call, and the result for the grader.

    Args:
        entry: The name of the entry, for messages.
        inputs: The arguments. The call gets copies of the tensors, each between guard bands.
        device: The device of the tensors.
        thread: The thread that runs the submission's code.
        audit_log: Fills the record of the call.
        timed: Whether the call is timed. Timed calls poison fresh memory before the clock starts instead of in the
            call.
        exercise: The exercise, where the worker has loaded its declaration.
    """

    def __init__(
        self,
        entry: str,
        inputs: Sequence[Any],
        device: torch.device,
        thread: SubmissionThread,
        audit_log: AuditLog,
        timed: bool,
        exercise: Exercise | None = None,
    ) -> None:
        self._entry = entry
        self._device = device
        self._thread = thread
        self._audit_log = audit_log
        self._exercise = exercise
        self._may_call_matmul = exercise is not None and exercise.products
        self._allocator = GuardedAllocator(poison=not timed)
        self._record = CallRecord()
        guarded_tensors = iter(self._allocator.copy_inputs(tensors_of(inputs)))
        self.inputs = tuple(next(guarded_tensors) if isinstance(value, torch.Tensor) else value for value in inputs)

    def __call__(self, entry: Callable[..., Any]) -> Any:
        """Run the entry on the submission's thread, monitored and recorded, and return its result."""
        with self._audit_log.recording(self._record):
            monitor = DispatchMonitor(self._allocator.allocate, products=self._may_call_matmul)
            context = labs.surround(monitor, entry, self.inputs)
            return self._thread.call(entry, *self.inputs, context=context)

    def release_leftovers(self) -> None:
        """Free what the call left behind."""
        self._run_monitored(confine.release_leftovers)

    def collect_before_timing(self) -> None:
        """Collect the youngest garbage, so that Python does not spend milliseconds on it in the timed call.

        A submission that makes hundreds of tensors would trigger a collection there.
        """
        self._run_monitored(_collect_garbage, 1)

    def _run_monitored(self, function: Callable[..., object], *arguments: Any) -> None:
        """Run a function of the grader's as the call is run: it may run the submission's destructors."""
        with self._audit_log.recording(self._record):
            self._thread.call(function, *arguments, context=DispatchMonitor(self._allocator.allocate))

    @property
    def launches(self) -> list[str]:
        """The names of the kernels that the call launched."""
        return list(self._record.launches)

    @property
    def products(self) -> list[LibraryMatmul]:
        """The matrix products that the call left to torch.mm."""
        return list(self._record.products)

    def outputs(self, result: Any) -> list[torch.Tensor]:
        """Return the checked outputs of a result, or the inputs that the exercise overwrites."""
        if self._exercise is not None and (overwritten := self._exercise.overwritten(self.inputs)):
            return list(overwritten)
        return check_outputs(result, self._entry, self._device, self._allocator.is_input)

    def to_result(
        self,
        outputs: Sequence[torch.Tensor],
        secret: str,
        tampered: str,
        select: Callable[[Sequence[torch.Tensor]], Sequence[torch.Tensor]] = lambda outputs: outputs,
    ) -> messages.CallResult:
        """Return the message to the grader.

        Args:
            outputs: The tensors of the call.
            secret: The secret of the request.
            tampered: How the submission changed the process; empty where it did not.
            select: Returns the part of each output that is sent, such as a sample.
        """
        contents = to_bytes_each(select(outputs))
        tensor_data = [
            messages.TensorData(dtype_name(output.dtype), list(output.shape), content)
            for output, content in zip(outputs, contents, strict=True)
        ]
        return messages.CallResult(
            secret=secret,
            outputs=tensor_data,
            input_fingerprints=fingerprints(self._allocator.input_bytes),
            out_of_bounds=self._allocator.describe_broken_guard(),
            operators=self._record.operators,
            launches=self.launches,
            tampered=tampered,
        )


def profile_call(call: GuardedCall, entry: Callable[..., Any]) -> tuple[dict[str, float], list[str], bytes]:
    """Run a call under torch.profiler.

    Returns:
        The seconds of each kernel that the GPU ran, the library's kernels for matrix products, and the trace in
        Chrome's format.
    """
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA], acc_events=True) as profiler:
        call(entry)
        call.release_leftovers()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        trace = path.read_bytes()
    seconds = {event.key: event.device_time_total * 1e-6 for event in profiler.key_averages()}
    return seconds, matmul_kernels(call.products) if call.products else [], trace


def matmul_kernels(products: Sequence[LibraryMatmul]) -> list[str]:
    """Return the kernels that torch.mm runs on a GPU for such operands.

    The library chooses a kernel by the operands' shapes, strides and dtype, so operands of the same kind are multiplied
    here under the profiler.
    """
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA], acc_events=True) as profiler:
        for sizes, strides, dtype in dict.fromkeys(products):
            a, b = (
                torch.empty_strided(size, stride, dtype=dtype, device="cuda")
                for size, stride in zip(sizes, strides, strict=True)
            )
            torch.mm(a, b)
        torch.cuda.synchronize()
    return sorted({event.key for event in profiler.key_averages()})


def memory_limit(device: torch.device, address_space: int = 0) -> AbstractContextManager[None]:
    """Limit the memory of a call on the CPU.

    Args:
        device: The device of the call.
        address_space: The bytes of addresses without memory that the call may use in addition.
    """
    return confine.memory_limit(_CPU_MEMORY + address_space) if device.type == "cpu" else nullcontext()


def decode_arguments(request: messages.Call, device: torch.device) -> list[Any]:
    """Return the arguments of a request, with its tensors on the device."""
    arguments = list(request.arguments)
    for position, tensor in request.tensors.items():
        arguments[position] = from_bytes(tensor.dtype, tensor.shape, tensor.content, device)
    return arguments


class ReturnedOutputs:
    """The outputs of earlier calls of a process, as far as they still exist."""

    def __init__(self) -> None:
        self._storages: dict[int, StorageWeakRef] = {}

    def add(self, outputs: Sequence[torch.Tensor]) -> None:
        """Note the outputs of a call.

        Raises:
            WrongType: One of them is the output of an earlier call, so its values have changed.
        """
        # An empty tensor has no memory, and the address 0, which it shares with all other empty ones.
        storages = [output.untyped_storage() for output in outputs if output.numel()]
        for storage in storages:
            earlier = self._storages.get(storage.data_ptr())
            if earlier is not None and not earlier.expired():
                raise WrongType("the output is the tensor that an earlier call returned; allocate one for each call")
        # The allocator gives the address of a freed storage to a later one, so only living ones are compared.
        self._storages = {address: storage for address, storage in self._storages.items() if not storage.expired()}
        self._storages |= {storage.data_ptr(): StorageWeakRef(storage) for storage in storages}


def check_outputs(
    result: Any, entry: str, device: torch.device, is_input: Callable[[torch.Tensor], bool]
) -> list[torch.Tensor]:
    """Return the entry's result as a list.

    Raises:
        WrongType: The result is not plain, dense tensors on the device with memory of their own.
    """
    outputs = list(result) if isinstance(result, tuple) else [result]
    for position, output in enumerate(outputs):
        # A subclass could compute its values only in the comparison, after the clock has stopped: T3 in
        # docs/attacks.md.
        if type(output) is not torch.Tensor:
            if isinstance(result, tuple):
                raise WrongType(f"{entry} returned {_describe_type(output)} in place {position} of its tuple")
            raise WrongType(f"{entry} returned {_describe_wrong_result(output)}")
        if output.device.type != device.type:
            raise WrongType(f"the output is on {output.device}, the inputs are on {device}")
        if output.layout is not torch.strided:
            raise WrongType(f"the output has the layout {output.layout}; return a dense tensor")
        if output.is_neg() or output.is_conj():  # the sign is a bit of the view, and the bytes have the opposite
            raise WrongType("the output is a view that torch negates or conjugates when it is read; store the values")
        if not output.is_contiguous():
            strides = f"shape {tuple(output.shape)}, strides {output.stride()}"
            raise WrongType(f"the output is not contiguous: {strides}")
        if is_input(output):
            raise WrongType("the output shares the memory of an input; allocate one of its own")
    return outputs


def _describe_wrong_result(output: Any) -> str:
    if output is None:
        return "None; end it, or the function that it calls, with `return out`"
    return f"{_describe_type(output)}; return a plain torch.Tensor"


def _describe_type(output: Any) -> str:
    return "None" if output is None else f"a {type(output).__name__}"


# References from before the submission is imported, since a submission could replace the functions of torch.cuda.
_reset_peak_memory_stats = torch.cuda.reset_peak_memory_stats
_memory_stats = torch.cuda.memory_stats


def peak_workspace(thread: SubmissionThread, entry: Callable[..., Any], inputs: Sequence[Any]) -> int:
    """Return the bytes that a call holds at its peak besides its inputs and outputs.

    An earlier call must have tuned the entry. Memory that kernels allocate themselves, or from the driver, is not
    counted.
    """
    before = _requested_bytes("current")
    _reset_peak_memory_stats()
    result = thread.call(entry, *inputs)
    peak = _requested_bytes("peak") - before
    if result is None:
        outputs: tuple[Any, ...] = ()
    else:
        outputs = result if isinstance(result, tuple) else (result,)
    # Several outputs may be views of one storage, which counts once.
    bytes_by_address = {
        output.untyped_storage().data_ptr(): int(output.untyped_storage().nbytes()) for output in outputs
    }
    return max(0, peak - sum(bytes_by_address.values()))


def _requested_bytes(when: str) -> int:
    """Return the bytes requested from the allocator, whose blocks may be longer than the requests."""
    return int(_memory_stats().get(f"requested_bytes.all.{when}", 0))


@contextmanager
def written_files(request: messages.ReadFiles) -> Iterator[tuple[Any, ...]]:
    """Write the files of a request, and yield the arguments of the entry: the paths, then the other arguments.

    The files are removed at the end of the `with` block.
    """
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / file.name for file in request.files]
        for path, file in zip(paths, request.files, strict=True):
            path.write_bytes(file.content)
        yield (*paths, *request.arguments)


def collect_facts(entry: Callable[..., Any], inputs: tuple[Any, ...]) -> dict[str, Fact]:
    """Return the entry's report, a mapping or a dataclass, as a dict of plain values. Raises WrongType."""
    report = entry(*inputs)
    name = entry.__name__
    if dataclasses.is_dataclass(report) and not isinstance(report, type):
        report = {field.name: getattr(report, field.name) for field in dataclasses.fields(report)}
    if not isinstance(report, Mapping):
        returned = "None; end it with `return`" if report is None else f"a {type(report).__name__}"
        raise WrongType(f"{name} returned {returned}; return a dict or a dataclass of facts")
    return {str(key): _plain(f"{name}(…)[{str(key)!r}]", value) for key, value in report.items()}


def _plain(name: str, value: Any, is_element: bool = False) -> Any:
    """Return a number, string, bool, None, or a list or dict of these. Values of NumPy and torch become Python's."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, (Mapping, list, tuple)) and is_element:
        raise WrongType(f"{name} holds a {type(value).__name__}; its elements are numbers, strings or None")
    if isinstance(value, Mapping):
        return {str(key): _plain(name, element, is_element=True) for key, element in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(name, element, is_element=True) for element in value]
    # MessagePack, the format of the wire, has integers of at most 64 bits.
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
        raise WrongType(f"{name} is an integer of more than 64 bits")
    if isinstance(value, str):
        # A string may have surrogates, which UTF-8 cannot encode.
        return value.encode(errors="replace").decode()
    # bool comes first, since it is a subclass of int.
    for kind in (bool, int, float):
        if isinstance(value, kind):
            return kind(value)
    if value is None:
        return None
    raise WrongType(f"{name} is a {type(value).__name__}; facts are numbers, strings, None, or lists and dicts of them")
