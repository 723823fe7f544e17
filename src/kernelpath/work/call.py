"""One call of an entry in the submission's own process, and what may be told of it."""

from __future__ import annotations

import gc
import tempfile
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch

from kernelpath.course import labs
from kernelpath.course.inputs import tensors_of
from kernelpath.course.spec import Exercise
from kernelpath.work import confine, messages
from kernelpath.work.dispatch_monitor import AuditLog, CallRecord, DispatchMonitor, GuardedAllocator, LibraryMatmul
from kernelpath.work.exception_findings import WrongType
from kernelpath.work.tamper_check import SubmissionThread
from kernelpath.work.tensors import dtype_name, fingerprints, from_bytes, to_bytes_each

_CPU_MEMORY = 6 << 30
_COLLECT = gc.collect


class Call:
    """One call of the entry in this process: its inputs, what was seen while it ran, and what may be told of it."""

    def __init__(
        self,
        entry: str,
        drawn: Sequence[Any],
        device: torch.device,
        thread: SubmissionThread,
        journal: AuditLog,
        timed: bool,
        exercise: Exercise | None = None,
    ) -> None:
        self._free = exercise is not None and exercise.products
        self._device, self._entry, self._thread, self._journal = device, entry, thread, journal
        self._exercise = exercise
        self._guards, self._notes = GuardedAllocator(poison=not timed), CallRecord()
        guarded = iter(self._guards.guard(tensors_of(drawn)))
        self.inputs = tuple(next(guarded) if isinstance(value, torch.Tensor) else value for value in drawn)

    def __call__(self, entry: Callable[..., Any]) -> Any:
        with self._journal.noting(self._notes):
            within = labs.surround(DispatchMonitor(self._guards.allocate, products=self._free), entry, self.inputs)
            return self._thread.call(entry, *self.inputs, within=within)

    def settle(self) -> None:
        """Free what the call left."""
        self._beside(confine.release_leftovers)

    def ahead_of_the_clock(self) -> None:
        """Collect young garbage: of hundreds of tensors, Python would take milliseconds to do so in the call."""
        self._beside(_COLLECT, 1)

    def _beside(self, function: Callable[..., object], *decode_arguments: Any) -> None:
        """Outside of the call, on the submission's thread and watched as the call is: this may run code of its."""
        with self._journal.noting(self._notes):
            self._thread.call(function, *decode_arguments, within=DispatchMonitor(self._guards.allocate))

    @property
    def launches(self) -> list[str]:
        return list(self._notes.launches)

    @property
    def products(self) -> list[LibraryMatmul]:
        return list(self._notes.products)

    def outputs(self, result: Any) -> list[torch.Tensor]:
        """As `plain_outputs`, or the inputs that are overwritten."""
        if self._exercise is not None and (overwritten := self._exercise.overwritten(self.inputs)):
            return list(overwritten)
        return check_outputs(result, self._entry, self._device, self._guards.holds)

    def returned(
        self,
        outputs: Sequence[torch.Tensor],
        secret: str,
        tampered: str,
        seen: Callable[[Sequence[torch.Tensor]], Sequence[torch.Tensor]] = lambda outputs: outputs,
    ) -> messages.CallResult:
        """What the grader is told. seen: what of the outputs, where it is not all."""
        contents = to_bytes_each(seen(outputs))
        told = [
            messages.TensorData(dtype_name(one.dtype), list(one.shape), content)
            for one, content in zip(outputs, contents, strict=True)
        ]
        return messages.CallResult(
            secret=secret,
            outputs=told,
            input_fingerprints=fingerprints(self._guards.inputs),
            out_of_bounds=self._guards.broken(),
            operators=self._notes.operators,
            launches=self.launches,
            tampered=tampered,
        )


def profile_call(call: Call, entry: Callable[..., Any]) -> tuple[dict[str, float], list[str], bytes]:
    """Seconds of each kernel that the GPU ran, the library's kernels for products, and the trace in Chrome's format."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA], acc_events=True) as profiler:
        call(entry)
        call.settle()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        trace = path.read_bytes()
    seconds = {event.key: event.device_time_total * 1e-6 for event in profiler.key_averages()}
    return seconds, matmul_kernels(call.products) if call.products else [], trace


def matmul_kernels(products: Sequence[LibraryMatmul]) -> list[str]:
    """The kernels that torch.mm runs on a GPU for operands like these, by whose shape, strides and dtype it chooses."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA], acc_events=True) as profiler:
        for sizes, strides, dtype in dict.fromkeys(products):
            a, b = (
                torch.empty_strided(size, stride, dtype=dtype, device="cuda")
                for size, stride in zip(sizes, strides, strict=True)
            )
            torch.mm(a, b)
        torch.cuda.synchronize()
    return sorted({event.key for event in profiler.key_averages()})


def memory_limit(device: torch.device, room: int = 0) -> AbstractContextManager[None]:
    """room: bytes of addresses without memory."""
    return confine.memory_limit(_CPU_MEMORY + room) if device.type == "cpu" else nullcontext()


def decode_arguments(asked: messages.Call, device: torch.device) -> list[Any]:
    """What was sent, the tensors on the device."""
    given = list(asked.arguments)
    for place, sent in asked.tensors.items():
        given[place] = from_bytes(sent.dtype, sent.shape, sent.content, device)
    return given


def check_outputs(
    result: Any, entry: str, device: torch.device, is_input: Callable[[torch.Tensor], bool]
) -> list[torch.Tensor]:
    """The entry's result as a list. Raises WrongType unless it is plain tensors with memory of their own."""
    outputs = list(result) if isinstance(result, tuple) else [result]
    for position, output in enumerate(outputs):
        if type(output) is not torch.Tensor:
            of = f"{_described(output)} in place {position} of its tuple" if isinstance(result, tuple) else ""
            raise WrongType(f"{entry} returned {of or _ended(output)}")
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


def _ended(output: Any) -> str:
    if output is None:
        return "None; end it, or the function that it calls, with `return out`"
    return f"{_described(output)}; return a plain torch.Tensor"


def _described(output: Any) -> str:
    return "None" if output is None else f"a {type(output).__name__}"
