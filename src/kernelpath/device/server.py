"""Serve the PTX machine in a process of its own: separate from the submission, as a GPU is separate from a program.

It owns the memory of kernels. Inputs come from the grader and outputs go to the grader. The machine treats everything
that the submission's process reports about memory as written by the host.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Mapping
from dataclasses import replace

import msgspec

from kernelpath.device import failures, lab_messages, lab_server, messages
from kernelpath.device.case import Case
from kernelpath.device.elements import InvalidRequest
from kernelpath.wire import ConnectionClosed, ProtocolError, ResponseTimeout, Wire
from warpcheck import simt

Response = messages.Message

# The time limit by the wall clock for receiving a MiB of a message of a submission's process, and for sending one.
TRANSFER_SECONDS = 5.0

# The limit of PTX texts that a submission may load.
MAX_MODULES = 4096


def serve(grader: socket.socket) -> None:
    """Answer the grader, and the submissions' processes that it has attached, until the grader closes."""
    simt.warm_up()
    Server(grader).run()


class Server:
    """Answer the messages of the grader and of all clients, one at a time."""

    def __init__(self, grader: socket.socket) -> None:
        self._grader: Wire[messages.Message] = Wire(grader, messages.FromGrader | lab_messages.FromGrader)
        self._clients: list[_Client] = []

    def run(self) -> None:
        while True:
            alive = {client.wire.fileno(): client for client in self._clients if client.wire is not None}
            ready, _, _ = select.select([self._grader.fileno(), *alive], [], [])
            for descriptor in alive.keys() & set(ready):
                # Clients first: a request of the grader may ask for the result of a launch that is in the socket
                # already.
                alive[descriptor].serve()
            if self._grader.fileno() in ready:
                try:
                    # The grader is trusted, so this has no time limit: it may take long to send the inputs of a large
                    # case.
                    self._grader.send(self._respond(self._grader.receive()))
                except ConnectionClosed:
                    return

    def _respond(self, request: messages.Message) -> Response:
        match request:
            case messages.Attach(target=name, multiprocessors=count):
                _, (descriptor,), _, _ = socket.recv_fds(self._grader.connection, 1, 1)
                target = simt.TARGETS[name]
                target = replace(target, multiprocessors=count or target.multiprocessors)
                self._clients.append(_Client(socket.socket(fileno=descriptor), target))
                return messages.Attached(len(self._clients) - 1)
            case messages.Begin():
                self._clients[request.client].begin(request)
            case lab_messages.BeginLab():
                self._clients[request.client].begin_lab(request)
            case lab_messages.EndLab():
                return self._clients[request.client].end_lab(request)
            case messages.End():
                return self._clients[request.client].case.report(
                    request.outputs, request.counted, request.measures_reads
                )
            case messages.RecordEvents():
                self._clients[request.client].case.recorded = True
            case messages.GetLaunchProfile():
                return self._clients[request.client].launch_profile() or messages.Acknowledged()
            case messages.GetLastWriter():
                return (
                    self._clients[request.client].case.writer(request.storage, request.offset)
                    or messages.Acknowledged()
                )
        return messages.Acknowledged()


