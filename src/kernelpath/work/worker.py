"""The child process: loads a submission, runs it, times it, and tells what happened. It holds no expected value.

Every answer is a message of `kernelpath.work.process`; the verdict is the grader's.
"""

from __future__ import annotations

import ctypes
import inspect
import io
import signal
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from importlib.util import cache_from_source
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from kernelpath import simt
from kernelpath.course import labs, registry
from kernelpath.course.problem import Case
from kernelpath.course.spec import Exercise
from kernelpath.grading import compare, roofline, timing
from kernelpath.lanes import Launched, on_compiling, remember
from kernelpath.show import picture
from kernelpath.simt.counters import by_access
from kernelpath.simt.layout import Access
from kernelpath.verdict import Complaint, LineTraffic, Verdict
from kernelpath.work import sandbox
from kernelpath.work.blame import EntryError, WrongType, blame
from kernelpath.work.process import Channel

Answer = tuple[dict[str, Any], list[bytes]]

_CPU_MEMORY = 6 << 30
_PR_SET_PDEATHSIG = 1


def main(descriptor: int) -> None:
    """Serve the grader at the other end of the pipe until it closes."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    channel = Channel(Connection(descriptor))
    worker = _Worker()
    on_compiling(lambda begins: channel.send({"compiling": begins}))
    while True:
        try:
            message, _ = channel.receive()
        except EOFError:
            return
        secret = message.pop("secret")  # known to this frame alone, which the submission's thread cannot see
        answer, payloads = getattr(worker, f"on_{message.pop('do')}")(**message)
        channel.send({**answer, "secret": secret}, payloads)


class _Worker:
    """The state between messages. Each `on_...` method answers one kind of message."""

    def __init__(self) -> None:
        self._thread = sandbox.SubmissionThread()
        self._journal = sandbox.Journal()
        self._contents = sandbox.Contents()

    def on_start(self, root: str, stem: str, device: str) -> Answer:
        """Import everything slow, before there is a submission."""
        self._item = registry.Item(Path(root), stem)
        self._exercise = registry.load(self._item)
        self._device = torch.device(device)
        _import_lane(self._item.lane, self._device)
        if self._device.type == "cuda":
            self._stopwatch = timing.Stopwatch(self._device)
        elif self._exercise.is_kernel:
            simt.warm_up()
        sandbox.spare_what_is_loaded()
        return {}, []

    def on_load(self, file: str, hidden: Sequence[str]) -> Answer:
        """Load the submission. hidden: folders that it must not use, but for its own files."""
        self._file = Path(file)
        own = (self._file, self._file.with_suffix(".cu"), Path(cache_from_source(file)))
        sandbox.deny([*self._with_solutions(), *map(Path, hidden)], own)
        self._snapshot = sandbox.Snapshot()
        try:
            module = self._thread.call(registry.import_file, self._file, sandbox.SUBMISSION)
            self._entry = _entry_of(module, self._exercise.entry)
        except BaseException as error:
            return _complain(blame(error, self._file, loading=True))
        tampered = self._snapshot.changed()
        return _complain(Complaint(Verdict.TAMPERED, tampered)) if tampered else ({}, [])

    def _with_solutions(self) -> tuple[Path, ...]:
        """Folders with the reference kernels in them, in Git's history too."""
        return self._item.root / "solutions", self._item.root / ".git"

    def _run_of(self, case: Case, seed: int, timed: bool = False) -> _Run:
        memory = sandbox.Provenance(self._contents)
        return _Run(self._exercise, case, seed, self._device, self._thread, self._journal, memory, timed)

    def on_run(self, case: Case, seed: int) -> Answer:
        """Run one case on freshly drawn inputs; answer with the outputs' bytes and all that was seen."""
        self._written: tuple[list[Launched], list[torch.Tensor]] = [], []
        run = self._run_of(case, seed)
        try:
            with _memory_limit(self._device):
                _check_signature(self._entry, run.inputs)
                result = run.call(self._entry)
                sandbox.settle()
            outputs = run.outputs(result)
            answer = run.describe(outputs)
            answer["tampered"] = self._snapshot.changed()
            self._written = run.launches, outputs
            return answer, [_bytes_of(output) for output in outputs]
        except BaseException as error:
            return _complain(blame(error, self._file))

    def on_writer(self, output: int, element: int) -> Answer:
        """Who wrote an element of the last run's outputs, as the PTX machine saw it; an empty name for nobody."""
        launches, outputs = self._written
        address = outputs[output].data_ptr() + element * outputs[output].element_size()
        for launched in reversed(launches):
            writer = launched.counted.writer(address) if launched.counted is not None else None
            if launched.counted is not None and writer is not None:
                name = (
                    f"program {writer.block}"
                    if launched.lane == "triton"
                    else f"thread {writer.thread} of block {writer.block}"
                )
                file = self._file.with_name(Path(launched.counted.file).name)
                return {"writer": name, "file": str(file), "line": writer.site.line}, []
        return {"writer": ""}, []

    def on_picture(self, case: Case, seed: int) -> Answer:
        """Run one case on the PTX machine; answer with a PNG of the largest launch, if there is any."""
        run = self._run_of(case, seed)
        try:
            run.call(self._entry)
        except BaseException as error:
            return _complain(blame(error, self._file))
        counted = [launched.counted for launched in run.launches if launched.counted is not None]
        if not counted:
            return {"kernel": ""}, []
        heaviest = max(counted, key=lambda launch: launch.totals.warp_instructions)
        source = self._file.with_name(Path(heaviest.file).name)
        figure = picture.draw(heaviest, source.read_text(encoding="utf-8"), f"{self._item.name}: {source.name}")
        image = io.BytesIO()
        figure.savefig(image, format="png", dpi=120)
        return {"kernel": heaviest.kernel}, [image.getvalue()]

    def on_profile(self, case: Case, seed: int) -> Answer:
        """Run one case on a GPU; answer with the seconds that each kernel took there, by name."""
        run = self._run_of(case, seed, timed=True)
        activities = [torch.profiler.ProfilerActivity.CUDA]
        try:
            with torch.profiler.profile(activities=activities, acc_events=True) as profiler:
                run.call(self._entry)
                sandbox.settle()
        except BaseException as error:
            return _complain(blame(error, self._file))
        kernels = {event.key: event.device_time_total * 1e-6 for event in profiler.key_averages()}
        return {"kernels": kernels, "launches": [launched.name for launched in run.launches]}, []

    def on_ceilings(self, dtype: str | None) -> Answer:
        return {"ceilings": roofline.measure_ceilings(self._stopwatch, dtype)}, []

    def on_contest(self, case: Case) -> Answer:
        """Get ready to time the case: submission, baseline and, unless it is withheld, the reference kernel."""
        assert self._exercise.baseline is not None
        self._contestants: list[Callable[..., Any]] = [self._entry, self._exercise.baseline]
        if self._item.solution.is_file():
            solution = registry.import_file(self._item.solution, "kernelpath_reference", listed=False)
            self._contestants.append(getattr(solution, self._exercise.entry))
        self._bench = case
        return {"contestants": len(self._contestants)}, []

    def on_round(self, seed: int, order: Sequence[int], sample: int) -> Answer:
        """Time every contestant once on new inputs; answer with seconds and a sample of the submission's outputs."""
        run = self._run_of(self._bench, seed, timed=True)
        turn = {contestant: position for position, contestant in enumerate(order)}
        try:
            seconds, results = self._stopwatch.round([self._timed(contestant, run) for contestant in order])
            outputs = run.outputs(results[turn[0]])
            early = [compare.fingerprint(output) for output in outputs]
            payloads = [_bytes_of(compare.sample(output, sample)) for output in outputs]
            torch.cuda.synchronize()
            answer = run.describe(outputs)
            answer["late"] = early != answer["outputs_seen"]
            answer["tampered"] = self._snapshot.changed()
            answer["seconds"] = [seconds[turn[contestant]] for contestant in range(len(order))]
            answer["telemetry"] = self._stopwatch.telemetry()
            return answer, payloads
        except BaseException as error:
            return _complain(blame(error, self._file))

    def _timed(self, contestant: int, run: _Run) -> Callable[[], Any]:
        """Contestant 0 is the submission, which runs on its own thread; the others are ours."""
        entry = self._contestants[contestant]
        if contestant == 0:
            return lambda: run.call(entry)
        return lambda: entry(*run.inputs)


