"""What the grader asks of a submission's process, and all that it may answer.

An answer carries the secret of its request: something other than the worker's own code wrote one without it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from kernelpath.course.inputs import PLAIN, InputMode
from kernelpath.course.traces import Fact, TraceFile
from kernelpath.device.messages import Strided
from kernelpath.verdict import Complaint
from warpcheck.frontends.tuning import Chosen

PRODUCT = "library_product"
"""The kernel that makes on the PTX machine what a statement leaves to torch.mm, and the stem of its file."""


class Asked(Struct, frozen=True, tag=True, kw_only=True):
    """The base of what the grader asks."""

    secret: str = ""


class Start(Asked, frozen=True, tag=True, kw_only=True):
    """Import everything slow, before there is a submission, then give up what that must not reach.

    machine: kernels run on the PTX machine's process, whose end of a socket follows as a descriptor. source: the folder
    of the submission's copy. own: a folder that it may write to. target: what the machine stands for, and properties:
    of the GPU that this is beside. size: of the group that it is a rank of, each with a GPU of its own, 0 for none;
    store: the file in which they find each other. entry: of an exercise whose declaration, which knows the right
    results, the worker does not load: inputs are sent. withheld: files and folders of modules that solve the exercise.
    """

    root: str
    stem: str
    device: str
    machine: bool
    source: str
    own: str
    entry: str = ""
    target: str = "sm_80"
    properties: Mapping[str, int | float | str] = {}
    rank: int = 0
    size: int = 0
    store: str = ""
    withheld: Sequence[str] = ()


class Load(Asked, frozen=True, tag=True, kw_only=True):
    """Load the submission.

    hidden: folders that it must not use, but for its own files. ready_made: files and folders that solve the exercise.
    """

    file: str
    hidden: Sequence[str]
    ready_made: Sequence[str] = ()


class Run(Asked, frozen=True, tag=True, kw_only=True):
    """Call the entry on a case's inputs: drawn here from the seed, or fetched from the PTX machine.

    chosen: what the GPU decided, to be held to.
    """

    case: Mapping[str, Any]
    seed: int
    variety: InputMode = PLAIN
    chosen: Chosen = Chosen()


class Inspect(Asked, frozen=True, tag=True, kw_only=True):
    """Tell whether the entry is registered as an operator, by calls on a case's inputs, which come as those of Run."""

    case: Mapping[str, Any]
    seed: int


class Output(Struct, frozen=True):
    """A tensor that is given, or said to be returned. content: its elements' bytes, or those of a sample of them."""

    dtype: str
    shape: Sequence[int]
    content: bytes


class Call(Asked, frozen=True, tag=True, kw_only=True):
    """Call the entry on these arguments: numbers, strings, lists and dicts. tensors: by their places among them."""

    arguments: Sequence[Any]
    tensors: Mapping[int, Output]


class Join(Call, frozen=True, tag=True, kw_only=True):
    """Call the entry as a rank of a group, whose channel to the exchange follows as a descriptor.

    collectives: those of the library that it may call. sizes: of the float32 gradients of a model's layers: the entry
    then takes the layers before its arguments.
    """

    rank: int
    size: int
    collectives: Sequence[str] = ()
    sizes: Sequence[int] = ()


class Read(Asked, frozen=True, tag=True, kw_only=True):
    """Call the entry on the paths of these files, which are written first, and on what else it takes."""

    files: Sequence[TraceFile]
    arguments: Sequence[str]


class Fuse(Asked, frozen=True, tag=True, kw_only=True):
    """Compile the submission's function of that name with torch.compile for these tensors, and run its graphs."""

    function: str
    tensors: Sequence[Output]


class Profile(Asked, frozen=True, tag=True, kw_only=True):
    """Call the entry on a GPU, not for the first time, and tell which kernels ran there."""

    case: Mapping[str, Any]
    seed: int


