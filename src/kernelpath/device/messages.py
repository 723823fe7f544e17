"""Define the messages between a submission's process, the PTX machine's process, and the grader.

A pointer is sent as the number of a storage, which both ends know, and an offset into the storage. An address is sent
only as part of a storage's content, with the number of the storage that it points into.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import Struct

from kernelpath.line_counters import LineInstructions, LineTraffic
from warpcheck.counters import AccessSample, LineCounters
from warpcheck.initcheck import POISON as POISON
from warpcheck.simt import Event, Kernel


class Message(Struct, frozen=True, tag=True):
    """The base of all messages. The class name is the tag on the wire."""


class TensorRef(Message, frozen=True):
    """A tensor as a view of a storage. `offset` and `strides` count elements."""

    storage: int
    dtype: str
    shape: Sequence[int]
    strides: Sequence[int]
    offset: int


# From the submission's process
class LoadPtx(Message, frozen=True):
    """Load PTX whose line table refers to the file `source`. Answered by Loaded or Failed."""

    text: str
    source: str | None


class Compile(Message, frozen=True):
    """Make a kernel ready to launch. Answered by Acknowledged or Failed."""

    module: int
    kernel: str


class Pointer(Message, frozen=True):
    """An argument: the address of a byte of a storage."""

    storage: int
    offset: int


class Blob(Message, frozen=True):
    """An argument of several words, such as a struct. `pointers` maps byte offsets of addresses to their targets."""

    content: bytes
    pointers: Sequence[tuple[int, Pointer]]


class Buffer(Message, frozen=True):
    """Memory that a kernel may access: the span of one tensor, with its name and dtype for error messages."""

    name: str
    storage: int
    offset: int
    nbytes: int
    itemsize: int
    dtype: str


class Link(Message, frozen=True):
    """The 8-byte words of one storage that are addresses in another storage.

    Attributes:
        storage: The storage that the addresses point into.
        base: Its first address in the submission's process.
        words: The indices of the words, as the bytes of an int64 array.
    """

    storage: int
    base: int
    words: bytes


class Storage(Message, frozen=True):
    """A storage that the machine does not know, or whose bytes the host has changed.

    Attributes:
        alignment: Its address modulo 16.
        fresh: Whether nothing has written to it since its allocation. Its content may then be None.
        links: The addresses in its content.
    """

    number: int
    nbytes: int
    alignment: int
    content: bytes | None
    fresh: bool
    links: Sequence[Link] = ()


class Launch(Message, frozen=True):
    """Run a kernel to its end. Answered by LaunchResult or Failed.

    Attributes:
        storages: New storages, and storages that the host has changed since the last launch.
        dropped: The numbers of storages that the submission has freed.
        cluster: The cluster dimensions; () launches without clusters.
    """

    module: int
    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int
    arguments: Sequence[int | float | Pointer | Blob]
    buffers: Sequence[Buffer]
    storages: Sequence[Storage]
    dropped: Sequence[int]
    cooperative: bool = False
    cluster: Sequence[int] = ()
    programmatic_stream_serialization: bool = False


class Fetch(Message, frozen=True):
    """Request the inputs of the case. Answered by Inputs."""


class Finish(Message, frozen=True):
    """Report that the entry has returned, with the storages that the host changed since the last launch.

    Answered by Acknowledged.
    """

    storages: Sequence[Storage]


FromClient = LoadPtx | Compile | Launch | Fetch | Finish


# To the submission's process
class Loaded(Message, frozen=True):
    """A loaded module, by its number, and its kernels."""

    module: int
    kernels: dict[str, Kernel]


class LaunchResult(Message, frozen=True):
    """A launch that has completed.

    Attributes:
        changed: The storages that the kernel changed, by number, with their new bytes.
        cost: The simulated cost in the machine's steps, which the autotuner compares.
    """

    changed: Sequence[tuple[int, bytes]]
    cost: int
    printed: str


class Failed(Message, frozen=True):
    """A kernel, or a request, that did not complete.

    Attributes:
        kind: The name of a simt.FaultKind, or DEADLOCK, TIMED_OUT, REJECTED, UNSUPPORTED, REFUSED, or FORGED.
    """

    kind: str
    text: str
    kernel: str = ""
    file: str = ""
    line: int = 0
    block: tuple[int, int, int] = (0, 0, 0)
    thread: tuple[int, int, int] = (0, 0, 0)


class TorchDevice(Message, frozen=True):
    """A torch.device as an argument of the entry."""

    name: str


class LabPart(Message, frozen=True):
    """A simulated device, or one of its methods, as an argument of the entry.

    Attributes:
        device: The torch device of the case's tensors.
        method: The name of the method; "" stands for the simulated device itself.
    """

    lab: Literal["timer", "bus", "recorded", "ci_machine"]
    device: str
    method: str = ""


class Inputs(Message, frozen=True):
    """The arguments of the entry. A tensor is a view of a storage.

    Attributes:
        storages: The content of each storage.
        large_offsets: Whether tensors may be larger than memory. No storage of simt.FAR bytes or more then has content.
        spans: The size in bytes of each input storage without content.
        ranks: The number of ranks, if the y coordinate of a block is its rank. The memory of a rank is an equal part of
            each input tensor, and what a table of addresses names for it. 0 without ranks.
    """

    arguments: Sequence[TensorRef | TorchDevice | LabPart | Sequence[int | float] | bool | int | float | str | None]
    storages: dict[int, bytes]
    large_offsets: bool = False
    spans: dict[int, int] = {}
    ranks: int = 0


class Acknowledged(Message, frozen=True):
    pass


ToClient = Loaded | LaunchResult | Failed | Inputs | Acknowledged


# From the grader
class Attach(Message, frozen=True):
    """Attach a new submission's process. The machine's end of a socket to this process follows as a descriptor.

    Attributes:
        target: The architecture that the machine simulates for this client.
        multiprocessors: The multiprocessors of the simulated GPU, which limit the blocks that are resident at once; 0
            for the number of the target's GPU.
    """

    target: str = "sm_80"
    multiprocessors: int = 0


class Begin(Message, frozen=True):
    """Begin a case. Answered by Acknowledged.

    Attributes:
        order: The order of warps and blocks; see warpcheck.runtime.schedule_order.
        negated: Whether tensor cores negate their results.
        label: Names the call in the transcripts of later calls. Two calls in two processes whose transcripts must be
            equal need the same label.
    """

    client: int
    inputs: Inputs
    order: int
    negated: bool = False
    label: str = ""


class End(Message, frozen=True):
    """End the case. Answered by CaseReport.

    Attributes:
        outputs: The tensors that the entry returned, as the untrusted submission's process reports them.
        counted: Whether the report includes the counters.
        measures_reads: Whether it includes `most_read`, which takes almost as long as the launches.
    """

    client: int
    outputs: Sequence[TensorRef]
    counted: bool = True
    measures_reads: bool = False


class RecordEvents(Message, frozen=True):
    """Record the events of warps in all later launches of this client; see simt.events. Answered by Acknowledged."""

    client: int


class GetLaunchProfile(Message, frozen=True):
    """Request the profile of the launch in this case that executed the most instructions.

    Answered by LaunchProfile, or by Acknowledged where the case has no launch.
    """

    client: int


class GetLastWriter(Message, frozen=True):
    """Request the last writer of a byte of a storage. Answered by LastWriter, or Acknowledged if there is none."""

    client: int
    storage: int
    offset: int


FromGrader = Attach | Begin | End | RecordEvents | GetLaunchProfile | GetLastWriter


# To the grader
class Attached(Message, frozen=True):
    """The number of the new client in the grader's later requests."""

    client: int


