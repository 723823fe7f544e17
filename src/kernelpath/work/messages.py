"""Define the requests of the grader to a submission's process, and all responses that the process may give.

A response carries the secret of its request. A response without it was written by something other than the worker's own
code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from kernelpath.course.inputs import PLAIN, InputMode
from kernelpath.course.traces import Fact, TraceFile
from kernelpath.device.messages import TensorRef
from kernelpath.verdict import Finding
from warpcheck.frontends.tuning import Chosen

# The kernel that computes torch.mm on the PTX machine where a statement allows torch.mm, and the stem of its file.
PRODUCT = "library_product"


class WorkerRequest(Struct, frozen=True, tag=True, kw_only=True):
    """The base of all requests."""

    secret: str = ""


# Requests that begin a process.
class Start(WorkerRequest, frozen=True, tag=True, kw_only=True):
    """Import everything slow before there is a submission, then give up what the submission must not reach.

    Attributes:
        root: The checkout.
        path_id: The exercise.
        device: "cpu", or a GPU such as "cuda".
        machine: Whether kernels run on the PTX machine's process. Its end of a socket follows as a descriptor.
        source: The folder of the submission's copy.
        own: The folder that the submission may write to.
        entry: The entry of an exercise whose declaration, which knows the right results, the worker does not load.
            Inputs are then sent.
        target: The architecture that the PTX machine simulates.
        properties: Those of the GPU that host code sees on the PTX machine.
        rank: The number of this process in a group of ranks with a GPU each.
        size: The number of ranks in the group; 0 without a group.
        store: The file in which the ranks find each other.
        withheld: Files and folders of modules that solve the exercise.
    """

    root: str
    path_id: str
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


class LoadSubmission(WorkerRequest, frozen=True, tag=True, kw_only=True):
    """Load the submission.

    Attributes:
        file: The Python file.
        hidden: Folders that the submission must not use, except for its own files.
        ready_made: Files and folders that solve the exercise.
    """

    file: str
    hidden: Sequence[str]
    ready_made: Sequence[str] = ()


# Requests that call the submission.
class Run(WorkerRequest, frozen=True, tag=True, kw_only=True):
    """Call the entry on a case's inputs, generated here from the seed, or fetched from the PTX machine.

    Attributes:
        chosen: The configurations that a GPU's autotuning chose, which the call must use.
    """

    case: Mapping[str, Any]
    seed: int
    variety: InputMode = PLAIN
    chosen: Chosen = Chosen()


class Inspect(WorkerRequest, frozen=True, tag=True, kw_only=True):
    """Check that the entry is registered as an operator, by calls on a case's inputs, which are made as for Run."""

    case: Mapping[str, Any]
    seed: int


class TensorData(Struct, frozen=True):
    """A tensor that is sent.

    Attributes:
        content: The bytes of its elements, or of a sample of its elements.
    """

    dtype: str
    shape: Sequence[int]
    content: bytes


class Call(WorkerRequest, frozen=True, tag=True, kw_only=True):
    """Call the entry on these arguments.

    Attributes:
        arguments: Numbers, strings, lists and dicts.
        tensors: By their positions among the arguments.
    """

    arguments: Sequence[Any]
    tensors: Mapping[int, TensorData]


class Join(Call, frozen=True, tag=True, kw_only=True):
    """Call the entry as a rank of a group, whose channel to the exchange follows as a descriptor.

    Attributes:
        collectives: The library's collectives that the entry may call.
        sizes: The elements of the float32 gradients of a model's layers. Where there are any, the entry gets the layers
            before its arguments.
    """

    rank: int
    size: int
    collectives: Sequence[str] = ()
    sizes: Sequence[int] = ()


class ReadFiles(WorkerRequest, frozen=True, tag=True, kw_only=True):
    """Write these files, and call the entry on their paths and on the other arguments."""

    files: Sequence[TraceFile]
    arguments: Sequence[str]


class Fuse(WorkerRequest, frozen=True, tag=True, kw_only=True):
    """Compile a function of the submission with torch.compile for these tensors, and run its graphs."""

    function: str
    tensors: Sequence[TensorData]


class Profile(WorkerRequest, frozen=True, tag=True, kw_only=True):
    """Call the entry on a GPU after a first call, and report which kernels the GPU ran."""

    case: Mapping[str, Any]
    seed: int


class MeasureCeilings(WorkerRequest, frozen=True, tag=True, kw_only=True):
    """Measure the bandwidths of this machine, and the library's matrix product in `dtype` where there is one."""

    dtype: str | None


# Requests that measure on a GPU.
class StartTiming(WorkerRequest, frozen=True, tag=True, kw_only=True):
    """Prepare to time a case: submission, baseline and, unless it is withheld, the reference kernel.

    Attributes:
        reference: The reference kernel's files by name. They are sent only now: the submission has given all its
            responses, and cannot read them where they are.
    """

    case: Mapping[str, Any]
    reference: Mapping[str, str]


