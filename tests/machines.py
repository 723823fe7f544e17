"""A PTX machine that serves from a thread of the test, the grader's end of its wire, and submissions' processes."""

from __future__ import annotations

import socket
import threading
from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from kernelpath import wire
from kernelpath.device import messages
from kernelpath.device.client import ToClient
from kernelpath.device.lab_messages import LabReport
from kernelpath.device.server import Server
from kernelpath.wire import Wire
from warpcheck.frontends import cuda

__all__ = ["KERNELS", "Served", "Submission", "floats", "strided"]

_Answer = TypeVar("_Answer", bound=messages.Message)

SECONDS = 20.0

KERNELS = """
extern "C" __global__ void copy(const float* x, float* out, int n) {
    if (threadIdx.x < n) out[threadIdx.x] = x[threadIdx.x];
}
extern "C" __global__ void add_one(float* x) { x[threadIdx.x] += 1; }
extern "C" __global__ void nothing(float* x) { }
__device__ int calls;
extern "C" __global__ void count(int* out) { *out = ++calls; }
extern "C" __global__ void distance(const float* x, const float* y, long long* out) {
    out[0] = ((long long)y & 4095) + (long long)y - (long long)x;
    out[1] = 0;
}
extern "C" __global__ void variable(const float* x, long long* out) {
    out[0] = (long long)&calls - (long long)x;
    out[1] = 0;
}
extern "C" __global__ void flagged(float* x, bool flag) { if (flag) *x = 1; }
"""


class Served:
    """A machine, until `close`. died: what ended it before."""

    def __init__(self) -> None:
        here, self._there = wire.pair()
        self._grader: Wire[messages.Message] = Wire(here, messages.ToGrader | LabReport)
        self._server = Server(self._there)
        self._submissions: list[Submission] = []
        self.died: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._server.run()
        except BaseException as error:
            self.died = error
        finally:
            self._there.close()
            for client in self._server._clients:
                if client.wire is not None:
                    client.wire.close()

    def ask(self, message: messages.Message, expected: type[_Answer]) -> _Answer:
        self._grader.send(message, SECONDS)
        answer = self._grader.receive(SECONDS)
        assert isinstance(answer, expected), answer
        return answer

    def attach(self) -> Submission:
        ours, theirs = wire.pair()
        self._grader.send(messages.Attach())
        socket.send_fds(self._grader.connection, [b"\0"], [theirs.fileno()])
        theirs.close()
        answer = self._grader.receive(SECONDS)
        assert isinstance(answer, messages.Attached)
        self._submissions.append(Submission(self, answer.client, ours))
        return self._submissions[-1]

    def close(self) -> None:
        for submission in self._submissions:
            submission.connection.close()
        self._grader.close()
        self._thread.join(SECONDS)


class Submission:
    """A submission's process that says what a test lets it say."""

    def __init__(self, machine: Served, number: int, connection: socket.socket) -> None:
        self.machine, self.number, self.connection = machine, number, connection
        self.wire: Wire[messages.Message] = Wire(connection, ToClient)

    def ask(self, message: messages.Message) -> messages.Message:
        self.wire.send(message, SECONDS)
        return self.wire.receive(SECONDS)

    def load(self) -> None:
        """Load the kernels, as module 0."""
        binary = cuda.compile_kernel(KERNELS, "kernels.cu", "copy", cuda.CPU_ARCHITECTURE)
        loaded = self.ask(messages.LoadPtx(binary.ptx, "kernels.cu"))
        assert isinstance(loaded, messages.Loaded)
        assert "count" in loaded.kernels

    def begin(self, inputs: Mapping[int, npt.NDArray[np.float32]] | None = None) -> None:
        """Begin a case. inputs: the storages of its tensors."""
        storages = {number: content.tobytes() for number, content in (inputs or {}).items()}
        inputs_refs = [strided(number, content.size) for number, content in (inputs or {}).items()]
        self.machine.ask(messages.Begin(self.number, messages.Inputs(inputs_refs, storages), 0), messages.Acknowledged)

    def launch(
        self,
        kernel: str,
        *arguments: int | float,
        on: Sequence[int],
        storages: Sequence[messages.Storage] = (),
        block: int = 4,
        dropped: Sequence[int] = (),
        reachable: Sequence[int] = (),
    ) -> messages.Message:
        """Launch on storages of 16 bytes, in the order of the kernel's parameters.

        reachable: those that addresses in memory lead to.
        """
        buffers = [messages.Buffer(f"tensor{number}", number, 0, 16, 4, "float32") for number in (*on, *reachable)]
        pointers = [messages.Pointer(number, 0) for number in on]
        return self.ask(
            messages.Launch(
                module=0,
                kernel=kernel,
                grid=(1, 1, 1),
                block=(block, 1, 1),
                shared=0,
                arguments=[*pointers, *arguments],
                buffers=buffers,
                storages=storages,
                dropped=dropped,
            )
        )

    def end(self, *outputs: messages.TensorRef, written: Sequence[messages.Storage] = ()) -> messages.CaseReport:
        """The entry returns. written: storages that the host changed after the last launch."""
        assert self.ask(messages.Finish(written)) == messages.Acknowledged()
        return self.machine.ask(messages.End(self.number, outputs), messages.CaseReport)


def floats(*values: float) -> npt.NDArray[np.float32]:
    return np.array(values, np.float32)


def strided(storage: int, count: int = 4) -> messages.TensorRef:
    return messages.TensorRef(storage, "float32", [count], [1], 0)
