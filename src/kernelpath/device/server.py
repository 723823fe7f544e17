"""The PTX machine in its own process: separate from the submission, as a GPU is separate from a program.

It owns what kernels read and write. Inputs come from the grader, outputs go to the grader, and what the submission's
process says of its memory is taken for what the host wrote there.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Mapping

import msgspec

from kernelpath.device import failures, lab_messages, lab_server, messages
from kernelpath.device.case import Case
from kernelpath.device.elements import Refused
from kernelpath.wire import ConnectionClosed, ProtocolError, ResponseTimeout, Wire
from warpcheck import simt
from warpcheck.backend import cost

Answer = messages.Message
TAKING_SECONDS = 3.0
"""For a whole message of a submission's process, once it has begun, and for that to take the answer."""

MODULES = 4096
"""PTX texts that a submission may load."""


def serve(grader: socket.socket) -> None:
    """Answer the grader, and the submissions' processes that it has attached, until the grader closes."""
    simt.warm_up()
    Server(grader).run()


class Server:
    """Serves one message at a time, whoever sent it."""

    def __init__(self, grader: socket.socket) -> None:
        self._grader: Wire[messages.Message] = Wire(grader, messages.FromGrader | lab_messages.FromGrader)
        self._clients: list[_Client] = []

    def run(self) -> None:
        while True:
            alive = {client.wire.fileno(): client for client in self._clients if client.wire is not None}
            ready, _, _ = select.select([self._grader.fileno(), *alive], [], [])
            for descriptor in alive.keys() & set(ready):
                alive[descriptor].serve()
            if self._grader.fileno() in ready:
                try:
                    self._grader.send(self._answer(self._grader.receive()))
                except ConnectionClosed:
                    return

    def _answer(self, asked: messages.Message) -> Answer:
        match asked:
            case messages.Attach(target=target):
                _, (descriptor,), _, _ = socket.recv_fds(self._grader.connection, 1, 1)
                self._clients.append(_Client(socket.socket(fileno=descriptor), simt.TARGETS[target]))
                return messages.Attached(len(self._clients) - 1)
            case messages.Begin():
                self._clients[asked.client].begin(asked)
            case lab_messages.BeginLab():
                self._clients[asked.client].begin_lab(asked)
            case lab_messages.EndLab():
                return self._clients[asked.client].end_lab(asked)
            case messages.End():
                return self._clients[asked.client].case.ended(asked.outputs, asked.counted)
            case messages.Record():
                self._clients[asked.client].case.recorded = True
            case messages.Draw():
                return self._clients[asked.client].drawn() or messages.Done()
            case messages.AskWriter():
                return self._clients[asked.client].case.writer(asked.storage, asked.offset) or messages.Done()
        return messages.Done()


class _Client:
    """A submission's process as the machine sees it."""

    def __init__(self, connection: socket.socket, target: simt.Target) -> None:
        self.wire: Wire[messages.Message] | None = Wire(connection, messages.FromClient | lab_messages.FromClient)
        self.case = Case()
        self._target = target
        self._lab: lab_server.Served | None = None
        self._modules: list[simt.Module] = []
        self._numbers: dict[str, int] = {}
        self._negated: dict[int, simt.Module] | None = None
        self._interrupted: simt.Launch | None = None

    def begin(self, asked: messages.Begin) -> None:
        self.case.begin(asked.inputs, asked.order, asked.label)
        self._negated = {} if asked.negated else None
        self._interrupted = None

    def drawn(self) -> messages.Drawn | None:
        """The launch that a fault ended, if it was recorded, else the one that executed most; None without a launch."""
        launches = [self._interrupted] if self._interrupted is not None else self.case.launches
        if not launches:
            return None
        heaviest = max(launches, key=lambda launch: launch.totals.warp_instructions)
        lines: Mapping[int, simt.LineCounters] = heaviest.lines
        return messages.Drawn(
            heaviest.kernel,
            heaviest.file,
            dict(lines),
            heaviest.accesses,
            heaviest.totals,
            heaviest.ptx,
            heaviest.events,
            heaviest.barriers,
        )

    def begin_lab(self, asked: lab_messages.BeginLab) -> None:
        self.case.begin(asked.inputs, order=0)
        self._lab = lab_server.serve(asked.lab)

    def end_lab(self, asked: lab_messages.EndLab) -> lab_messages.LabEnded:
        """What to report about the call; FORGED if it says what no honest client does."""
        assert self._lab is not None
        try:
            ended, failed = self._lab.ended(asked.outputs), self.case.failed
        except Refused as error:
            ended, failed = self._lab.ended(()), messages.Failed("FORGED", str(error))
        self._lab = None
        return msgspec.structs.replace(ended, failed=failed)

    def serve(self) -> None:
        """Answer one message. The end, or what is not a message, ends the connection."""
        assert self.wire is not None
        try:
            self.wire.send(self._answer(self.wire.receive(TAKING_SECONDS)), TAKING_SECONDS)
        except (ConnectionClosed, ProtocolError, ResponseTimeout) as error:
            if not isinstance(error, ConnectionClosed):
                self.case.failed = messages.Failed("FORGED", f"the PTX machine was sent something else: {error}")
            self.wire.close()
            self.wire = None

    def _answer(self, asked: messages.Message) -> Answer:
        try:
            match asked:
                case messages.Fetch():
                    return self.case.inputs
                case messages.Load(text=text, source=source):
                    return self._load(text, source)
                case messages.Compile(module=module, kernel=kernel):
                    self._module(module, kernel).compile(kernel)
                case messages.Launch():
                    with simt.recorded(self.case.recorded):
                        launch, changed = self.case.launch(self._module(asked.module, asked.kernel), asked)
                    return messages.Ran(changed, cost(launch), launch.printed)
                case messages.Finish(storages=storages):
                    self.case.finish(storages)
                case lab_messages.Timing() | lab_messages.BusCall() | lab_messages.RecordedCall() if self._lab:
                    return self._lab.answer(asked)
                case _:
                    raise Refused("there is no simulated device")
        except Exception as error:  # whatever a request brings about, the others are served
            failed = failures.told(error)
            if isinstance(error, (simt.Fault, simt.TimedOut)):
                self.case.failed = failed
                self._interrupted = error.launch
            return failed
        return messages.Done()

    def _load(self, text: str, source: str | None) -> Answer:
        """Load a text once: of two modules with the same text, which one is launched would be a choice that no
        transcript shows, and variables of its own would tell it to a kernel."""
        if text not in self._numbers:
            if len(self._modules) == MODULES:
                raise Refused(f"more than {MODULES} modules were loaded")
            self._modules.append(simt.load(text, source, self._target).fresh(self.case.place))
            self._numbers[text] = len(self._modules) - 1
        number = self._numbers[text]
        return messages.Loaded(number, dict(self._modules[number].kernels))

    def _module(self, number: int, kernel: str) -> simt.Module:
        if not 0 <= number < len(self._modules) or kernel not in self._modules[number].kernels:
            raise Refused(f"there is no kernel {kernel}")
        if self._negated is None:
            return self._modules[number]
        if number not in self._negated:
            self._negated[number] = self._modules[number].negated()
        return self._negated[number]
