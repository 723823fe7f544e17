"""Run in the child process: load a submission, call it, time it, and report to the grader.

The messages are defined in `messages`. This process holds no expected value, and decides on no verdict.
"""

from __future__ import annotations

import ctypes
import gc
import signal
import socket
import tempfile
import threading
import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any

import msgspec
import torch

from kernelpath.course import registry
from kernelpath.course.inputs import PLAIN, InputMode, generate_inputs
from kernelpath.course.spec import Exercise
from kernelpath.device import aligned
from kernelpath.device.client import Client, ToClient
from kernelpath.device.placement import Placement
from kernelpath.verdict import Finding, Verdict
from kernelpath.wire import ConnectionClosed, Wire
from kernelpath.work import (
    confine,
    entries,
    messages,
    no_gpu,
    process_group,
    seccomp,
)
from kernelpath.work.call import (
    GuardedCall,
    ReturnedOutputs,
    check_outputs,
    collect_facts,
    decode_arguments,
    memory_limit,
    peak_workspace,
    profile_call,
    written_files,
)
from kernelpath.work.dispatch_monitor import (
    ADDRESS_SPACE_BYTES,
    AuditLog,
    CallRecord,
    DispatchMonitor,
    LargeOffsetMonitor,
)
from kernelpath.work.exception_findings import classify_exception
from kernelpath.work.nccl_timing import NcclRank
from kernelpath.work.tamper_check import SubmissionThread, TamperCheck
from kernelpath.work.tensors import poison_numpy, poison_storage, seed_random_generators
from kernelpath.work.timing_rounds import RoundTimer, can_run
from warpcheck import backend, simulated_gpu
from warpcheck.frontends import on_compiling, tuning
from warpcheck.hooks import Changed

_PR_SET_PDEATHSIG = 1


def main(grader: socket.socket) -> None:
    """Serve the grader at the other end of the socket until it closes."""
    # The worker ends with its parent, the fork server, even where the server is killed: prctl(2).
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    wire: Wire[messages.WorkerRequest] = Wire(grader, messages.AnyRequest)
    gc.disable()  # a collection runs destructors of the submission, and on this thread they would see its stack
    worker = _Worker(wire)
    on_compiling(lambda begins: worker.send(messages.Compiling(secret="", begins=begins)))
    while True:
        try:
            request = wire.receive()
        except ConnectionClosed:
            return
        wire.send(worker.respond(request))


