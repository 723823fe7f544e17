"""The child process: loads a submission, runs it, times it, and tells what happened. It holds no expected value.

What it answers is typed in `messages`; the verdict is the grader's.
"""

from __future__ import annotations

import ctypes
import gc
import signal
import socket
import tempfile
import threading
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
from kernelpath.verdict import Complaint, Verdict
from kernelpath.wire import Gone, Wire
from kernelpath.work import allocations, confine, entries, far, messages, no_gpu, rank, reports, seccomp
from kernelpath.work.blame import blame
from kernelpath.work.call import Call, arguments, memory_limit, plain_outputs, profiled
from kernelpath.work.far import FarWatch
from kernelpath.work.race import Race
from kernelpath.work.rounds import Rounds, runs
from kernelpath.work.tensors import poison_numpy, poison_storage, same_random_numbers
from kernelpath.work.watch import Journal, Notes, Watch
from kernelpath.work.witness import Snapshot, SubmissionThread
from warpcheck import backend, simulated_gpu
from warpcheck.frontends import on_compiling, tuning
from warpcheck.hooks import Changed

Answer = messages.Answer

_PR_SET_PDEATHSIG = 1


def main(grader: socket.socket) -> None:
    """Serve the grader at the other end of the socket until it closes."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    wire: Wire[messages.Asked] = Wire(grader, messages.AnyAsked)
    gc.disable()  # a collection runs what a submission has left, and here that would see the grader's stack
    worker = _Worker(wire)
    on_compiling(lambda begins: worker.tell(messages.Compiling(secret="", begins=begins)))
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
        self._telling = threading.Lock()
        self._journal = Journal()
        self._client: Client | None = None
        self._placement = Placement()

    def tell(self, news: Answer) -> None:
        """Send news. Compilers run on the submission's thread, and this one tells how that gets on."""
        with self._telling:
            self._wire.send(news)

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
                case messages.Inspect():
                    return self._inspect(asked, secret)
                case messages.Join():
                    return self._join(asked, secret)
                case messages.Call():
                    return self._call(asked, secret)
                case messages.Read():
                    return self._read(asked, secret)
                case messages.Fuse():
                    return self._fuse(asked, secret)
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
            # on its own thread, as the text of an exception is code of the submission, which must not find `secret`
            complaint = self._thread.call(blame, error, self._file, isinstance(asked, messages.Load))
            return messages.Complained(secret=secret, complaint=complaint)
        raise AssertionError(asked)

    def _start(self, asked: messages.Start, secret: str) -> Answer:
        if asked.machine:
            _, (descriptor,), _, _ = socket.recv_fds(self._wire.connection, 1, 1)
            self._client = Client(Wire(socket.socket(fileno=descriptor), ToClient))
            backend.use(self._client)
        self._item = registry.item(Path(asked.root), asked.stem)
        self._lane = self._item.lane
        self._exercise = None if asked.entry else registry.load(self._item)
        self._name = asked.entry or self._known.entry
        self._device = torch.device(asked.device)
        if self._device.type == "cpu":
            simulated_gpu.show(asked.properties, asked.target)
        if self._client is not None and self._exercise is not None:
            no_gpu.stand_in()
            self._placement.prepare()
        confine.keep_in(Path(asked.own))
        try:
            entries.import_lane(self._lane, self._device.type)
            entries.called(main, self._exercise, self._lane)  # imports what inspects operators
        except (ImportError, Changed) as error:
            reason = f"{error}; kp doctor says what to install"
            return messages.Complained(secret=secret, complaint=Complaint(Verdict.UNAVAILABLE, reason))
        if self._device.type == "cuda":
            from kernelpath.work.stopwatch import Stopwatch

            self._stopwatch = Stopwatch(self._device)
            if self._exercise is not None:
                entries.load_baseline(self._item, self._exercise)
        self._race = Race(asked) if asked.size else None
        confine.spare_what_is_loaded()
        same_random_numbers()
        poison_numpy()
        answers = confine.forget_answers(but=("labs",) if self._exercise is None and self._client is not None else ())
        self._answers = answers if self._exercise is None else ()
        profile: seccomp.Profile = "machine" if self._device.type == "cpu" else "ranks" if asked.size else "gpu"
        withheld = [*answers, *map(Path, asked.withheld)]
        confine.give_up(Path(asked.source), Path(asked.own), self._item.root, withheld, profile=profile)
        self._thread = SubmissionThread(lambda line: self.tell(messages.Running(secret="", line=line)))
        return messages.Done(secret=secret)

    def _load(self, asked: messages.Load, secret: str) -> Answer:
        self._file = Path(asked.file)
        own = (self._file, self._file.with_suffix(".cu"), Path(cache_from_source(asked.file)))
        places = {self._item.root, self._item.course}
        kept = [place / name for place in places for name in ("solutions", ".git")]  # and their history
        hidden = (*kept, *map(Path, asked.hidden))
        ready_made = tuple(map(Path, asked.ready_made))
        confine.forget_what_lies_in((*hidden, *ready_made))
        confine.deny(hidden, own, self._answers, entries.language(self._exercise, self._lane), ready_made)
        self._snapshot = Snapshot()
        entries.install(self._thread, self._exercise, self._file)
        module = self._thread.call(registry.import_file, self._file, confine.SUBMISSION)
        self._module, self._defined = module, entries.find(module, self._name)
        self._entry = entries.called(self._defined, self._exercise, self._lane)
        if tampered := self._snapshot.changed():
            return messages.Complained(secret=secret, complaint=Complaint(Verdict.TAMPERED, tampered))
        return messages.Done(secret=secret)

    def _run(self, asked: messages.Run, secret: str) -> Answer:
        if self._client is None:
            return self._returned(self._called(asked.case, asked.seed, asked.variety), secret)
        if self._exercise is not None:
            return self._run_on_the_machine(self._client, asked.chosen, secret)
        return self._returned(self._with(self._client.inputs()), secret)

    def _returned(self, call: Call, secret: str) -> messages.Returned:
        with memory_limit(self._device):
            self._thread.call(entries.check, self._entry, call.inputs)
            result = call(self._entry)
            call.settle()
        outputs = call.outputs(result)
        returned = call.returned(outputs, secret, self._tampered())
        places = [self._client.place(output) for output in outputs] if self._client else []
        return msgspec.structs.replace(returned, places=places)

    def _call(self, asked: messages.Call, secret: str) -> Answer:
        return self._returned(self._with(arguments(asked, self._device)), secret)

    def _join(self, asked: messages.Join, secret: str) -> Answer:
        with rank.group(self._wire.connection, asked) as member:
            return self._returned(self._with(rank.given(member, arguments(asked, self._device), asked.sizes)), secret)

    def _read(self, asked: messages.Read, secret: str) -> Answer:
        with reports.paths(asked) as inputs, memory_limit(self._device):
            self._thread.call(entries.check, self._entry, inputs)
            facts = self._thread.call(reports.facts, self._entry, inputs)
        return messages.Told(secret=secret, facts=facts, tampered=self._tampered())

    def _fuse(self, asked: messages.Fuse, secret: str) -> Answer:
        from kernelpath.work import fusion

        with memory_limit(self._device):
            fused: messages.Fused = self._thread.call(fusion.written, entries.find(self._module, asked.function), asked)
        return msgspec.structs.replace(fused, secret=secret, tampered=self._tampered())

    def _run_on_the_machine(self, client: Client, chosen: tuning.Chosen, secret: str) -> Answer:
        tuning.take(chosen)
        inputs, notes = client.inputs(), Notes()
        placement = self._placement
        inputs = placement.inputs(inputs)

        def poisoned(fresh: torch.Tensor) -> torch.Tensor:
            fresh = aligned.empty(fresh)
            poison_storage(fresh)
            client.fresh(fresh)
            return fresh

        watch, room = (FarWatch, far.ROOM) if client.far else (Watch, 0)
        with memory_limit(self._device, room), self._journal.noting(notes):
            self._thread.call(entries.check, self._entry, inputs)
            within = watch(poisoned, client.met, self._known.products, placement, aligned.copy)
            with placement:
                result = self._thread.call(self._entry, *inputs, within=within)
        taken = {value.untyped_storage().data_ptr() for value in inputs if isinstance(value, torch.Tensor)}
        shares = lambda output: output.untyped_storage().data_ptr() in taken  # noqa: E731
        outputs = self._known.overwritten(inputs) or plain_outputs(result, self._name, self._device, shares)
        client.finish()
        placed = [client.place(output) for output in outputs]
        return messages.Placed(secret=secret, outputs=placed, operators=notes.operators, tampered=self._tampered())

    def _inspect(self, asked: messages.Inspect, secret: str) -> Answer:
        from kernelpath.work import operators

        known, client = self._known, self._client
        drawn = client.inputs() if client else generate_inputs(known, asked.case, asked.seed, self._device)
        with memory_limit(self._device):
            entries.examine(self._thread, known, self._device)
            self._thread.call(operators.inspect, self._defined, known.gradients_of, *drawn)
        return messages.Done(secret=secret)

    def _tampered(self) -> str:
        return self._snapshot.changed() or ""

    def _called(self, case: Mapping[str, Any], seed: int, variety: InputMode = PLAIN, timed: bool = False) -> Call:
        return self._with(generate_inputs(self._known, case, seed, self._device, variety), timed)

    def _with(self, inputs: Sequence[Any], timed: bool = False) -> Call:
        return Call(self._name, inputs, self._device, self._thread, self._journal, timed, self._exercise)

    @property
    def _known(self) -> Exercise:
        assert self._exercise is not None
        return self._exercise

    def _profile(self, asked: messages.Profile, secret: str) -> Answer:
        first = self._called(asked.case, asked.seed + 1, timed=True)
        first(self._entry)  # tunes, and sets up what is kept
        workspace = allocations.workspace(self._thread, self._entry, first.inputs)
        del first
        call = self._called(asked.case, asked.seed, timed=True)
        kernels, library, trace = profiled(call, self._entry)
        return messages.Profiled(
            secret=secret,
            kernels=kernels,
            launches=call.launches,
            library=library,
            trace=trace,
            chosen=tuning.chosen(),
            workspace=workspace,
        )

    def _ceilings(self, dtype: str | None, secret: str) -> Answer:
        from kernelpath.work import ceilings

        return messages.Measured(secret=secret, ceilings=ceilings.measure(self._stopwatch, dtype))

    def _contest(self, asked: messages.Contest, secret: str) -> Answer:
        assert self._known.baseline is not None
        contestants = [self._entry, self._known.baseline]
        if asked.reference:
            folder = Path(tempfile.mkdtemp())
            for name, text in asked.reference.items():
                (folder / name).write_text(text, encoding="utf-8")
            solution = registry.import_file(folder / self._item.solution.name, "kernelpath_reference", listed=False)
            reference = entries.called(getattr(solution, self._name), self._exercise, self._lane)
            if runs(reference, self._known, asked.case, self._stopwatch.device):
                contestants.append(reference)
        prepared = partial(self._with, timed=True)
        self._rounds = Rounds(self._known, asked.case, contestants, self._stopwatch, prepared)
        return messages.Ready(secret=secret, contestants=len(contestants))

    def _round(self, asked: messages.Round, secret: str) -> Answer:
        if self._race is not None:
            return self._race.answer(asked, self._with, self._entry, self._thread.call, self._tampered)
        return self._rounds.answer(asked, self._tampered)
