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
from kernelpath.course.problem import Case, Problem, Tolerance, check_cases, check_same_arguments
from kernelpath.verdict import Finding

if TYPE_CHECKING:
    import torch

Kind = Literal["kernel", "operator", "python", "library", "lab", "distributed", "trace"]


ARCHITECTURES = {"sm_80": (8, 0), "sm_90a": (9, 0)}
"""The architectures that the PTX machine emulates, with their compute capability: the names of simt.TARGETS."""


@dataclass(frozen=True)
class Traffic:
    """Limits on what a kernel may ask of the memory system, counted without a GPU.

    They hold on the largest case. On every other one `grading.traffic` leaves room for tiles that are partial, and for
    bytes that are asked for twice; `large` says where that room for bytes ends.

    Attributes:
        sectors: 32-byte sectors over the least that the lanes' bytes need, for any line's loads from one tensor
            or stores to it; lines that exceed it may waste 2% of all sectors.
            1.0 is perfectly coalesced at every access width; a column of float32 reaches 8.0.
        bank_conflicts: shared-memory wavefronts beyond the minimum, per request, for any line's loads or stores.
        edges: the share of the sectors that single requests may scatter on the other cases; None where nothing is
            limited there, because a compiler and not the learner decides which thread takes which element.
        bytes: bytes asked for in global memory (sectors times 32, loads and stores) over the compulsory bytes of the
            case.
        large: the share of the largest case's compulsory bytes from which on a case is held to `bytes` as declared, but
            for a sector more with each request; None where that is the largest alone. The stated limits of a size are
            not held.
        same_address: the most lanes of an atomic request that meet at one address, on average over the requests of any
            line's atomics on one tensor; 1.0 where none meet. It holds on every case. In shared memory the lanes that
            meet cost wavefronts, which bank_conflicts limits.
        shared: wavefronts of shared memory, loads and stores, over the cycles that the case's operations take an SM of
            Hopper: 128 multiply-adds each, beside one wavefront. Above 1.0, shared memory bounds the kernel.
        asynchronous: the least share of what is stored to shared memory that copies from global memory have to bring
            (cp.async), which need no register meanwhile.
        bulk: the least share of the bytes in global memory that bulk and tensor copies have to move (TMA).
    """

    sectors: float | None = None
    bank_conflicts: float | None = None
    bytes: float | None = None
    large: float | None = None
    edges: float | None = 0.02
    same_address: float | None = None
    shared: float | None = None
    asynchronous: float | None = None
    bulk: float | None = None

    @property
    def limited(self) -> bool:
        """Return whether anything is limited."""
        limits = (self.sectors, self.bank_conflicts, self.bytes, self.same_address, self.shared)
        return any(limit is not None for limit in (*limits, self.asynchronous, self.bulk))

    def __post_init__(self) -> None:
        for name, minimum in (("sectors", 1.0), ("bank_conflicts", 0.0), ("bytes", 1.0), ("same_address", 1.0)):
            limit = getattr(self, name)
            require(limit is None or limit >= minimum, f"traffic: {name}={limit} is below {minimum}, out of reach")
        require(self.large is None or self.bytes is not None, f"traffic: large={self.large} limits no bytes")


@dataclass(frozen=True)
class Instructions:
    """Limits on the instructions of a kernel. They hold on the largest case, whose rows serve 16-byte accesses.

    Attributes:
        access_bytes: the least that an instruction loads or stores for each lane in global memory. 2% more accesses
            than the bytes need are allowed, for edges.
        integer: the most instructions of integers that are executed for each element of the outputs. PTX is counted,
            with a division as the many that ptxas makes of it.
        registers_only: ptxas must find place for everything in registers: no stack frame and no spills, in the kernel
            that executes most.
    """

    access_bytes: int | None = None
    integer: float | None = None
    registers_only: bool = False

    def __post_init__(self) -> None:
        require(self.access_bytes in (None, 2, 4, 8, 16), f"instructions: access_bytes={self.access_bytes} is no width")
        require(self.integer is None or self.integer > 0, f"instructions: integer={self.integer} is not positive")


@dataclass(frozen=True)
class Fusion:
    """A second function of the submission, of tensors, for which torch.compile has to write few kernels and one graph.

    Attributes:
        entry: its name. inputs, cases, reference: as those of a problem; one tensor is returned. launches: the most
            kernels. It is compiled for a GPU and need not run there.
    """

    entry: str
    inputs: Callable[..., tuple[torch.Tensor, ...]]
    cases: Sequence[Case]
    reference: Callable[..., torch.Tensor]
    tolerance: Tolerance
    launches: int = 1