class TimeRound(WorkerRequest, frozen=True, tag=True, kw_only=True):
    """Time every implementation once, in this order, on new inputs.

    Attributes:
        seed: Generates the inputs.
        order: The numbers of the implementations.
        sample: The seed that selects the elements of the outputs to send.
        case: Of a rank of a group only, whose implementations are the entry and the library's all-reduce.
    """

    seed: int
    order: Sequence[int]
    sample: int
    case: Mapping[str, Any] = {}


AnyRequest = (
    Start
    | LoadSubmission
    | Run
    | Inspect
    | Join
    | Call
    | ReadFiles
    | Fuse
    | Profile
    | MeasureCeilings
    | StartTiming
    | TimeRound
)


class WorkerResponse(Struct, frozen=True, tag=True, kw_only=True):
    """The base of all responses."""

    secret: str


# Responses while a request is being executed.
class Compiling(WorkerResponse, frozen=True, tag=True, kw_only=True):
    """Report progress before the response: a compiler begins, or has finished."""

    begins: bool


class Running(WorkerResponse, frozen=True, tag=True, kw_only=True):
    """Report progress before the response: the line of the submission's file that its thread is in."""

    line: int


# Responses that complete a request.
class Done(WorkerResponse, frozen=True, tag=True, kw_only=True):
    """Report success where there is no result."""


class ReportedFinding(WorkerResponse, frozen=True, tag=True, kw_only=True):
    """Report why the submission cannot go on."""

    finding: Finding


class OperatorCall(Struct, frozen=True):
    """An operator that computes, and the line of the submission that called it."""

    name: str
    line: int


class CallResult(WorkerResponse, frozen=True, tag=True, kw_only=True):
    """Report the entry's outputs, and what was observed of the call in its own process.

    Attributes:
        outputs: The tensors, or a sample of each.
        input_fingerprints: Those of the inputs' storages after the call.
        out_of_bounds: A description of a guard band that was written to; empty where none was.
        operators: The operators that compute.
        launches: The names of the kernels that were launched.
        tampered: A description of what was changed in the process; empty where nothing was.
        output_refs: Where the outputs are, by the numbers of storages that a simulated device uses.
    """

    outputs: Sequence[TensorData]
    input_fingerprints: Sequence[Sequence[int]]
    out_of_bounds: str
    operators: Sequence[OperatorCall]
    launches: Sequence[str]
    tampered: str
    output_refs: Sequence[TensorRef] = ()


class ReportedFacts(WorkerResponse, frozen=True, tag=True, kw_only=True):
    """Report the facts that the entry returned about the files."""

    facts: Mapping[str, Fact]
    tampered: str


class FusedGraphs(WorkerResponse, frozen=True, tag=True, kw_only=True):
    """Report what the compiler generated, and its outputs.

    Attributes:
        codes: The source of a module for each graph.
        graph_break: The reason why the function is not one graph; empty where it is.
    """

    codes: Sequence[str]
    graph_break: str
    outputs: Sequence[TensorData]
    tampered: str


class OutputRefs(WorkerResponse, frozen=True, tag=True, kw_only=True):
    """Report where the entry's outputs are in the PTX machine's memory."""

    outputs: Sequence[TensorRef]
    operators: Sequence[OperatorCall]
    tampered: str


class ProfileResult(WorkerResponse, frozen=True, tag=True, kw_only=True):
    """Report the kernels of a call on a GPU.

    Attributes:
        kernels: The seconds that each kernel took.
        launches: The kernels that the submission launched itself.
        library: The kernels of torch.mm, where the statement allows torch.mm.
        trace: The profiler's trace, in Chrome's format.
        chosen: The configurations that autotuning chose.
        workspace: The bytes that the call held at its peak besides its inputs and outputs.
    """

    kernels: Mapping[str, float]
    launches: Sequence[str]
    library: Sequence[str] = ()
    trace: bytes
    chosen: Chosen
    workspace: int


class MeasuredCeilings(WorkerResponse, frozen=True, tag=True, kw_only=True):
    """Report the ceilings by name, in bytes or operations per second."""

    ceilings: Mapping[str, float]


class TimingReady(WorkerResponse, frozen=True, tag=True, kw_only=True):
    """Report how many implementations are timed."""

    implementations: int


class RoundTimes(WorkerResponse, frozen=True, tag=True, kw_only=True):
    """Report a round.

    Attributes:
        result: The sampled outputs of the submission's timed call.
        seconds: The time of each implementation.
        changed_after_return: Whether an output changed after the entry had returned.
        telemetry: Clocks, power and temperature of the GPU.
    """

    result: CallResult
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