class _Run:
    """One call of the entry: its inputs, what was seen while it ran, and what may be told of it."""

    def __init__(
        self,
        exercise: Exercise,
        case: Case,
        seed: int,
        device: torch.device,
        thread: sandbox.SubmissionThread,
        journal: sandbox.Journal,
        memory: sandbox.Provenance,
        timed: bool,
    ) -> None:
        rng = torch.Generator(device).manual_seed(seed)
        drawn = exercise.inputs(rng, **case)
        guarded = [sandbox.guard_input(value) if isinstance(value, torch.Tensor) else (value, None) for value in drawn]
        self.inputs = tuple(value for value, _ in guarded)
        self._device, self._entry = device, exercise.entry
        self._storages = [storage for _, storage in guarded if storage is not None]
        self._thread, self._journal, self._memory = thread, journal, memory
        for storage in self._storages:
            memory.keep(storage)
        self._watch = sandbox.Watch(poison=not timed, memory=memory)
        self._traced = exercise.is_kernel and device.type == "cpu"
        self._notes = sandbox.Notes()

    def call(self, entry: Callable[..., Any]) -> Any:
        within = labs.surround(self._watch, entry, self.inputs)
        with self._journal.noting(self._notes), remember(self._memory):
            return self._thread.call(entry, *self.inputs, within=within)

    @property
    def launches(self) -> list[Launched]:
        return self._notes.launches

    def outputs(self, result: Any) -> list[torch.Tensor]:
        """The entry's result as a list. Raises WrongType unless it is plain tensors with memory of their own."""
        outputs = list(result) if isinstance(result, tuple) else [result]
        taken = [storage.untyped_storage().data_ptr() for storage in self._storages]
        for output in outputs:
            if type(output) is not torch.Tensor:
                raise WrongType(f"{self._entry} returned {_returned(output)}")
            if output.device.type != self._device.type:
                raise WrongType(f"the output is on {output.device}, the inputs are on {self._device}")
            if output.layout is not torch.strided:
                raise WrongType(f"the output has the layout {output.layout}; return a dense tensor")
            if not output.is_contiguous():
                strides = f"shape {tuple(output.shape)}, strides {output.stride()}"
                raise WrongType(f"the output is not contiguous: {strides}")
            if output.untyped_storage().data_ptr() in taken:
                raise WrongType("the output shares the memory of an input; allocate one of its own")
        return outputs

    def describe(self, outputs: Sequence[torch.Tensor]) -> dict[str, Any]:
        """What the grader is told besides the outputs' bytes."""
        tensors = [value for value in self.inputs if isinstance(value, torch.Tensor)]
        guards = [self._watch.broken_guard(), *map(sandbox.guard_broken, self._storages)]
        borrowed = [self._memory.complaint(output) for output in outputs] if self._traced else []
        counted = [launched.counted for launched in self.launches if launched.counted is not None]
        return {
            "outputs": [{"dtype": compare.dtype_name(output.dtype), "shape": list(output.shape)} for output in outputs],
            "outputs_seen": [compare.fingerprint(output) for output in outputs],
            "inputs_seen": [compare.fingerprint(tensor) for tensor in tensors],
            "out_of_bounds": next(filter(None, guards), None),
            "borrowed": next(filter(None, borrowed), None),
            "operators": self._notes.operators,
            "given": list(dict.fromkeys(self._notes.given)),
            "written": list(dict.fromkeys(self._notes.written)),
            "launches": [launched.name for launched in self.launches],
            "traffic": [asdict(line) for line in _traffic(counted)],
        }