@dataclass(frozen=True)
class Network:
    """Limits on what ranks exchange, counted and timed on the simulated links of course.labs.fabric.

    Attributes:
        links: of every rank. bytes: `bytes(**case)`, the most that a rank may send in messages and give to collectives.
        least: `least(**case)`, the bytes that a rank receives in messages and from collectives at least, since it
            cannot know them otherwise. seconds: `seconds(**case)`, the most that a call may take there. hidden: the
            least share of the collectives' time that passes behind compute, on the largest case. collectives: those of
            torch.distributed that the statement allows, besides the barrier. ring_messages: `ring_messages(**case)`,
            how many messages each rank may send where all of them must go to a neighbor on the ring of ranks; None
            where messages may go to any rank.
    """

    links: Links = NVLINK
    bytes: Callable[..., int] | None = None
    least: Callable[..., int] | None = None
    seconds: Callable[..., float] | None = None
    hidden: float = 0.0
    collectives: tuple[str, ...] = ()
    ring_messages: Callable[..., range | None] | None = None


@dataclass(frozen=True)
class Exercise:
    """One exercise. The submission's function `entry` takes the tensors of the problem's inputs, returns new tensors.

    Attributes:
        entry: name of the function that the submission defines.
        problem: the operator; its inputs, reference, tolerance, bytes, flops and vary are read through the exercise.
        cases, limits, gpu_limits: cases of its own, in place of the problem's, with the reason beside them.
        aligned: the statement promises that every tensor begins at a multiple of 16 bytes. Otherwise each of them is
            also given one that does not.
        any_size: whether the problem's far cases are run; False where the statement promises fewer than 2**31 elements.
        bench: the case that is timed; its working set is well past L2.
        sweep: further cases that `kp bench` times: a kernel should be fast over a range of shapes, not at one size.
        baseline: `baseline(*inputs)`, what the submission races; None where time is not graded.
        min_speedup: the least ratio of the baseline's time to the submission's.
        traffic: limits that hold on every device.
        workspace: the most device memory that a call may hold at once beside its inputs and outputs, over the
            compulsory bytes of the case; None where that is free. It holds on the largest case and, on a GPU, on the
            bench case.
        active_lanes: the fewest of a warp's 32 lanes that may be active in its average instruction, over the whole call
            (ncu: smsp__thread_inst_executed_per_inst_executed.ratio). It holds on the largest case and on those of at
            least half its bytes, whose warps are full.
        instructions: limits on how wide accesses are, on index arithmetic, and on local memory.
        requires: least compute capability such as (9, 0), or None.
        specific: the statement asks for what the architecture of `requires` alone has, as wgmma of sm_90a: a later GPU
            does not run it.
        arch: what the PTX machine stands for where there is no GPU: "sm_80" or "sm_90a", which has clusters, TMA and
            wgmma.
        kind: how it is graded: "kernel" launches kernels of its own, "operator" does so behind an operator of
            torch.library with a gradient (its entry takes x; the problem's inputs are x and the gradient of the output,
            its outputs the output and the gradient of x; its first case shows how it is registered), "library" has them
            in a package, from the wheel of which the entry gets them, "lab" uses a simulated device among its inputs,
            of "python" the result alone is graded, "trace" reports on files: its inputs are traces.TraceFile and
            strings, its reference gives facts by name. "distributed" runs in a process for each of case["world"] ranks:
            each gets its row of every tensor among the inputs, and the outputs are those of all ranks.
        network: limits on what the ranks of kind "distributed" exchange.
        block: the threads of a block, x first, where the statement prescribes them.
        multiprocessors: how many host code sees on the PTX machine where there is no GPU. With few of them, a
            persistent block gets several tiles of a small case; None for as many as the target's GPU has.
        tensor_cores: the statement asks for tensor cores; a call whose mma instructions cannot have made a quarter of
            the case's operations fails.
        launches: the most kernels that a call may launch; None where that is free.
        products: the statement leaves matrix products to torch.mm. It is no operator of a library's then, and on the
            PTX machine a kernel of ours makes them.
        deterministic: the statement promises the same bits for the same inputs. Every case is then run with the
            problem's unordered inputs again and again, on the PTX machine with warps and blocks in other orders.
        fusion: another function, which is graded by compiling it; in exercises of the kind "trace".
        gradients_of: of an operator the names of the entry's arguments, all of which get a gradient; the problem's
            inputs are those and then a gradient for each output of the entry, its outputs those and then the gradients.
        library: of the kind "library" the package, and what is held against it.
        spills: why a reference kernel has a stack frame or spills all the same, and since which compiler: a rare
            exception, which `kp dev check` otherwise reports.
        without: modules that answer the exercise by themselves. The submission cannot import them.
        check: `check(inputs, outputs)` gives None or what is wrong in the words of the exercise, as WRONG_VALUES, or as
            the Finding that it is. It is asked where shapes and dtypes are right, of right values too; what it says
            stands in place of the list of wrong elements.

    Raises DeclarationError for a field that breaks a rule.
    """

    entry: str
    problem: Problem
    cases: Sequence[Case] = ()
    limits: Sequence[Case] = ()
    gpu_limits: Sequence[Case] = ()
    aligned: bool = False
    any_size: bool = True
    bench: Case | None = None
    sweep: Sequence[Case] = ()
    baseline: Callable[..., Any] | None = None
    min_speedup: float = 1.0
    traffic: Traffic = field(default_factory=Traffic)
    workspace: float | None = None
    active_lanes: float | None = None
    instructions: Instructions = field(default_factory=Instructions)
    requires: tuple[int, int] | None = None
    specific: bool = False
    arch: str = "sm_80"
    kind: Kind = "kernel"
    network: Network = field(default_factory=Network)
    block: tuple[int, int, int] | None = None
    multiprocessors: int | None = None
    tensor_cores: bool = False
    launches: int | None = None
    products: bool = False
    deterministic: bool = False
    fusion: Fusion | None = None
    gradients_of: tuple[str, ...] = ("x",)
    library: Library | None = None
    spills: str = ""
    without: Sequence[str] = ()
    check: Callable[[Sequence[Any], Sequence[torch.Tensor]], str | Finding | None] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "cases", self.cases or self.problem.cases)
        object.__setattr__(self, "limits", self.limits or self.problem.limits)
        object.__setattr__(self, "gpu_limits", self.gpu_limits or self.problem.gpu_limits)
        require(self.entry.isidentifier(), f"entry: {self.entry!r} is not the name of a function")
        check_cases(self.cases, self.vary)
        require((self.bench is None) == (self.baseline is None), "bench and baseline: declare both or neither")
        require(not self.sweep or self.bench is not None, "sweep: it needs bench and baseline")
        for name in ("limits", "gpu_limits", "sweep"):
            check_same_arguments(name, getattr(self, name), self.cases[0])
        require(self.arch in ARCHITECTURES, f"arch: {self.arch!r} is none of {', '.join(ARCHITECTURES)}")
        capability = ARCHITECTURES[self.arch]
        require(
            (self.requires or capability) <= capability, f"arch: {self.arch} has less than requires={self.requires}"
        )
        require(not self.specific or self.requires is not None, "specific: declare the architecture in requires")
        require(self.workspace is None or self.workspace >= 0, f"workspace: {self.workspace} is negative")
        require(self.multiprocessors is None or self.multiprocessors > 0, "multiprocessors: there is at least one")
        lanes = self.active_lanes
        require(lanes is None or 0 < lanes <= 32, f"active_lanes: {lanes} is not between 0 and 32")
        require(self.traffic.shared is None or self.flops is not None, "traffic: shared needs the problem's flops")
        ordered = not self.deterministic or self.problem.unordered is not None
        require(ordered, "deterministic: declare the problem's unordered inputs")
        require((self.kind == "library") == (self.library is not None), "library: it goes with the kind")
        require(self.min_speedup > 0, f"min_speedup: {self.min_speedup} is not positive")

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
    def outputs(self) -> tuple[str, ...]:
        return self.problem.outputs

    def overwritten(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """Return those of the inputs that a call overwrites, which are then its outputs."""
        return self.problem.in_place(*inputs) if self.problem.in_place is not None else ()

    @property
    def vary(self) -> tuple[str, ...]:
        return self.problem.vary

    @property
    def largest(self) -> Case:
        """Return the case with the most compulsory bytes, except for the limits."""
        return max(self.cases, key=lambda case: self.compulsory_bytes(**case))

    @property
    def far(self) -> Sequence[Case]:
        return self.problem.far if self.any_size else ()

    @property
    def is_kernel(self) -> bool:
        return self.kind in ("kernel", "operator", "library")