class LaunchEntry(Message, frozen=True):
    """A launch in the transcript.

    Attributes:
        code: A digest of the module.
        arguments: A description of each argument.
        host: Two digests, separated by a space, for each buffer that the host changed: a digest of the changed bytes
            and a digest of the whole content.
        buffers: The memory that the kernel may access. The addresses of storages follow from it.
        compiler: The language that the PTX was compiled from; see device.case.compiler_of.
        tables: The buffers that the host filled with more than one repeated value.
        fills: A digest of the content for each buffer that kernels or the host have left with one repeated value, and
            that the host has not changed since the last launch.
    """

    kernel: str
    code: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int
    arguments: Sequence[str]
    host: Sequence[tuple[str, str]]
    cooperative: bool = False
    cluster: Sequence[int] = ()
    buffers: Sequence[str] = ()
    compiler: str = ""
    tables: Sequence[str] = ()
    fills: Sequence[tuple[str, str]] = ()
    programmatic_stream_serialization: bool = False


class Output(Message, frozen=True):
    """The content of an output on the machine. `fault` says why the kernels did not compute it; "" if they did."""

    content: bytes
    fault: str


class GridOverlap(Message, frozen=True):
    """The overlap that programmatic dependent launch allows a launch.

    Attributes:
        before_wait: The share of its sectors of global memory that it accesses before griddepcontrol.wait.
        before_trigger: The share of its instructions that it executes before griddepcontrol.launch_dependents.
    """

    before_wait: float
    before_trigger: float


class CaseReport(Message, frozen=True):
    """The machine's observations of a case.

    Attributes:
        mutated: The numbers of input storages whose content is no longer the generated content.
        tensor: Tensor core operations; see Observation in grading/provenance.
        workspace: The most bytes that a launch found in storages of the submission besides its outputs.
        unreached: The tensors of which a truncated launch accessed no element past 2**31; see device/large_offsets.
        reached: For a large-offsets case with a single launch that ran its complete sample of blocks: the end, in
            bytes, of its accesses to each storage.
        stored: For such a case, the bytes that its blocks stored to each storage, if it made no bulk stores.
        overlaps: The overlap that each launch allows, in their order.
        most_read: For each input storage, in the order of the inputs, the most bytes of it that one block of each
            launch read, if the request asks for it.
    """

    outputs: Sequence[Output]
    mutated: Sequence[int]
    transcript: Sequence[LaunchEntry]
    failed: Failed | None
    traffic: Sequence[LineTraffic]
    instructions: Sequence[LineInstructions]
    tensor: int = 0
    workspace: int = 0
    unreached: Sequence[str] = ()
    reached: Mapping[int, int] = {}
    stored: Mapping[int, int] = {}
    overlaps: Sequence[GridOverlap] = ()
    most_read: Sequence[Sequence[int]] = ()


class LaunchProfile(Message, frozen=True):
    """All counters of one launch. `events` and `barriers` are those of simt.Launch, if RecordEvents requested them."""

    kernel: str
    file: str
    lines: dict[int, LineCounters]
    accesses: Sequence[AccessSample]
    totals: LineCounters
    ptx: str
    events: Sequence[Event] = ()
    barriers: Mapping[str, int] = {}


class LastWriter(Message, frozen=True):
    """The thread that last wrote a byte, with its block (both as in error messages), and its source line."""

    thread: str
    block: str
    file: str
    line: int


ToGrader = Acknowledged | Attached | CaseReport | LaunchProfile | LastWriter