def _traffic(launches: Sequence[simt.Launch]) -> list[LineTraffic]:
    """The PTX machine's counters of one call, over all its launches."""
    accesses: dict[str, list[simt.AccessSample]] = defaultdict(list)
    for launch in launches:
        accesses[Path(launch.file).name] += launch.accesses
    return [
        LineTraffic(
            file=file,
            line=one.line,
            access=_ACCESSES[one.access],
            memory=one.buffer or "shared memory",
            requests=one.requests,
            sectors=one.sectors,
            ideal_sectors=0 if one.shared else one.least_sectors,
            wavefronts=one.wavefronts,
            ideal_wavefronts=one.least_wavefronts,
        )
        for file, found in accesses.items()
        for one in by_access(found)
    ]


_ACCESSES = {Access.LOAD: "load from", Access.STORE: "store to", Access.ATOMIC: "atomic on"}


def _import_lane(lane: str, device: torch.device) -> None:
    if lane == "cuda":
        from kernelpath.lanes import cuda  # noqa: F401
    if lane == "cute":
        from kernelpath.lanes import cute  # noqa: F401
    if lane == "triton":
        from kernelpath.lanes import triton

        triton.activate(device.type)


def _memory_limit(device: torch.device) -> AbstractContextManager[None]:
    return sandbox.memory_limit(_CPU_MEMORY) if device.type == "cpu" else nullcontext()


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


def _returned(output: Any) -> str:
    if output is None:
        return "None; end it with `return out`"
    return f"a {type(output).__name__}; return a plain torch.Tensor"


def _bytes_of(output: torch.Tensor) -> bytes:
    return compare.raw_bytes(output).cpu().numpy().tobytes()


def _complain(complaint: Complaint) -> Answer:
    return {"complaint": asdict(complaint)}, []
