"""What passes between a submission's process, the PTX machine's and the grader's.

A pointer is a storage, by a number that both ends know, and an offset into it. Addresses cross only where they stand
in memory, with the storage that they lie in. Longer than 300 lines because one union lists all messages of a channel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import Struct

from warpcheck.counters import AccessCounters, AccessSample, LineCounters
from warpcheck.simt import Event, Kernel
from warpcheck.unwritten import POISON as POISON


class Message(Struct, frozen=True, tag=True):
    """The base of all that follows."""


class Strided(Message, frozen=True):
    """A tensor: a view of a storage. offset and strides count elements."""

    storage: int
    dtype: str
    shape: Sequence[int]
    strides: Sequence[int]
    offset: int


# From the submission's process
class Load(Message, frozen=True):
    """PTX, and the file that its lines refer to. Answered by Loaded or Failed."""

    text: str
    source: str | None


class Compile(Message, frozen=True):
    """Make a kernel ready to launch. Answered by Done or Failed."""

    module: int
    kernel: str


class Pointer(Message, frozen=True):
    """An argument: the address of a byte of a storage."""

    storage: int
    offset: int


class Blob(Message, frozen=True):
    """An argument of several words, some of which are addresses: where in it, and what they point to."""

    content: bytes
    pointers: Sequence[tuple[int, Pointer]]


class Buffer(Message, frozen=True):
    """Memory that a kernel may touch: the span of one tensor, with its name and dtype for complaints."""

    name: str
    storage: int
    offset: int
    nbytes: int
    itemsize: int
    dtype: str


class Link(Message, frozen=True):
    """Words of 8 bytes in a storage that are addresses in another one, which begins at `base` in their process.

    words: their places, as int64.
    """

    storage: int
    base: int
    words: bytes


class Storage(Message, frozen=True):
    """A storage that the machine does not know, or whose bytes the host has changed.

    alignment: its address modulo 16. fresh: nothing has written to it yet; then there may be no content. links: the
    addresses in its content.
    """

    number: int
    nbytes: int
    alignment: int
    content: bytes | None
    fresh: bool
    links: Sequence[Link] = ()


class Launch(Message, frozen=True):
    """Run a kernel to its end; no cluster is asked for by (). Answered by Ran or Failed. dropped: storages now gone."""

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


class Fetch(Message, frozen=True):
    """Ask for the case's inputs. Answered by Inputs."""


class Finish(Message, frozen=True):
    """The entry has returned; storages that the host changed since the last launch. Answered by Done."""

    storages: Sequence[Storage]


FromClient = Load | Compile | Launch | Fetch | Finish


# To the submission's process
class Loaded(Message, frozen=True):
    module: int
    kernels: dict[str, Kernel]


class Ran(Message, frozen=True):
    """changed: the bytes of storages that the kernel wrote to. cost: in the machine's steps, for autotuning."""

    changed: Sequence[tuple[int, bytes]]
    cost: int
    printed: str


class Failed(Message, frozen=True):
    """How a kernel, or the request for it, ended. kind: a simt.FaultKind's name, or another ending."""

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
    """A lab as an argument of the entry, or a method of it. device: where the tensors of the case are."""

    lab: Literal["timer", "bus", "recorded"]
    device: str
    method: str = ""


class Inputs(Message, frozen=True):
    """The arguments of the entry, tensors as views of storages, and the bytes of those.

    far: no storage of simt.FAR bytes and more has content, whoever made it. spans: those of inputs, and their bytes.
    """

    arguments: Sequence[Strided | TorchDevice | LabPart | Sequence[int] | bool | int | float | str | None]
    storages: dict[int, bytes]
    far: bool = False
    spans: dict[int, int] = {}


class Done(Message, frozen=True):
    pass


ToClient = Loaded | Ran | Failed | Inputs | Done


# From the grader
class Attach(Message, frozen=True):
    """A new submission's process, for which the machine is a `target`; its end of a socket follows as a descriptor."""

    target: str = "sm_80"


class Begin(Message, frozen=True):
    """A case. Answered by Done.

    order: of warps and blocks; see warpcheck.runtime.order. negated: tensor cores' products.
    label: the same for two calls in two processes whose transcripts are to be the same.
    """

    client: int
    inputs: Inputs
    order: int
    negated: bool = False
    label: str = ""


class End(Message, frozen=True):
    """The case is over; outputs are what the submission says that it returned. Answered by Ended.

    counted: whether to tell the counters.
    """

    client: int
    outputs: Sequence[Strided]
    counted: bool = True


class Record(Message, frozen=True):
    """Record what warps do in the launches from now on; see simt.events. Answered by Done."""

    client: int


class Draw(Message, frozen=True):
    """Ask for the launch of this case that executed most. Answered by Drawn, or by Done if nothing was launched."""

    client: int


class AskWriter(Message, frozen=True):
    """Ask who wrote a byte of a storage. Answered by Writer, or Done where no kernel did."""

    client: int
    storage: int
    offset: int


FromGrader = Attach | Begin | End | Record | Draw | AskWriter


# To the grader
class Attached(Message, frozen=True):
    """The number by which the grader speaks of this client."""

    client: int


class Note(Message, frozen=True):
    """A launch in the transcript. host: by buffer two digests, of the bytes that the host changed and of all there is,
    apart by a blank. buffers: the memory that the kernel may touch, from which the addresses of storages follow.
    compiler: see device/compilers. tables: the buffers into which the host wrote more than one value over and over."""

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


class Output(Message, frozen=True):
    """An output as the machine holds it. fault: why it is not the work of the kernels launched, if it is not."""

    content: bytes
    fault: str


class Ended(Message, frozen=True):
    """What the machine saw of a case. mutated: positions of input storages that are not as drawn. instructions: file,
    line, LineCounters.executed. tensor, workspace: as grading's Evidence has them. unreached: see device/far.
    reached: in a far case with a single launch, whose sample of the blocks was whole, how far in bytes it accessed each
    storage."""

    outputs: Sequence[Output]
    mutated: Sequence[int]
    notes: Sequence[Note]
    failed: Failed | None
    accesses: Sequence[tuple[str, AccessCounters]]
    instructions: Sequence[tuple[str, int, int, int, int, int]]
    tensor: int = 0
    workspace: int = 0
    unreached: Sequence[str] = ()
    reached: Mapping[int, int] = {}


class Drawn(Message, frozen=True):
    """One launch in full. events, and barriers, as in simt.Launch: where Record asked for them."""

    kernel: str
    file: str
    lines: dict[int, LineCounters]
    accesses: Sequence[AccessSample]
    totals: LineCounters
    ptx: str
    events: Sequence[Event] = ()
    barriers: Mapping[str, int] = {}


class Writer(Message, frozen=True):
    """A thread and a block as messages name them, the kernel's file and the line."""

    thread: str
    block: str
    file: str
    line: int


ToGrader = Done | Attached | Ended | Drawn | Writer
