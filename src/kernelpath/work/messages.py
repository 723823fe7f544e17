"""What the grader asks of a submission's process, and all that it may answer.

An answer carries the secret of its request: something other than the worker's own code wrote one without it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from kernelpath.course.inputs import PLAIN, Variety
from kernelpath.course.traces import Fact, TraceFile
from kernelpath.device.messages import Strided
from kernelpath.lanes.tuning import Chosen
from kernelpath.verdict import Finding

PRODUCT = "library_product"
"""The kernel that makes on the PTX machine what a statement leaves to torch.mm, and the stem of its file."""


class WorkerRequest(Struct, frozen=True, tag=True, kw_only=True):
    """The base of what the grader asks."""

    secret: str = ""


class Start(WorkerRequest, frozen=True, tag=True, kw_only=True):
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


class Load(WorkerRequest, frozen=True, tag=True, kw_only=True):
    """Load the submission.

    hidden: folders that it must not use, but for its own files. ready_made: files and folders that solve the exercise.
    """

    file: str
    hidden: Sequence[str]
    ready_made: Sequence[str] = ()


class Run(WorkerRequest, frozen=True, tag=True, kw_only=True):
    """Call the entry on a case's inputs: drawn here from the seed, or fetched from the PTX machine.

    chosen: what the GPU decided, to be held to.
    """

    case: Mapping[str, Any]
    seed: int
    variety: Variety = PLAIN
    chosen: Chosen = Chosen()


class Inspect(WorkerRequest, frozen=True, tag=True, kw_only=True):
    """Tell whether the entry is registered as an operator, by calls on a case's inputs, which come as those of Run."""

    case: Mapping[str, Any]
    seed: int


class TensorData(Struct, frozen=True):
    """A tensor that is given, or said to be returned. content: its elements' bytes, or those of a sample of them."""

    dtype: str
    shape: Sequence[int]
    content: bytes


class Call(WorkerRequest, frozen=True, tag=True, kw_only=True):
    """Call the entry on these arguments: numbers, strings, lists and dicts. tensors: by their places among them."""

    arguments: Sequence[Any]
    tensors: Mapping[int, TensorData]


class Join(Call, frozen=True, tag=True, kw_only=True):
    """Call the entry as a rank of a group, whose channel to the exchange follows as a descriptor.

    collectives: those of the library that it may call. sizes: of the float32 gradients of a model's layers: the entry
    then takes the layers before its arguments.
    """

    rank: int
    size: int
    collectives: Sequence[str] = ()
    sizes: Sequence[int] = ()


class ReadFiles(WorkerRequest, frozen=True, tag=True, kw_only=True):
    """Call the entry on the paths of these files, which are written first, and on what else it takes."""

    files: Sequence[TraceFile]
    arguments: Sequence[str]


class Fuse(WorkerRequest, frozen=True, tag=True, kw_only=True):
    """Compile the submission's function of that name with torch.compile for these tensors, and run its graphs."""

    function: str
    tensors: Sequence[TensorData]


class Profile(WorkerRequest, frozen=True, tag=True, kw_only=True):
    """Call the entry on a GPU, not for the first time, and tell which kernels ran there."""

    case: Mapping[str, Any]
    seed: int


class MeasureCeilings(WorkerRequest, frozen=True, tag=True, kw_only=True):
    """Measure what this machine reaches; dtype: of a library's matrix product, too."""

    dtype: str | None


class StartTiming(WorkerRequest, frozen=True, tag=True, kw_only=True):
    """Get ready to time the case: submission, baseline and, unless it is withheld, the reference kernel.

    reference: its files by name. The submission has given all its answers by now, and cannot read them where they are.
    """

    case: Mapping[str, Any]
    reference: Mapping[str, str]


class TimeRound(WorkerRequest, frozen=True, tag=True, kw_only=True):
    """Time every contestant once, in this order, on new inputs. sample: draws the places of the outputs to send.

    case: of a rank of a group, whose contestants are the entry and the library's all-reduce.
    """

    seed: int
    order: Sequence[int]
    sample: int
    case: Mapping[str, Any] = {}


AnyRequest = (
    Start | Load | Run | Inspect | Join | Call | ReadFiles | Fuse | Profile | MeasureCeilings | StartTiming | TimeRound
)


class WorkerResponse(Struct, frozen=True, tag=True, kw_only=True):
    """The base of what may be answered."""

    secret: str


class Compiling(WorkerResponse, frozen=True, tag=True, kw_only=True):
    """No answer, but news: a compiler begins, or is done."""

    begins: bool


class Running(WorkerResponse, frozen=True, tag=True, kw_only=True):
    """No answer, but news: the line of the submission's file that its thread is in."""

    line: int


class Done(WorkerResponse, frozen=True, tag=True, kw_only=True):
    pass


class ReportedFinding(WorkerResponse, frozen=True, tag=True, kw_only=True):
    """The submission cannot go on."""

    finding: Finding


class OperatorCall(Struct, frozen=True):
    """An operator that computes, and the line of the submission that called it."""

    name: str
    line: int


class CallResult(WorkerResponse, frozen=True, tag=True, kw_only=True):
    """The entry's outputs, and what was seen of the call in its own process.

    places: where the outputs lie, by the numbers that a simulated device knows.
    """

    outputs: Sequence[TensorData]
    input_fingerprints: Sequence[Sequence[int]]
    out_of_bounds: str
    operators: Sequence[OperatorCall]
    launches: Sequence[str]
    tampered: str
    output_refs: Sequence[Strided] = ()


class ReportedFacts(WorkerResponse, frozen=True, tag=True, kw_only=True):
    """What the entry reports of the files."""

    facts: Mapping[str, Fact]
    tampered: str


class FusedGraphs(WorkerResponse, frozen=True, tag=True, kw_only=True):
    """What the compiler wrote: a module for each graph, and what they compute. broken: why it is not one graph."""

    codes: Sequence[str]
    graph_break: str
    outputs: Sequence[TensorData]
    tampered: str


class OutputRefs(WorkerResponse, frozen=True, tag=True, kw_only=True):
    """Where the entry's outputs lie in the PTX machine's memory."""

    outputs: Sequence[Strided]
    operators: Sequence[OperatorCall]
    tampered: str


class ProfileResult(WorkerResponse, frozen=True, tag=True, kw_only=True):
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


class MeasuredCeilings(WorkerResponse, frozen=True, tag=True, kw_only=True):
    """Bytes or operations per second, by what they are the ceiling of."""

    ceilings: Mapping[str, float]


class TimingReady(WorkerResponse, frozen=True, tag=True, kw_only=True):
    contestants: int


class RoundTimes(WorkerResponse, frozen=True, tag=True, kw_only=True):
    """A round: seconds by contestant. late: an output changed after it was returned."""

    returned: CallResult
    seconds: Sequence[float]
    changed_after_return: bool
    telemetry: Mapping[str, float]


AnyResponse = (
    Compiling
    | Running
    | Done
    | ReportedFinding
    | CallResult
    | ReportedFacts
    | FusedGraphs
    | OutputRefs
    | ProfileResult
    | MeasuredCeilings
    | TimingReady
    | RoundTimes
)
