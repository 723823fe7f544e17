"""Declare an exercise: one frozen `Exercise` in each file of checks/, over a problem that other exercises may share.

The prose (hints, questions, explanation) is the exercise's lesson, in the .md file beside the declaration.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from kernelpath.course.errors import require
from kernelpath.course.labs.fabric import NVLINK, Links
from kernelpath.course.library import Library
from kernelpath.course.limits import check_limits, describe_limits, limit
from kernelpath.course.problem import Case, Problem, Tolerance, arguments, check_cases, check_same_arguments
from kernelpath.verdict import Finding

if TYPE_CHECKING:
    import torch

Kind = Literal["kernel", "operator", "python", "library", "lab", "distributed", "trace", "repair", "program"]


# The architectures that the PTX machine emulates, with their compute capability: the names of simt.TARGETS.
ARCHITECTURES = {"sm_80": (8, 0), "sm_90a": (9, 0), "sm_100a": (10, 0)}


@dataclass(frozen=True)
class Traffic:
    """Limits on a kernel's memory traffic, counted without a GPU.

    The limits apply to the largest case. On every other case `grading.traffic` leaves room for partial tiles and for
    bytes that are requested twice; `large` says where that room for bytes ends.

    Attributes:
        sectors: The 32-byte sectors over the fewest that the lanes' bytes need, for any line's loads from one tensor or
            stores to it. 1.0 is perfectly coalesced at every access width; a column of float32 reaches 8.0. Lines that
            exceed the limit may waste 2% of all sectors.
        bank_conflicts: The shared-memory wavefronts beyond the minimum, per request, for any line's loads or stores.
        bytes: The bytes requested in global memory (sectors times 32, loads and stores) over the case's compulsory
            bytes.
        large: The share of the largest case's compulsory bytes from which on `bytes` applies to a case as declared,
            except for one more sector per request. None limits the largest case only. Cases at the stated limits of a
            size are exempt.
        edges: The share of the sectors that single requests may scatter on the other cases. None sets no limit there,
            because a compiler and not the learner decides which thread takes which element.
        same_address: The lanes of an atomic request with one address, averaged over the requests of any line's atomics
            on one tensor; 1.0 if all addresses differ. The limit applies to every case. In shared memory such lanes
            cost wavefronts, which `bank_conflicts` limits.
        shared: The wavefronts of shared memory, loads and stores, over the cycles that the case's operations take an SM
            of Hopper, which does 128 multiply-adds and one wavefront per cycle. Above 1.0, shared memory bounds the
            kernel.
        asynchronous: The minimum share of the bytes stored to shared memory that copies from global memory (cp.async)
            must write. These copies need no registers.
        bulk: The minimum share of the bytes in global memory that bulk and tensor copies (TMA) must move.
    """

    sectors: float | None = limit(
        "Each load or store may touch at most {:g} times the sectors that its bytes require.",
        lambda factor: factor >= 1,
    )
    bytes: float | None = limit(
        "In total, global memory accesses may move at most {:g} times the size of the inputs and outputs.",
        lambda factor: factor >= 1,
    )
    large: float | None = None
    edges: float | None = 0.02
    bank_conflicts: float | None = limit(
        "Bank conflicts may add at most {:g} wavefront{s} per request.", lambda wavefronts: wavefronts >= 0
    )
    shared: float | None = limit(
        "Shared memory accesses may take at most {:g} wavefront{s} per 128 multiply-adds (one cycle of an SM).",
        lambda wavefronts: wavefronts > 0,
    )
    same_address: float | None = limit(
        "On average, at most {:g} lane{s} of an atomic may target the same address.", lambda lanes: lanes >= 1
    )
    asynchronous: float | None = limit(
        "At least {:.0%} of the bytes stored to shared memory must come from cp.async.",
        lambda share: 0 < share <= 1,
    )
    bulk: float | None = limit(
        "At least {:.0%} of the global memory traffic must go through TMA.", lambda share: 0 < share <= 1
    )

    def __post_init__(self) -> None:
        check_limits("traffic: ", self)
        require(self.large is None or self.bytes is not None, f"traffic: large={self.large} limits no bytes")


@dataclass(frozen=True)
class Instructions:
    """Limits on the instructions of a kernel. They apply to the largest case, whose rows allow 16-byte accesses.

    Attributes:
        access_bytes: The minimum width of a lane's access to global memory. Edges may add 2% more accesses than the
            bytes need.
        integer: The maximum number of integer instructions per output element. PTX is counted, with a division as the
            many instructions that ptxas generates for it.
        special: The maximum number of special functions per output element, which are the exponentials of an attention
            kernel: one for each score that it computes, also where a mask hides the score.
        registers_only: Require a kernel without a stack frame and spills, for the kernel that executes most.
    """

    access_bytes: int | None = limit(
        "Each thread must load and store {} bytes at a time.", lambda width: width in (2, 4, 8, 16)
    )
    integer: float | None = limit(
        "The kernel may execute at most {:g} integer instructions per output element.", lambda number: number > 0
    )
    special: float | None = limit(
        "The kernel may evaluate at most {:g} special functions (such as exponentials) per output element.",
        lambda number: number > 0,
    )
    registers_only: bool = False

    def __post_init__(self) -> None:
        check_limits("instructions: ", self)


@dataclass(frozen=True)
class Network:
    """Limits on the communication of ranks, counted and timed on the simulated links of course.labs.fabric.

    Attributes:
        links: The links of every rank.
        bytes: `bytes(**case)`, the maximum that a rank may send in messages and pass to collectives.
        least: `least(**case)`, the bytes that a rank must receive in messages and from collectives, since it cannot
            know them otherwise.
        seconds: `seconds(**case)`, the maximum simulated duration of a call.
        hidden: The minimum share of the collectives' time that overlaps with compute, on the largest case.
        collectives: The functions of torch.distributed that the statement allows, besides the barrier.
        ring_messages: `ring_messages(**case)`, the number of messages that each rank may send if all of them must go to
            a neighbor on the ring of ranks; None if messages may go to any rank.
    """

    links: Links = NVLINK
    bytes: Callable[..., int] | None = None
    least: Callable[..., int] | None = None
    seconds: Callable[..., float] | None = None
    hidden: float = 0.0
    collectives: tuple[str, ...] = ()
    ring_messages: Callable[..., range | None] | None = None


# Operations per byte from which arithmetic, and not memory, may bound a kernel on any GPU of the course.
COMPUTE_BOUND = 10.0

# The name of a fault that the PTX machine cannot see: the kernel is well defined and computes something else.
WRONG_VALUES_FAULT = "WrongValues"


@dataclass(frozen=True)
class BrokenKernel:
    """A kernel with a fault, which the learner has to name and to repair.

    Attributes:
        faults: The names of warpcheck's exceptions that the kernel raises as it is given, such as "Race", or
            WRONG_VALUES_FAULT. There are several if the order of warps and blocks decides which fault shows first.
        changes: The maximum number of statements that the repair may change.
    """

    faults: tuple[str, ...]
    changes: int

    def __post_init__(self) -> None:
        require(self.changes > 0, f"changes: a repair that changes {self.changes} statements repairs nothing")


@dataclass(frozen=True)
class Exercise:
    """One exercise: the submission's function `entry` takes the problem's input tensors and returns new tensors.

    Attributes:
        entry: The name of the function that the submission defines.
        problem: The operator. Its inputs, reference, tolerance, bytes, flops and vary are accessible through the
            exercise.
        cases: The exercise's own cases, instead of the problem's, with the reason beside them.
        limits: The exercise's own cases at limits, instead of the problem's.
        gpu_limits: The exercise's own cases at limits on a GPU, instead of the problem's.
        aligned: Whether the statement promises that every tensor begins at a multiple of 16 bytes. If not, each of them
            is also passed misaligned.
        any_size: Whether the problem's far cases are run; False if the statement promises fewer than 2**31 elements.
        bench: The case that is timed; its working set is well past L2.
        sweep: Further cases that `kp bench` times: a kernel should be fast over a range of shapes, not at one size.
        baseline: `baseline(*inputs)`, which the submission's time is compared with; None if time is not graded.
        min_speedup: The minimum ratio of the baseline's time to the submission's.
        traffic: Limits that apply on every device.
        workspace: The maximum device memory that a call may hold besides its inputs and outputs, over the compulsory
            bytes of the case; None for no limit. It applies to the largest case and, on a GPU, to the bench case.
        active_lanes: The minimum number of active lanes in the average instruction of a warp, over the whole call (ncu:
            smsp__thread_inst_executed_per_inst_executed.ratio). It applies to the largest case and to cases of at least
            half its bytes, whose warps are full.
        instructions: Limits on the width of accesses, on index arithmetic, and on local memory.
        requires: The minimum compute capability such as (9, 0), or None.
        specific: Whether the statement requires features that only the architecture of `requires` has, such as wgmma of
            sm_90a, so that a later GPU does not run it.
        arch: The architecture that the PTX machine emulates without a GPU: "sm_80", "sm_90a" with clusters, TMA and
            wgmma, or "sm_100a" with tensor memory and tcgen05.
        kind: How the exercise is graded. "kernel" launches kernels of its own. "operator" does so in an operator of
            torch.library with a gradient: its entry takes x, the problem's inputs are x and the gradient of the output,
            its outputs are the output and the gradient of x, and its first case shows how it is registered. "repair"
            gives kernels that have a fault: the first argument of the entry names a kernel. "program" is a program in
            CUDA C++ with its host code, whose copies are launches on the PTX machine; a GPU runs it as well. "library"
            has the kernels in a package, and the entry comes from the package's wheel. "lab" uses a simulated device
            among its inputs. Of "python" only the result is graded. "trace" reports on files: its inputs are
            traces.TraceFile and strings, and its reference returns facts by name. "distributed" runs in a process for
            each of case["world"] ranks: each gets its row of every input tensor, and the outputs are those of all
            ranks.
        network: Limits on the communication of the ranks of kind "distributed".
        block: The threads of a block, x first, if the statement prescribes them.
        multiprocessors: The number of multiprocessors of the simulated GPU, without a GPU. With few of them, a
            persistent block gets several tiles of a small case, and few blocks are resident at once. None selects the
            number of the target's GPU.
        tensor_cores: Whether the statement requires tensor cores. A call fails if its mma instructions cannot have
            performed a quarter of the case's operations.
        overlap: The minimum share of the wgmma or tcgen05.mma of the largest case that are issued while a bulk copy to
            the shared memory of their block or cluster is in flight, in the order of events of the PTX machine.
        cutlass_gemms: Whether the statement asks for a GEMM that is composed of CUTLASS's. Submissions to other
            exercises in CUDA C++ may include CUTLASS's headers, but not those of its GEMMs and convolutions.
        measures_reads: Whether the exercise's own module of graders needs `Observation.most_read` of the largest case.
        launches: The maximum number of kernels that a call may launch; None for no limit.
        ranks: Whether the blocks with one y coordinate are a rank, which would be a launch of its own on several GPUs.
            On the PTX machine, a rank has to wait for all writes of others to its memory before it ends. A table of
            addresses, one for each rank, names that memory.
        products: Whether the statement allows torch.mm for matrix products. It then does not count as a library's
            operator, and on the PTX machine a kernel of the grader computes it.
        deterministic: Whether the statement promises the same bits for the same inputs. Every case is then run
            repeatedly with the problem's unordered inputs, on the PTX machine with warps and blocks in other orders.
        gradients_of: The names of an operator's arguments, all of which get a gradient. The problem's inputs are these
            and then a gradient for each output of the entry, its outputs are the entry's outputs and then the
            gradients.
        library: The package of the kind "library", with its requirements.
        repairs: The kernels of the kind "repair", by name, in the order of their cases.
        spills: The reason why a reference kernel has a stack frame or spills, and since which compiler: a rare
            exception, which `kp dev check` otherwise reports.
        without: Modules that solve the exercise by themselves. The submission cannot import them.
        check: `check(inputs, outputs)` returns None or what is wrong in the exercise's words, as a text for
            WRONG_VALUES or as a Finding. It is called if shapes and dtypes are right, even if the values are right,
            and its text replaces the list of wrong elements.

    Raises DeclarationError for a field that breaks a rule.
    """

    # What is computed, and in which cases.
    entry: str
    problem: Problem
    cases: Sequence[Case] = ()
    limits: Sequence[Case] = ()
    gpu_limits: Sequence[Case] = ()
    aligned: bool = False
    any_size: bool = True
    # What is timed on a GPU.
    bench: Case | None = None
    sweep: Sequence[Case] = ()
    baseline: Callable[..., Any] | None = None
    min_speedup: float = 1.0
    # What is counted on the PTX machine.
    traffic: Traffic = field(default_factory=Traffic)
    workspace: float | None = limit(
        "Any workspace may be at most {:g} times the size of the inputs and outputs.", lambda factor: factor >= 0
    )
    active_lanes: float | None = limit(
        "On average, an instruction must have at least {:g} active lanes.", lambda lanes: 0 < lanes <= 32
    )
    instructions: Instructions = field(default_factory=Instructions)
    # Which machine runs it, and which grader grades it.
    requires: tuple[int, int] | None = None
    specific: bool = False
    arch: str = "sm_80"
    kind: Kind = "kernel"
    network: Network = field(default_factory=Network)
    block: tuple[int, int, int] | None = None
    multiprocessors: int | None = None
    cutlass_gemms: bool = False
    measures_reads: bool = False
    # What the kernels have to use, and may use.
    overlap: float | None = limit(
        "At least {:.0%} of the MMAs must be issued while a copy of the next tiles is in flight.",
        lambda share: 0 < share <= 1,
    )
    tensor_cores: bool = limit("The multiply-adds must run on tensor cores.", default=False)
    launches: int | None = limit("A call may launch at most {:g} kernel{s}.", lambda launches: launches > 0)
    ranks: bool = False
    products: bool = False
    deterministic: bool = False
    # What only some kinds of exercises have.
    gradients_of: tuple[str, ...] = ("x",)
    library: Library | None = None
    repairs: Mapping[str, BrokenKernel] = field(default_factory=dict)
    spills: str = ""
    without: Sequence[str] = ()
    check: Callable[[Sequence[Any], Sequence[torch.Tensor]], str | Finding | None] | None = None

    def __post_init__(self) -> None:
        # The class is frozen, so these assignments bypass its __setattr__.
        object.__setattr__(self, "cases", self.cases or self.problem.cases)
        object.__setattr__(self, "limits", self.limits or self.problem.limits)
        object.__setattr__(self, "gpu_limits", self.gpu_limits or self.problem.gpu_limits)
        require(self.entry.isidentifier(), f"entry: {self.entry!r} is not the name of a function")
        check_cases(self.cases, self.vary)
        # A time means nothing without one to compare it with, and a baseline is called with the bench case.
        require((self.bench is None) == (self.baseline is None), "bench and baseline: declare both or neither")
        require(not self.sweep or self.bench is not None, "sweep: it needs bench and baseline")
        for name in ("limits", "gpu_limits", "sweep"):
            check_same_arguments(name, getattr(self, name), self.cases[0])
        require(self.arch in ARCHITECTURES, f"arch: {self.arch!r} is none of {', '.join(ARCHITECTURES)}")
        # The PTX machine must have whatever the statement requires of a GPU.
        capability = ARCHITECTURES[self.arch]
        require(
            (self.requires or capability) <= capability, f"arch: {self.arch} has less than requires={self.requires}"
        )
        require(not self.specific or self.requires is not None, "specific: declare the architecture in requires")
        check_limits("", self)
        require(self.multiprocessors is None or self.multiprocessors > 0, "multiprocessors: there is at least one")
        require(self.traffic.shared is None or self.flops is not None, "traffic: shared needs the problem's flops")
        ordered = not self.deterministic or self.problem.unordered is not None
        require(ordered, "deterministic: declare the problem's unordered inputs")
        require((self.kind == "library") == (self.library is not None), "library: it goes with the kind")
        require((self.kind == "repair") == bool(self.repairs), "repairs: they go with the kind")
        if self.repairs:
            # Each given kernel runs in some case; otherwise its repair would never be tested.
            in_cases = {case.get("kernel") for case in self.cases}
            require(in_cases == set(self.repairs), f"repairs: the cases run {in_cases}")
        require(self.min_speedup > 0, f"min_speedup: {self.min_speedup} is not positive")
        has_dtype = self.ceiling_dtype is not None or not self._is_compute_bound
        require(has_dtype, "product_dtype: operations may bound the bench case; declare it in the problem")

    @property
    def inputs(self) -> Callable[..., tuple[Any, ...]]:
        return self.problem.inputs

    @property
    def reference(self) -> Callable[..., Any]:
        return self.problem.reference

    @property
    def tolerance(self) -> Mapping[str, Tolerance]:
        return self.problem.tolerance

    @property
    def compulsory_bytes(self) -> Callable[..., int]:
        return self.problem.compulsory_bytes

    @property
    def flops(self) -> Callable[..., int] | None:
        return self.problem.flops

    @property
    def ceiling_dtype(self) -> str | None:
        """Return the dtype of the library's matrix product whose rate bounds the operations of the bench case.

        None if the case has few operations per byte, so that only its bytes bound the time.
        """
        if self.bench is None or not self._is_compute_bound:
            return None
        # The dtype of an output says nothing about the products: float32 losses follow from bfloat16 matrices.
        dtype: str | None = self.bench.get("dtype", self.problem.product_dtype)
        return dtype

    @property
    def _is_compute_bound(self) -> bool:
        if self.bench is None or self.flops is None:
            return False
        return self.flops(**self.bench) >= COMPUTE_BOUND * self.compulsory_bytes(**self.bench)

    @property
    def outputs(self) -> tuple[str, ...]:
        return self.problem.outputs

    @property
    def asynchronous_mma(self) -> str:
        """Return the instruction of the architecture whose tensor cores read shared memory by themselves."""
        return "tcgen05.mma" if self.arch == "sm_100a" else "wgmma"

    def overwritten(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """Return those of the inputs that a call overwrites, which are then its outputs."""
        return self.problem.in_place(*inputs) if self.problem.in_place is not None else ()

    @property
    def vary(self) -> tuple[str, ...]:
        return self.problem.vary

    def describe_limits(self) -> str:
        """Return the paragraph of the statement that says what is counted and what is allowed; empty without limits."""
        return describe_limits(arguments(self.largest), self.traffic, self.instructions, self)

    @property
    def largest(self) -> Case:
        """Return the case with the most compulsory bytes, except for the limits."""
        return max(self.cases, key=lambda case: self.compulsory_bytes(**case))

    @property
    def far(self) -> Sequence[Case]:
        return self.problem.far if self.any_size else ()

    @property
    def is_kernel(self) -> bool:
        return self.kind in ("kernel", "operator", "library", "repair", "program")

    @property
    def runs_on_gpu(self) -> bool:
        """Return whether a GPU runs the exercise's kernels instead of the PTX machine.

        Kernels to be repaired run on the PTX machine alone, and a program runs there also where there is a GPU.
        """
        return self.is_kernel and self.kind not in ("repair", "program")
