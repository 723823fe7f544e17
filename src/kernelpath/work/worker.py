"""The child process: loads a submission, runs it, times it, and tells what happened. It holds no expected value.

What it answers is typed in `messages`; the verdict is the grader's.
"""

from __future__ import annotations

import ctypes
import inspect
import random
import signal
import socket
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from importlib.util import cache_from_source
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch

from kernelpath.course import registry
from kernelpath.course.errors import Withheld
from kernelpath.device import api
from kernelpath.device.client import Client
from kernelpath.device.messages import ToClient
from kernelpath.lanes import on_compiling
from kernelpath.verdict import Complaint, Verdict
from kernelpath.wire import Gone, Wire
from kernelpath.work import confine, far, messages
from kernelpath.work.blame import EntryError, NotTheSubmission, blame
from kernelpath.work.call import Call, plain_outputs
from kernelpath.work.far import FarWatch
from kernelpath.work.tensors import fingerprint, poison_, sample, to_bytes
from kernelpath.work.watch import Journal, Notes, Watch
from kernelpath.work.witness import Snapshot, SubmissionThread

Answer = messages.Answer

_CPU_MEMORY = 6 << 30
_PR_SET_PDEATHSIG = 1


def main(grader: socket.socket) -> None:
    """Serve the grader at the other end of the socket until it closes."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    wire: Wire[messages.Asked] = Wire(grader, messages.AnyAsked)
    worker = _Worker(wire)
    on_compiling(lambda begins: wire.send(messages.Compiling(secret="", begins=begins)))
    while True:
        try:
            asked = wire.receive()
        except Gone:
            return
        wire.send(worker.answer(asked))


class _Worker:
    """The state between messages."""

    def __init__(self, wire: Wire[messages.Asked]) -> None:
        self._wire = wire
        self._journal = Journal()
        self._client: Client | None = None

    def answer(self, asked: messages.Asked) -> Answer:
        """The answer to one request; what the submission raises becomes a complaint."""
        secret = asked.secret  # known to this thread alone, which the submission's cannot see
        try:
            match asked:
                case messages.Start():
                    return self._start(asked, secret)
                case messages.Load():
                    return self._load(asked, secret)
                case messages.Run():
                    return self._run(asked, secret)
                case messages.Profile():
                    return self._profile(asked, secret)
                case messages.Ceilings(dtype=dtype):
                    return self._ceilings(dtype, secret)
                case messages.Contest():
                    return self._contest(asked, secret)
                case messages.Round():
                    return self._round(asked, secret)
        except BaseException as error:
            if isinstance(asked, messages.Start):
                raise
            complaint = blame(error, self._file, loading=isinstance(asked, messages.Load))
            return messages.Complained(secret=secret, complaint=complaint)
        raise AssertionError(asked)

    def _start(self, asked: messages.Start, secret: str) -> Answer:
        if asked.machine:
            _, (descriptor,), _, _ = socket.recv_fds(self._wire.connection, 1, 1)
            self._client = Client(Wire(socket.socket(fileno=descriptor), ToClient))
            api.use(self._client)
        self._item = registry.Item(Path(asked.root), asked.stem)
        self._exercise = registry.load(self._item)
        self._device = torch.device(asked.device)
        confine.keep_in(Path(asked.own))
        try:
            _import_lane(self._item.lane, self._device)
        except ImportError as error:
            reason = f"{error}; kp doctor says what to install"
            return messages.Complained(secret=secret, complaint=Complaint(Verdict.UNAVAILABLE, reason))
        if self._device.type == "cuda":
            from kernelpath.work.stopwatch import Stopwatch

            self._stopwatch = Stopwatch(self._device)
            if isinstance(self._exercise.baseline, registry.Solution):
                with suppress(Withheld):  # said when the race begins
                    self._exercise.baseline.load()
        confine.spare_what_is_loaded()
        _same_random_numbers()
        confine.give_up(Path(asked.source), Path(asked.own))
        self._thread = SubmissionThread()
        return messages.Done(secret=secret)

    def _load(self, asked: messages.Load, secret: str) -> Answer:
        self._file = Path(asked.file)
        own = (self._file, self._file.with_suffix(".cu"), Path(cache_from_source(asked.file)))
        withheld = (self._item.root / "solutions", self._item.root / ".git")  # and its history
        confine.deny([*withheld, *map(Path, asked.hidden)], own)
        self._snapshot = Snapshot()
        module = self._thread.call(registry.import_file, self._file, confine.SUBMISSION)
        self._entry = _entry_of(module, self._exercise.entry)
        tampered = self._snapshot.changed()
        if tampered:
            return messages.Complained(secret=secret, complaint=Complaint(Verdict.TAMPERED, tampered))
        return messages.Done(secret=secret)

    def _run(self, asked: messages.Run, secret: str) -> Answer:
        if self._client is not None:
            return self._run_on_the_machine(self._client, secret)
        call = self._called(asked.case, asked.seed)
        with _memory_limit(self._device):
            _check_signature(self._entry, call.inputs)
            result = call(self._entry)
            confine.settle()
        return call.returned(call.outputs(result), secret, self._tampered(), to_bytes)

    def _run_on_the_machine(self, client: Client, secret: str) -> Answer:
        inputs, notes = client.inputs(), Notes()

        def poisoned(fresh: torch.Tensor) -> torch.Tensor:
            _poison_storage(fresh)
            client.fresh(fresh)
            return fresh

        watch, room = (FarWatch, far.ROOM) if client.far else (Watch, 0)
        with _memory_limit(self._device, room), self._journal.noting(notes):
            _check_signature(self._entry, inputs)
            result = self._thread.call(self._entry, *inputs, within=watch(poisoned))
        taken = {value.untyped_storage().data_ptr() for value in inputs if isinstance(value, torch.Tensor)}
        shares = lambda output: output.untyped_storage().data_ptr() in taken  # noqa: E731
        outputs = plain_outputs(result, self._exercise.entry, self._device, shares)
        client.finish()
        placed = [client.place(output) for output in outputs]
        return messages.Placed(secret=secret, outputs=placed, operators=notes.operators, tampered=self._tampered())

    def _tampered(self) -> str:
        return self._snapshot.changed() or ""

    def _called(self, case: Mapping[str, Any], seed: int, timed: bool = False) -> Call:
        return Call(self._exercise, case, seed, self._device, self._thread, self._journal, timed)

    def _profile(self, asked: messages.Profile, secret: str) -> Answer:
        call = self._called(asked.case, asked.seed, timed=True)
        activities = [torch.profiler.ProfilerActivity.CUDA]
        with torch.profiler.profile(activities=activities, acc_events=True) as profiler:
            call(self._entry)
            confine.settle()
        kernels = {event.key: event.device_time_total * 1e-6 for event in profiler.key_averages()}
        return messages.Profiled(secret=secret, kernels=kernels, launches=call.launches)

    def _ceilings(self, dtype: str | None, secret: str) -> Answer:
        from kernelpath.work import ceilings

        return messages.Measured(secret=secret, ceilings=ceilings.measure(self._stopwatch, dtype))

    def _contest(self, asked: messages.Contest, secret: str) -> Answer:
        assert self._exercise.baseline is not None
        self._contestants: list[Callable[..., Any]] = [self._entry, self._exercise.baseline]
        if asked.reference:
            folder = Path(tempfile.mkdtemp())
            for name, text in asked.reference.items():
                (folder / name).write_text(text, encoding="utf-8")
            solution = registry.import_file(folder / self._item.solution.name, "kernelpath_reference", listed=False)
            self._contestants.append(getattr(solution, self._exercise.entry))
        self._bench = asked.case
        return messages.Ready(secret=secret, contestants=len(self._contestants))

    def _round(self, asked: messages.Round, secret: str) -> Answer:
        call = self._called(self._bench, asked.seed, timed=True)
        turn = {contestant: position for position, contestant in enumerate(asked.order)}
        seconds, results = self._stopwatch.round([self._timed(contestant, call) for contestant in asked.order])
        outputs = call.outputs(results[turn[0]])
        early = [fingerprint(output) for output in outputs]
        returned = call.returned(
            outputs, secret, self._tampered(), lambda output: to_bytes(sample(output, asked.sample))
        )
        torch.cuda.synchronize()
        return messages.Timed(
            secret=secret,
            returned=returned,
            seconds=[seconds[turn[contestant]] for contestant in range(len(asked.order))],
            late=early != [fingerprint(output) for output in outputs],
            telemetry=self._stopwatch.telemetry(),
        )

    def _timed(self, contestant: int, call: Call) -> Callable[[], Any]:
        """Contestant 0 is the submission, which runs on its own thread; what the others raise is not its fault."""
        entry = self._contestants[contestant]
        if contestant == 0:
            return lambda: call(entry)

        def ours() -> Any:
            try:
                return entry(*call.inputs)
            except Exception as error:
                raise NotTheSubmission(
                    f"the {('baseline', 'reference kernel')[contestant - 1]} failed: {error}"
                ) from error

        return ours


def _poison_storage(tensor: torch.Tensor) -> None:
    """Fill all of a fresh tensor's storage; an odd last byte stays as it is."""
    storage = tensor.untyped_storage()
    whole = torch.tensor([], dtype=torch.uint8).set_(storage)
    poison_(whole[: storage.nbytes() // 2 * 2])


def _same_random_numbers() -> None:
    """Two processes with a submission of their own, which may draw numbers, must launch the same."""
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)


def _import_lane(lane: str, device: torch.device) -> None:
    if lane == "cuda":
        from kernelpath.lanes import cuda  # noqa: F401
    if lane == "cute":
        from kernelpath.lanes import cute  # noqa: F401
    if lane == "triton":
        from kernelpath.lanes import triton

        triton.activate(device.type)


def _memory_limit(device: torch.device, room: int = 0) -> AbstractContextManager[None]:
    """room: bytes of addresses without memory."""
    return confine.memory_limit(_CPU_MEMORY + room) if device.type == "cpu" else nullcontext()


def _entry_of(module: ModuleType, name: str) -> Callable[..., Any]:
    entry = getattr(module, name, None)
    if callable(entry):
        return entry  # type: ignore[no-any-return]
    others = [
        key for key, value in vars(module).items() if inspect.isfunction(value) and value.__module__ == "submission"
    ]
    defined = f"it defines {', '.join(others)}" if others else "it defines no function"
    raise EntryError(f"the file defines no function {name}; {defined}")


def _check_signature(entry: Callable[..., Any], arguments: Sequence[Any]) -> None:
    try:
        inspect.signature(entry).bind(*arguments)
    except TypeError as error:
        name = getattr(entry, "__name__", "the entry")
        raise EntryError(f"{name} is called with {len(arguments)} arguments: {error}") from error
    except ValueError:
        return
