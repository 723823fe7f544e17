"""Simulate a GPU that answers with recorded times: the cost of tuning a kernel on it, and the gain (w09c_autotune).

The kernel is c += a @ w.T of benchmarks/tuning.py, whose times an H200 has recorded for every configuration of a space
and for many sizes. A launch takes the recorded time, and so do compiling and measuring. The effect of a launch on c is
tracked as well: how often the product was added, whether the previous contents are intact, and whether the
configuration was right for the size.

Tuning is graded on this device and on no other, with a GPU and without one: the PTX machine has no time, and on a real
GPU an exhaustive search over 144 configurations takes a minute or more, and differs from run to run. Triton's own
autotuner runs here, with the learner's decorator: only the launch and do_bench are replaced (device/lab_tuning).
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import torch

from kernelpath.course.labs import Lab

# The recording, which a submission, as it works with the labs, cannot read.
RECORD = Path(__file__).parents[1] / "records" / "tuning.json"

# The limit of compiling and measuring in one call of the entry.
BUDGET_SECONDS = 50.0

# The limit of a launch's time over the best configuration's for its size, averaged over a day's requests.
SLOWER_AT_MOST = 1.05

# The requests that a day must have for its mean to count.
#
# The sizes of a class share one configuration: for one of them it is 22% slower than the best, on average within 1%.
AVERAGED = 50


@dataclass(frozen=True)
class Size:
    """The size of a GEMM: a (M, K) and w (N, K) of the dtype, c (M, N) float32."""

    dtype: str
    M: int
    N: int
    K: int

    def __str__(self) -> str:
        return f"M={self.M} N={self.N} K={self.K} {self.dtype}"


@dataclass(frozen=True)
class Recording:
    """The recorded times.

    Attributes:
        configurations: All of the space, each with a value for every one of `names`.
        seconds: The times by size, in the order of the configurations; None for a configuration that needs more shared
            memory than a block may have.
        shared: The bytes of shared memory, by dtype.
    """

    names: tuple[str, ...]
    configurations: Sequence[tuple[int, ...]]
    seconds: Mapping[Size, Sequence[float | None]]
    shared: Mapping[str, Sequence[int]]
    compile_seconds: float
    bench_seconds: float

    def right(self, size: Size, index: int) -> bool:
        """Return whether this configuration computes all of the sum. The kernel masks M and N, but not K."""
        values = dict(zip(self.names, self.configurations[index], strict=True))
        return size.K % (values["BLOCK_K"] * values["SPLIT_K"]) == 0

    def best(self, size: Size) -> float:
        """Return the seconds of the fastest configuration that is right for the size."""
        return min(
            seconds
            for index, seconds in enumerate(self.seconds[size])
            if seconds is not None and self.right(size, index)
        )


@cache
def recording() -> Recording:
    content = json.loads(RECORD.read_text())
    seconds = {
        Size(entry["dtype"], entry["M"], entry["N"], entry["K"]): [x and 1e-6 * x for x in entry["microseconds"]]
        for entry in content["sizes"]
    }
    return Recording(
        names=tuple(content["space"]),
        configurations=[*itertools.product(*content["space"].values())],
        seconds=seconds,
        shared=content["shared"],
        compile_seconds=content["compile_seconds"],
        bench_seconds=min(content["do_bench_seconds"].values()),
    )


@dataclass
class Content:
    """The state of a matrix (rows, columns): how often the product was added, and what else is true.

    Attributes:
        is_preserved: Whether the initial contents are intact.
        why: Why a result is wrong; empty if it is right.
    """

    shape: tuple[int, int]
    sums: int = 0
    is_preserved: bool = True
    why: str = ""


@dataclass
class TuningUsage:
    """The use of the device.

    Attributes:
        wrong: The first request whose c is wrong, and why.
        first_remeasured: The first size that was measured twice with the same configuration.
        seconds: The time of compiling and measuring.
        measured: The number of measurements.
        slower: For each request, its time over the best configuration's; 0 if it was not launched.
        chosen: The configurations of each request's launches that count.
    """

    wrongs: int = 0
    wrong: str = ""
    remeasured_sizes: int = 0
    first_remeasured: str = ""
    compiled: int = 0
    measured: int = 0
    seconds: float = 0.0
    slower: list[float] = field(default_factory=list)
    chosen: list[list[int]] = field(default_factory=list)

    @property
    def ledger(self) -> list[int]:
        """Return wrong results, sizes tuned again, seconds over the budget, percent over the best; all rounded up."""
        over = max(0, math.ceil(self.seconds - BUDGET_SECONDS))
        mean = sum(self.slower) / max(1, len(self.slower))
        too_slow = len(self.slower) >= AVERAGED and mean > SLOWER_AT_MOST
        return [self.wrongs, self.remeasured_sizes, over, math.ceil(100 * (mean - 1)) if too_slow else 0]


class TooMuchShared(Exception):
    """A configuration needs more shared memory than a block may have. The argument is its bytes."""


class NotRecorded(Exception):
    """A configuration is outside of the space, or operands are not of one request."""


class RecordedGpu(Lab):
    """A GPU for requests: the products to be added, each to a c of its own.

    Matrix 3i is a of request i, 3i + 1 is w, 3i + 2 is c.
    """

    def __init__(self, device: str, requests: Sequence[Size]) -> None:
        self.device = device
        self.requests = tuple(requests)
        self.record = recording()
        self.spent = TuningUsage(slower=[0.0] * len(requests), chosen=[[] for _ in requests])
        self._places = {configuration: index for index, configuration in enumerate(self.record.configurations)}
        self._contents: dict[int, Content] = {}
        for index, size in enumerate(requests):
            for part, shape in enumerate(((size.M, size.K), (size.N, size.K), (size.M, size.N))):
                self._contents[3 * index + part] = Content(shape)
        self._compiled: set[tuple[str, int]] = set()
        self._tuned: set[tuple[Size, int]] = set()
        self._twice: set[Size] = set()
        self._measuring: float | None = None
        self._began = False

    def launch(
        self, operands: Sequence[int], sizes: Sequence[int], configuration: Sequence[int], grid: Sequence[int]
    ) -> None:
        """Simulate c += a @ w.T. Raises TooMuchShared and NotRecorded.

        A program without a tile does nothing.

        Args:
            operands: The numbers of a, w, c.
            sizes: M, N, K as passed.
            grid: The programs in x, y, z.
        """
        a, w, c = operands
        index = a // 3
        if a % 3 or w != a + 1 or not 0 <= index < len(self.requests) or c not in self._contents:
            raise NotRecorded("a and w are not the operands of one request")
        size = self.requests[index]
        index_of_configuration = self._places.get(tuple(configuration))
        if index_of_configuration is None:
            raise NotRecorded(f"{self.describe(configuration)} is not in the space")
        if self._contents[c].shape != (size.M, size.N):
            raise NotRecorded("c does not have the shape of the product")
        if (size.dtype, index_of_configuration) not in self._compiled:
            # A compiled kernel serves all sizes of a dtype.
            self._compiled.add((size.dtype, index_of_configuration))
            self.spent.compiled += 1
            self.spent.seconds += self.record.compile_seconds
        seconds = self.record.seconds[size][index_of_configuration]
        if seconds is None:
            raise TooMuchShared(self.record.shared[size.dtype][index_of_configuration])
        content = self._contents[c]
        content.sums += 1
        content.why = content.why or self._fault(size, sizes, index_of_configuration, grid)
        # Numbers from 3 * len(requests) on are copies, to which measuring may add the product.
        if c != a + 2 and c // 3 < len(self.requests):
            content.why = f"the product of request {index} was added to it"
        if self._measuring is not None:
            self._measured(size, index_of_configuration, seconds)
        else:
            # The slowest launch of a request counts, so that a fast one afterwards does not hide it.
            self.spent.slower[index] = max(self.spent.slower[index], seconds / self.record.best(size))
            self.spent.chosen[index] = list(configuration)

    def bench(self, begins: bool) -> float:
        """Begin to measure, or end it and return the milliseconds of the launches since; infinity without any."""
        if begins:
            self._measuring = math.inf
            self._began = True
            return 0.0
        seconds = self._measuring
        self._measuring = None
        return math.inf if seconds is None else 1e3 * seconds

    def zero(self, matrix: int) -> None:
        self._contents[matrix] = Content(self._contents[matrix].shape, is_preserved=False)

    def clone(self, matrix: int) -> int:
        """Copy a matrix, and return the number of the copy."""
        number = len(self._contents)
        # The attributes are copied, so that a later launch on one of the two matrices does not change the other.
        self._contents[number] = Content(**vars(self._contents[matrix]))
        return number

    def copy(self, target: int, source: int) -> None:
        self._contents[target] = Content(**vars(self._contents[source]))

    def report(self) -> TuningUsage:
        """Return the use of the device, with the results judged as they are now."""
        faults = [self._judged(index) for index in range(len(self.requests))]
        self.spent.wrongs = sum(map(bool, faults))
        self.spent.wrong = next(filter(None, faults), "")
        return self.spent

    def graded(self, outputs: Sequence[torch.Tensor], device_outputs: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        """Return the ledger as it is."""
        return [torch.tensor(self.spent.ledger, device=self.device)]

    def _measured(self, size: Size, index: int, seconds: float) -> None:
        # A measurement launches the same configuration many times, and counts once.
        if self._began:
            self.spent.measured += 1
            self.spent.seconds += self.record.bench_seconds
            if (size, index) in self._tuned:
                self._twice.add(size)
                self.spent.remeasured_sizes = len(self._twice)
                self.spent.first_remeasured = self.spent.first_remeasured or str(size)
            self._tuned.add((size, index))
        self._began = False
        self._measuring = seconds

    def _fault(self, size: Size, sizes: Sequence[int], index: int, grid: Sequence[int]) -> str:
        """Return why a launch does not compute the product, or ""."""
        values = dict(zip(self.record.names, self.record.configurations[index], strict=True))
        if list(sizes) != [size.M, size.N, size.K]:
            return f"M, N, K were passed as {', '.join(map(str, sizes))}"
        x, y, _ = grid
        tiles = -(-size.M // values["BLOCK_M"]) * -(-size.N // values["BLOCK_N"])
        if x < tiles:
            return f"the grid has {x} programs for {tiles} tiles of {values['BLOCK_M']} x {values['BLOCK_N']}"
        if y != values["SPLIT_K"]:
            return f"the grid has {y} programs for each tile where SPLIT_K={values['SPLIT_K']}"
        if not self.record.right(size, index):
            step = f"BLOCK_K={values['BLOCK_K']} times SPLIT_K={values['SPLIT_K']}"
            return f"K is not a multiple of {step}, so the kernel skips the remaining terms"
        return ""

    def _judged(self, index: int) -> str:
        """Return what is wrong with the c of a request, or ""."""
        content = self._contents[3 * index + 2]
        size = self.requests[index]
        why = content.why
        if not content.sums or not self.spent.slower[index]:
            why = "the product was not added to c"
        elif not content.is_preserved:
            why = "the previous content of c is lost: reset_to_zero clears it, restore_value gives it back"
        elif content.sums > 1:
            why = f"the product was added {content.sums} times: measuring runs the kernel, too"
        return f"request {index}, {size}: {why}" if why else ""

    def describe(self, configuration: Sequence[int]) -> str:
        return " ".join(f"{name}={value}" for name, value in zip(self.record.names, configuration, strict=True))