class _Worker:
    """The state of the process between requests."""

    def __init__(self, wire: Wire[messages.WorkerRequest]) -> None:
        self._wire = wire
        self._send_lock = threading.Lock()
        self._audit_log = AuditLog()
        self._client: Client | None = None
        self._placement = Placement()
        self._returned_outputs = ReturnedOutputs()

    def send(self, message: messages.WorkerResponse) -> None:
        """Send a progress message. Two threads do so: compilers run on the submission's thread."""
        with self._send_lock:
            self._wire.send(message)

    def respond(self, request: messages.WorkerRequest) -> messages.WorkerResponse:
        """Return the response to a request. An exception of the submission becomes a finding."""
        secret = request.secret  # known to this thread alone, whose frames the submission's thread cannot reach
        try:
            match request:
                case messages.Start():
                    return self._start(request, secret)
                case messages.LoadSubmission():
                    return self._load(request, secret)
                case messages.Run():
                    return self._run(request, secret)
                case messages.Inspect():
                    return self._inspect(request, secret)
                case messages.Join():
                    return self._join(request, secret)
                case messages.Call():
                    return self._call(request, secret)
                case messages.ReadFiles():
                    return self._read_files(request, secret)
                case messages.Fuse():
                    return self._fuse(request, secret)
                case messages.Profile():
                    return self._profile(request, secret)
                case messages.MeasureCeilings(dtype=dtype):
                    return self._measure(dtype, secret)
                case messages.StartTiming():
                    return self._start_timing(request, secret)
                case messages.TimeRound():
                    return self._time_round(request, secret)
        except BaseException as error:
            # During the start there is no thread of the submission yet. The process ends, and the grader reports the
            # last error that it printed.
            if isinstance(request, messages.Start):
                raise
            # The text of an exception may be computed by the submission's code, which must not find `secret` on its
            # stack. So the exception is classified on the submission's thread.
            finding = self._thread.call(
                classify_exception, error, self._file, isinstance(request, messages.LoadSubmission)
            )
            return messages.ReportedFinding(secret=secret, finding=finding)
        raise AssertionError(request)

    def _start(self, request: messages.Start, secret: str) -> messages.WorkerResponse:
        if request.machine:
            # The descriptor comes with one byte after the request. Wire.receive reads no further than its frame.
            _, (descriptor,), _, _ = socket.recv_fds(self._wire.connection, 1, 1)
            self._client = Client(Wire(socket.socket(fileno=descriptor), ToClient))
            backend.use(self._client)
        self._item = registry.exercise_ref(Path(request.root), request.path_id)
        self._lane = self._item.lane
        self._exercise = None if request.entry else registry.load(self._item)
        self._name = request.entry or self._declaration.entry
        self._device = torch.device(request.device)
        if self._device.type == "cpu":
            simulated_gpu.show(request.properties, request.target)
            # Where there is a GPU, PyTorch warns that this process cannot open its device files.
            warnings.filterwarnings("ignore", "CUDA initialization")
        if self._client is not None and self._exercise is not None:
            no_gpu.patch_torch_cuda()
            self._placement.prepare()
        confine.use_private_folders(Path(request.own))
        try:
            entries.import_lane(self._lane, self._device.type)
            entries.adapt_entry(main, self._exercise, self._lane)  # for its imports, before the process is confined
        except (ImportError, Changed) as error:
            reason = f"{error}; kp doctor says what to install"
            return messages.ReportedFinding(secret=secret, finding=Finding(Verdict.UNAVAILABLE, reason))
        if self._device.type == "cuda":
            from kernelpath.work.stopwatch import Stopwatch

            # Clocks and functions of the driver are bound before the submission can replace them: T4 in
            # docs/attacks.md.
            self._stopwatch = Stopwatch(self._device)
            if self._exercise is not None:
                # A baseline may be the reference kernel of another exercise, and solutions/ cannot be read any more
                # once the process is restricted.
                entries.load_baseline(self._item, self._exercise)
        self._nccl_rank = NcclRank(request) if request.size else None
        confine.freeze_loaded_objects()
        seed_random_generators()
        poison_numpy()
        is_lab = self._exercise is None and self._client is not None
        answers = confine.unload_answers(keep=("labs",) if is_lab else ())
        self._answers = answers if self._exercise is None else ()
        confine.restrict_process(
            Path(request.source),
            Path(request.own),
            self._item.root,
            [*answers, *map(Path, request.withheld)],
            profile=self._seccomp_profile(request.size),
        )
        # This comes after restrict_process, which restricts only threads that are started later.
        self._thread = SubmissionThread(lambda line: self.send(messages.Running(secret="", line=line)))
        return messages.Done(secret=secret)

    def _seccomp_profile(self, group_size: int) -> seccomp.Profile:
        if self._device.type == "cpu":
            return "machine"
        return "ranks" if group_size else "gpu"

    def _load(self, request: messages.LoadSubmission, secret: str) -> messages.WorkerResponse:
        self._file = Path(request.file)
        # Python's import opens the compiled file beside the source, too.
        own_files = (self._file, self._file.with_suffix(".cu"), Path(cache_from_source(request.file)))
        folders = {self._item.root, self._item.course}
        solutions = [folder / name for folder in folders for name in ("solutions", ".git")]  # and their history
        hidden = (*solutions, *map(Path, request.hidden))
        ready_made = tuple(map(Path, request.ready_made))
        # The import of a module that is loaded already opens no file, so the audit hook would not notice it.
        confine.unload_modules_in((*hidden, *ready_made))
        language = entries.required_language(self._exercise, self._lane)
        confine.install_audit_hook(hidden, own_files, self._answers, language, ready_made)
        # The check records the originals before the import, which already runs the submission's code.
        self._tamper_check = TamperCheck()
        entries.install_package(self._thread, self._exercise, self._file)
        self._module = self._thread.call(registry.import_file, self._file, confine.SUBMISSION)
        self._function = entries.find_entry(self._module, self._name)
        self._entry = entries.adapt_entry(self._function, self._exercise, self._lane)
        if tampered := self._tamper_check.describe_change():
            return messages.ReportedFinding(secret=secret, finding=Finding(Verdict.TAMPERED, tampered))
        return messages.Done(secret=secret)

    def _run(self, request: messages.Run, secret: str) -> messages.WorkerResponse:
        if self._client is None:
            return self._run_call(self._draw_call(request.case, request.seed, request.variety), secret)
        if self._exercise is not None:
            return self._run_on_machine(self._client, request.chosen, secret)
        return self._run_call(self._prepare_call(self._client.inputs()), secret)

    def _run_call(self, call: GuardedCall, secret: str) -> messages.CallResult:
        with memory_limit(self._device):
            self._thread.call(entries.check_signature, self._entry, call.inputs)
            result = call(self._entry)
            call.release_leftovers()
        outputs = call.outputs(result)
        if self._exercise is not None and not self._exercise.overwritten(call.inputs):
            self._returned_outputs.add(outputs)
        call_result = call.to_result(outputs, secret, self._describe_tampering())
        output_refs = [self._client.place(output) for output in outputs] if self._client else []
        return msgspec.structs.replace(call_result, output_refs=output_refs)

    def _call(self, request: messages.Call, secret: str) -> messages.WorkerResponse:
        return self._run_call(self._prepare_call(decode_arguments(request, self._device)), secret)

    def _join(self, request: messages.Join, secret: str) -> messages.WorkerResponse:
        with process_group.join_group(self._wire.connection, request) as member:
            arguments = decode_arguments(request, self._device)
            call = self._prepare_call(process_group.entry_arguments(member, arguments, request.sizes))
            return self._run_call(call, secret)

    def _read_files(self, request: messages.ReadFiles, secret: str) -> messages.WorkerResponse:
        with written_files(request) as inputs, memory_limit(self._device):
            self._thread.call(entries.check_signature, self._entry, inputs)
            facts = self._thread.call(collect_facts, self._entry, inputs)
        return messages.ReportedFacts(secret=secret, facts=facts, tampered=self._describe_tampering())

    def _fuse(self, request: messages.Fuse, secret: str) -> messages.WorkerResponse:
        from kernelpath.work import fusion

        with memory_limit(self._device):
            function = entries.find_entry(self._module, request.function)
            graphs: messages.FusedGraphs = self._thread.call(fusion.compile_and_run, function, request)
        return msgspec.structs.replace(graphs, secret=secret, tampered=self._describe_tampering())

    def _run_on_machine(self, client: Client, chosen: tuning.Chosen, secret: str) -> messages.WorkerResponse:
        """Call the entry with tensors whose kernels run on the PTX machine. The outputs stay there."""
        tuning.take(chosen)
        placement = self._placement
        inputs = placement.inputs(client.inputs())

        def allocate_poisoned(fresh: torch.Tensor) -> torch.Tensor:
            fresh = aligned.empty(fresh)
            poison_storage(fresh)
            client.fresh(fresh)
            return fresh

        record = CallRecord()
        monitor_class = LargeOffsetMonitor if client.large_offsets else DispatchMonitor
        address_space = ADDRESS_SPACE_BYTES if client.large_offsets else 0
        with memory_limit(self._device, address_space), self._audit_log.recording(record):
            self._thread.call(entries.check_signature, self._entry, inputs)
            monitor = monitor_class(
                allocate_poisoned, client.observe, self._declaration.products, placement, aligned.copy
            )
            with placement:
                result = self._thread.call(self._entry, *inputs, context=monitor)
        input_addresses = {value.untyped_storage().data_ptr() for value in inputs if isinstance(value, torch.Tensor)}

        def is_input(output: torch.Tensor) -> bool:
            return output.untyped_storage().data_ptr() in input_addresses

        overwritten = self._declaration.overwritten(inputs)
        outputs = overwritten or check_outputs(result, self._name, self._device, is_input)
        if not overwritten:
            self._returned_outputs.add(outputs)
        # The machine compares these bytes with those that the last kernel left, so what the host changed afterwards
        # does not pass for a kernel's work.
        client.finish()
        return messages.OutputRefs(
            secret=secret,
            outputs=[client.place(output) for output in outputs],
            operators=record.operators,
            tampered=self._describe_tampering(),
        )

    def _inspect(self, request: messages.Inspect, secret: str) -> messages.WorkerResponse:
        from kernelpath.work import operators

        declaration = self._declaration
        if self._client:
            inputs = self._client.inputs()
        else:
            inputs = generate_inputs(declaration, request.case, request.seed, self._device)
        with memory_limit(self._device):
            entries.examine_package(self._thread, declaration, self._device)
            self._thread.call(operators.inspect_operator, self._function, declaration.gradients_of, *inputs)
        return messages.Done(secret=secret)

    def _describe_tampering(self) -> str:
        return self._tamper_check.describe_change() or ""

    def _draw_call(
        self, case: Mapping[str, Any], seed: int, variety: InputMode = PLAIN, timed: bool = False
    ) -> GuardedCall:
        """Return a call on the inputs of a case, generated from the seed."""
        return self._prepare_call(generate_inputs(self._declaration, case, seed, self._device, variety), timed)

    def _prepare_call(self, inputs: Sequence[Any], timed: bool = False) -> GuardedCall:
        return GuardedCall(self._name, inputs, self._device, self._thread, self._audit_log, timed, self._exercise)

    @property
    def _declaration(self) -> Exercise:
        """The exercise's declaration, which this process has loaded."""
        assert self._exercise is not None
        return self._exercise

    def _profile(self, request: messages.Profile, secret: str) -> messages.WorkerResponse:
        # Other values than in the profiled call: a submission that caches results has none for that call.
        tuning_call = self._draw_call(request.case, request.seed + 1, timed=True)
        tuning_call(self._entry)  # autotuning happens here, and tensors that are kept from call to call are made
        workspace = peak_workspace(self._thread, self._entry, tuning_call.inputs)
        del tuning_call
        call = self._draw_call(request.case, request.seed, timed=True)
        kernels, library, trace = profile_call(call, self._entry)
        return messages.ProfileResult(
            secret=secret,
            kernels=kernels,
            launches=call.launches,
            library=library,
            trace=trace,
            chosen=tuning.chosen(),
            workspace=workspace,
        )

    def _measure(self, dtype: str | None, secret: str) -> messages.WorkerResponse:
        from kernelpath.work import ceilings

        return messages.MeasuredCeilings(secret=secret, ceilings=ceilings.measure(self._stopwatch, dtype))

    def _start_timing(self, request: messages.StartTiming, secret: str) -> messages.WorkerResponse:
        assert self._declaration.baseline is not None
        implementations = [self._entry, self._declaration.baseline]
        # The text comes from the grader, since this process cannot read solutions/ any more.
        if request.reference:
            folder = Path(tempfile.mkdtemp())
            for name, text in request.reference.items():
                (folder / name).write_text(text, encoding="utf-8")
            solution = registry.import_file(folder / self._item.solution.name, "kernelpath_reference", listed=False)
            reference = entries.adapt_entry(getattr(solution, self._name), self._exercise, self._lane)
            if can_run(reference, self._declaration, request.case, self._stopwatch.device):
                implementations.append(reference)
        prepare_call = partial(self._prepare_call, timed=True)
        self._round_timer = RoundTimer(self._declaration, request.case, implementations, self._stopwatch, prepare_call)
        return messages.TimingReady(secret=secret, implementations=len(implementations))

    def _time_round(self, request: messages.TimeRound, secret: str) -> messages.WorkerResponse:
        if self._nccl_rank is not None:
            return self._nccl_rank.time_round(
                request, self._prepare_call, self._entry, self._thread.call, self._describe_tampering
            )
        return self._round_timer.time_round(request, self._describe_tampering)