class _Client:
    """The machine's state for one submission's process."""

    def __init__(self, connection: socket.socket, target: simt.Target) -> None:
        self.wire: Wire[messages.Message] | None = Wire(connection, messages.FromClient | lab_messages.FromClient)
        self.case = Case()
        self._target = target
        self._lab: lab_server.SimulatedDevice | None = None
        self._modules: list[simt.Module] = []
        self._numbers: dict[str, int] = {}
        self._negated: dict[int, simt.Module] | None = None
        self._interrupted: simt.Launch | None = None

    def begin(self, request: messages.Begin) -> None:
        self.case.begin(request.inputs, request.order, request.label)
        self._negated = {} if request.negated else None
        self._interrupted = None

    def launch_profile(self) -> messages.LaunchProfile | None:
        """Return the launch that a fault ended, or else the launch that executed the most; None without a launch."""
        launches = [self._interrupted] if self._interrupted is not None else self.case.launches
        if not launches:
            return None
        # A call may launch small kernels beside the one that the exercise is about.
        heaviest = max(launches, key=lambda launch: launch.totals.warp_instructions)
        lines: Mapping[int, simt.LineCounters] = heaviest.lines
        return messages.LaunchProfile(
            heaviest.kernel,
            heaviest.file,
            dict(lines),
            heaviest.accesses,
            heaviest.totals,
            heaviest.ptx,
            heaviest.events,
            heaviest.barriers,
        )

    def begin_lab(self, request: lab_messages.BeginLab) -> None:
        self.case.begin(request.inputs, order=0)
        self._lab = lab_server.create_device(request.lab)

    def end_lab(self, request: lab_messages.EndLab) -> lab_messages.LabReport:
        """Return the report on the call. It says FORGED where the outputs are not what an honest client returns."""
        assert self._lab is not None
        try:
            report = self._lab.report(request.outputs)
            failed = self.case.failed
        except InvalidRequest as error:
            report = self._lab.report(())
            failed = messages.Failed("FORGED", str(error))
        self._lab = None
        return msgspec.structs.replace(report, failed=failed)

    def serve(self) -> None:
        """Answer one message. A closed connection or an invalid message closes this end."""
        assert self.wire is not None
        try:
            # One thread serves all clients: a client that sends half of a message must not hold up the others.
            self.wire.send(self._respond(self.wire.receive(TRANSFER_SECONDS)), TRANSFER_SECONDS)
        except (ConnectionClosed, ProtocolError, ResponseTimeout) as error:
            # Half of a message is no evidence of a forgery: on a busy computer an honest client may be interrupted.
            if isinstance(error, ProtocolError):
                self.case.failed = messages.Failed("FORGED", f"the PTX machine received an unexpected message: {error}")
            self.wire.close()
            self.wire = None

    def _respond(self, request: messages.Message) -> Response:
        try:
            match request:
                case messages.Fetch():
                    return self.case.inputs
                case messages.LoadPtx(text=text, source=source):
                    return self._load(text, source)
                case messages.Compile(module=module, kernel=kernel):
                    self._module(module, kernel).compile(kernel)
                case messages.Launch():
                    with simt.recorded(self.case.recorded):
                        launch, changed = self.case.launch(self._module(request.module, request.kernel), request)
                    return messages.LaunchResult(changed, launch.cost, launch.printed)
                case messages.Finish(storages=storages):
                    self.case.finish(storages)
                case (
                    lab_messages.Timing()
                    | lab_messages.BusCall()
                    | lab_messages.RecordedCall()
                    | lab_messages.TimeVersions()
                ) if self._lab:
                    return self._lab.respond(request)
                case _:
                    raise InvalidRequest("there is no simulated device")
        except Exception as error:  # a failed request must not end the service for other clients
            failed = failures.encode_failure(error)
            if isinstance(error, (simt.Fault, simt.TimedOut)):
                self.case.failed = failed
                self._interrupted = error.launch
            return failed
        return messages.Acknowledged()

    def _load(self, text: str, source: str | None) -> Response:
        """Load a text once. Two modules with the same text would be a hidden channel to a kernel.

        The transcript does not show which of them is launched, but their global variables differ.
        """
        if text not in self._numbers:
            if len(self._modules) == MAX_MODULES:
                raise InvalidRequest(f"more than {MAX_MODULES} modules were loaded")
            # `simt.load` may return a module that another client has, too. `fresh` gives this client global variables
            # of its own.
            self._modules.append(simt.load(text, source, self._target).fresh(self.case.place))
            self._numbers[text] = len(self._modules) - 1
        number = self._numbers[text]
        return messages.Loaded(number, dict(self._modules[number].kernels))

    def _module(self, number: int, kernel: str) -> simt.Module:
        if not 0 <= number < len(self._modules) or kernel not in self._modules[number].kernels:
            raise InvalidRequest(f"there is no kernel {kernel}")
        if self._negated is None:
            return self._modules[number]
        if number not in self._negated:
            self._negated[number] = self._modules[number].negated()
        return self._negated[number]