class Ceilings(Asked, frozen=True, tag=True, kw_only=True):
    """Measure what this machine reaches; dtype: of a library's matrix product, too."""

    dtype: str | None


class Contest(Asked, frozen=True, tag=True, kw_only=True):
    """Get ready to time the case: submission, baseline and, unless it is withheld, the reference kernel.

    reference: its files by name. The submission has given all its answers by now, and cannot read them where they are.
    """

    case: Mapping[str, Any]
    reference: Mapping[str, str]


class Round(Asked, frozen=True, tag=True, kw_only=True):
    """Time every contestant once, in this order, on new inputs. sample: draws the places of the outputs to send.

    case: of a rank of a group, whose contestants are the entry and the library's all-reduce.
    """

    seed: int
    order: Sequence[int]
    sample: int
    case: Mapping[str, Any] = {}


AnyAsked = Start | Load | Run | Inspect | Join | Call | Read | Fuse | Profile | Ceilings | Contest | Round


class Answer(Struct, frozen=True, tag=True, kw_only=True):
    """The base of what may be answered."""

    secret: str


class Compiling(Answer, frozen=True, tag=True, kw_only=True):
    """No answer, but news: a compiler begins, or is done."""

    begins: bool


class Running(Answer, frozen=True, tag=True, kw_only=True):
    """No answer, but news: the line of the submission's file that its thread is in."""

    line: int


class Done(Answer, frozen=True, tag=True, kw_only=True):
    pass


class Complained(Answer, frozen=True, tag=True, kw_only=True):
    """The submission cannot go on."""

    complaint: Complaint


class Operator(Struct, frozen=True):
    """An operator that computes, and the line of the submission that called it."""

    name: str
    line: int


class Returned(Answer, frozen=True, tag=True, kw_only=True):
    """The entry's outputs, and what was seen of the call in its own process.

    places: where the outputs lie, by the numbers that a simulated device knows.
    """

    outputs: Sequence[Output]
    inputs_seen: Sequence[Sequence[int]]
    out_of_bounds: str
    operators: Sequence[Operator]
    launches: Sequence[str]
    tampered: str
    places: Sequence[Strided] = ()


class Told(Answer, frozen=True, tag=True, kw_only=True):
    """What the entry reports of the files."""

    facts: Mapping[str, Fact]
    tampered: str


class Fused(Answer, frozen=True, tag=True, kw_only=True):
    """What the compiler wrote: a module for each graph, and what they compute. broken: why it is not one graph."""

    codes: Sequence[str]
    broken: str
    outputs: Sequence[Output]
    tampered: str


class Placed(Answer, frozen=True, tag=True, kw_only=True):
    """Where the entry's outputs lie in the PTX machine's memory."""

    outputs: Sequence[Strided]
    operators: Sequence[Operator]
    tampered: str


class Profiled(Answer, frozen=True, tag=True, kw_only=True):
    """Seconds that each kernel took on the GPU, and the kernels that the submission launched itself.

    library: kernels of torch.mm, where the statement leaves products to it. trace: of the profiler, in Chrome's format.
    chosen: what the GPU decided. workspace: bytes that the call held beside
    its inputs and outputs.
    """

    kernels: Mapping[str, float]
    launches: Sequence[str]
    library: Sequence[str] = ()
    trace: bytes
    chosen: Chosen
    workspace: int


class Measured(Answer, frozen=True, tag=True, kw_only=True):
    """Bytes or operations per second, by what they are the ceiling of."""

    ceilings: Mapping[str, float]


class Ready(Answer, frozen=True, tag=True, kw_only=True):
    contestants: int


class Timed(Answer, frozen=True, tag=True, kw_only=True):
    """A round: seconds by contestant. late: an output changed after it was returned."""

    returned: Returned
    seconds: Sequence[float]
    late: bool
    telemetry: Mapping[str, float]


AnyAnswer = (
    Compiling | Running | Done | Complained | Returned | Told | Fused | Placed | Profiled | Measured | Ready | Timed
)
