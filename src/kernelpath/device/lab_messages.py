"""Define the messages of a submission's process and of the grader to a simulated device (course/labs).

The simulated device runs in the process of the PTX machine. Every call is a message, and the state never leaves that
process. Each call of a bus lists the pinned buffers whose bytes have changed, by whatever means.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from kernelpath.course.labs import recorded
from kernelpath.course.labs.bus import RuntimeUsage
from kernelpath.course.labs.ci_machine import Change
from kernelpath.course.labs.recorded import Size
from kernelpath.course.labs.timer import Workload
from kernelpath.device.messages import Failed, Inputs, Message, Pointer

# From the submission's process; answered by LabResponse or Failed


class Timing(Message, frozen=True):
    """A call about time. A timer has launch, clock and sleep; every device has the calls of its queue.

    Attributes:
        seconds: The moment in question, or the duration of a sleep.
        wrote: See BusCall.
    """

    what: Literal["launch", "clock", "sleep", "queue_reached", "wait_until", "has_passed"]
    seconds: float = 0.0
    wrote: Sequence[tuple[int, bytes]] = ()


class BusCall(Message, frozen=True, kw_only=True):
    """A call of a bus.

    Attributes:
        wrote: The pinned buffers that the host changed since the last call, by number, with their bytes.
        line: The calling line of the submission, for error messages.
    """

    wrote: Sequence[tuple[int, bytes]] = ()
    line: int = 0


class HostAlloc(BusCall, frozen=True, kw_only=True):
    """Allocate a pinned buffer of `count` float32. The value of the response is the number of the buffer."""

    count: int


class HostFree(BusCall, frozen=True, kw_only=True):
    """Free a pinned buffer."""

    buffer: int


class Fill(BusCall, frozen=True, kw_only=True):
    """Report that the host has copied this many bytes into its buffers."""

    nbytes: int


class CopyAsync(BusCall, frozen=True, kw_only=True):
    """Start a copy to the device.

    Attributes:
        number: Identifies the copy in the LabResponse that reports its completion.
        target_nbytes: The size of the target's storage.
        source: An address in a pinned buffer, or the bytes of pageable memory.
    """

    number: int
    target: Pointer
    target_nbytes: int
    source: Pointer | bytes
    nbytes: int


class RecordEvent(BusCall, frozen=True, kw_only=True):
    """Record an event. The value of the response is its time."""


class Wait(BusCall, frozen=True, kw_only=True):
    """Wait for an event that was recorded with this time."""

    moment: float


class Synchronize(BusCall, frozen=True, kw_only=True):
    """Wait for all copies."""


class GetLedger(BusCall, frozen=True, kw_only=True):
    """Request the ledger. The values of the response are those of Runtime.ledger."""

    status: int


class RecordedCall(Message, frozen=True, kw_only=True):
    """A call of a GPU that replies with recorded times."""


class Requests(RecordedCall, frozen=True, kw_only=True):
    """Request the sizes. The values of the response are the bits of the dtype, M, N and K of each size in turn."""


class LaunchRecorded(RecordedCall, frozen=True, kw_only=True):
    """Call RecordedGpu.launch. With status 1, the value of the response is the shared memory that the launch needs."""

    operands: tuple[int, int, int]
    sizes: tuple[int, int, int]
    configuration: Sequence[int]
    grid: tuple[int, int, int]


class Bench(RecordedCall, frozen=True, kw_only=True):
    """Call RecordedGpu.bench. The value of the response is a time in milliseconds."""

    begins: bool


class Move(RecordedCall, frozen=True, kw_only=True):
    """Zero a matrix, copy it to `target`, or clone it. The value of the response to "clone" is the new number."""

    what: Literal["zero", "clone", "copy"]
    matrix: int
    target: int = 0


class GetTuningLedger(RecordedCall, frozen=True, kw_only=True):
    """Request the ledger. The values of the response are those of recorded.TuningUsage.ledger."""


class TimeVersions(Message, frozen=True, kw_only=True):
    """Call CiMachine. The values of the response are the seconds of each call."""

    change: int
    order: str


FromClient = (
    Timing
    | HostAlloc
    | HostFree
    | Fill
    | CopyAsync
    | RecordEvent
    | Wait
    | Synchronize
    | GetLedger
    | Requests
    | LaunchRecorded
    | Bench
    | Move
    | GetTuningLedger
    | TimeVersions
)


# To the submission's process


class LabResponse(Message, frozen=True):
    """The result of a call.

    Attributes:
        copied: The copies that were completed since the last call, with the bytes of their targets.
    """

    status: int = 0
    values: Sequence[float] = ()
    copied: Sequence[tuple[int, bytes]] = ()


# From the grader, and to it


class TimerDescription(Message, frozen=True):
    """The description of a timer.Device."""

    work: Workload


class BusDescription(Message, frozen=True):
    """The description of a bus.SimulatedRuntime."""

    fails: int
    status: int


class RecordedGpuDescription(Message, frozen=True):
    """The description of a recorded.RecordedGpu."""

    requests: Sequence[Size]


class CiMachineDescription(Message, frozen=True):
    """The description of a ci_machine.CiMachine."""

    seed: int
    changes: Sequence[Change]


DeviceDescription = TimerDescription | BusDescription | RecordedGpuDescription | CiMachineDescription


class BeginLab(Message, frozen=True):
    """Begin a call of the entry with a simulated device among its inputs. Answered by Done."""

    client: int
    inputs: Inputs
    lab: DeviceDescription


class ByteRange(Message, frozen=True):
    """A range of bytes of a storage."""

    storage: int
    offset: int
    nbytes: int


class EndLab(Message, frozen=True):
    """End the call. The response is a LabReport.

    Attributes:
        outputs: The outputs, as the submission's process reports them.
    """

    client: int
    outputs: Sequence[ByteRange]


FromGrader = BeginLab | EndLab


class LabReport(Message, frozen=True):
    """The report on a call.

    Attributes:
        output_contents: The bytes of the outputs in the device's memory; None for outputs elsewhere.
        spent: The observations of a bus.
        tuning: The observations of a GPU that replies with recorded times.
    """

    output_contents: Sequence[bytes | None]
    spent: RuntimeUsage | None
    failed: Failed | None
    tuning: recorded.TuningUsage | None = None
