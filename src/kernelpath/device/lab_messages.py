"""What a submission's process and the grader say to a simulated device (course/labs), which is in the device's process.

Every call of a lab is a message; what the lab knows stays where it is. A bus learns with each call which bytes of its
buffers the host has changed, whatever changed them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from kernelpath.course.labs import recorded
from kernelpath.course.labs.bus import Spent
from kernelpath.course.labs.recorded import Size
from kernelpath.course.labs.timer import Workload
from kernelpath.device.messages import Failed, Inputs, Message, Pointer

# From the submission's process; answered by LabResponse or Failed


class Timing(Message, frozen=True):
    """What any lab is asked for: launch, the host's clock and sleep are a timer's; the rest is of its queue.

    seconds: of the moment that is asked for, or how long to sleep. wrote: as in BusCall.
    """

    what: Literal["launch", "clock", "sleep", "queue_reached", "wait_until", "has_passed"]
    seconds: float = 0.0
    wrote: Sequence[tuple[int, bytes]] = ()


class BusCall(Message, frozen=True, kw_only=True):
    """A call of a bus. wrote: the pinned buffers, by number, that the host has changed since the last call.

    line: of the submission, for complaints.
    """

    wrote: Sequence[tuple[int, bytes]] = ()
    line: int = 0


class HostAlloc(BusCall, frozen=True, kw_only=True):
    """count: float32. The value of the answer is the buffer's number."""

    count: int


class HostFree(BusCall, frozen=True, kw_only=True):
    buffer: int


class Fill(BusCall, frozen=True, kw_only=True):
    """The host has copied so much into its buffers."""

    nbytes: int


class CopyAsync(BusCall, frozen=True, kw_only=True):
    """number: by which LabResponse tells that it is done. target_nbytes: of its whole storage.

    source: in a pinned buffer, or the bytes of pageable memory.
    """

    number: int
    target: Pointer
    target_nbytes: int
    source: Pointer | bytes
    nbytes: int


class Record(BusCall, frozen=True, kw_only=True):
    """The value of the answer is the moment."""


class Wait(BusCall, frozen=True, kw_only=True):
    moment: float


class Synchronize(BusCall, frozen=True, kw_only=True):
    pass


class GetLedger(BusCall, frozen=True, kw_only=True):
    """The values of the answer are those of Runtime.ledger."""

    status: int


class RecordedCall(Message, frozen=True, kw_only=True):
    """A call of a GPU that answers with recorded times."""


class Requests(RecordedCall, frozen=True, kw_only=True):
    """The values of the answer are the bits of the dtype, M, N and K of each request, one after the other."""


class LaunchRecorded(RecordedCall, frozen=True, kw_only=True):
    """As RecordedGpu.launch. Status 1 of the answer: the values are the bytes of shared memory that it needs."""

    operands: tuple[int, int, int]
    sizes: tuple[int, int, int]
    configuration: Sequence[int]
    grid: tuple[int, int, int]


class Bench(RecordedCall, frozen=True, kw_only=True):
    """As RecordedGpu.bench. The value of the answer are milliseconds."""

    begins: bool


class Move(RecordedCall, frozen=True, kw_only=True):
    """A matrix is set to zero, copied to a new one, whose number is the value of the answer, or to `target`."""

    what: Literal["zero", "clone", "copy"]
    matrix: int
    target: int = 0


class GetTuningLedger(RecordedCall, frozen=True, kw_only=True):
    """The values of the answer are those of recorded.Spent.ledger."""


FromClient = (
    Timing
    | HostAlloc
    | HostFree
    | Fill
    | CopyAsync
    | Record
    | Wait
    | Synchronize
    | GetLedger
    | Requests
    | LaunchRecorded
    | Bench
    | Move
    | GetTuningLedger
)


# To the submission's process


class LabResponse(Message, frozen=True):
    """How a call went. copied: the copies that are done by now, with the bytes of their targets."""

    status: int = 0
    values: Sequence[float] = ()
    copied: Sequence[tuple[int, bytes]] = ()


# From the grader, and to it


class Timer(Message, frozen=True):
    """A timer.Device."""

    work: Workload


class Bus(Message, frozen=True):
    """A bus.Simulated."""

    fails: int
    status: int


class Recorded(Message, frozen=True):
    """A recorded.RecordedGpu."""

    requests: Sequence[Size]


DeviceDescription = Timer | Bus | Recorded


class BeginLab(Message, frozen=True):
    """A call of the entry with a lab among its inputs. Answered by Done."""

    client: int
    inputs: Inputs
    lab: DeviceDescription


class Span(Message, frozen=True):
    """Bytes of a storage."""

    storage: int
    offset: int
    nbytes: int


class EndLab(Message, frozen=True):
    """The entry has returned. outputs: where the submission says that they lie. Answered by LabReport."""

    client: int
    outputs: Sequence[Span]


FromGrader = BeginLab | EndLab


class LabReport(Message, frozen=True):
    """held: the bytes of the outputs in the lab's memory, None where it has none. spent: of a bus. tuning: of a GPU
    that answers with recorded times.
    """

    held: Sequence[bytes | None]
    spent: Spent | None
    failed: Failed | None
    tuning: recorded.Spent | None = None
