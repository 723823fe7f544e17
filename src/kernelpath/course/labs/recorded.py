"""A GPU that answers with recorded times: what tuning a kernel costs on it, and what tuning brings (w09c_autotune).

The kernel is that of benchmarks/tuning.py, c += a @ w.T, whose times an H200 has recorded for every configuration of a
space and for many sizes. A launch takes the recorded time. Compiling and measuring take the time that they took there.
What a launch did to c is known as well: how often the product was added, whether what was there before is still there,
and whether the configuration was right for the size.

Tuning is graded on this device and on no other, with a GPU and without one: the PTX machine has no time, and on a real
GPU an exhaustive search over 144 configurations takes a minute or more, and differs from run to run. Triton's own
autotuner runs here, with the learner's decorator: only the launch and do_bench are stand-ins (device/lab_tuning).
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import torch

from kernelpath.course.labs import Lab

RECORD = Path(__file__).parents[1] / "records" / "tuning.json"
"""A submission, which works with the labs, cannot read it."""
BUDGET_SECONDS = 50.0
"""What compiling and measuring may take in one call of the entry."""
SLOWER_AT_MOST = 1.05
"""The time of a launch over that of the best configuration for its size, as the mean over the requests of a day."""
AVERAGED = 50
"""Requests that a day must have for its mean to count.

The sizes of a class share one configuration: for one of them it is 22% slower than the best, on average within 1%.
"""


@dataclass(frozen=True)
class Size:
    """Of a product: a (M, K) and w (N, K) of the dtype, c (M, N) float32."""

    dtype: str
    M: int
    N: int
    K: int

    def __str__(self) -> str:
        return f"M={self.M} N={self.N} K={self.K} {self.dtype}"


@dataclass(frozen=True)
class Recording:
    """configurations: all of the space, each a value for every one of `names`. seconds: by size, in their order.

    seconds is None for a configuration that needs more shared memory than a block may have; shared: bytes, by dtype.
    """

    names: tuple[str, ...]
    configurations: Sequence[tuple[int, ...]]
    seconds: Mapping[Size, Sequence[float | None]]
    shared: Mapping[str, Sequence[int]]
    compile_seconds: float
    bench_seconds: float

    def right(self, size: Size, place: int) -> bool:
        """Whether this configuration computes all of the sum. The kernel masks M and N, and not K."""
        one = dict(zip(self.names, self.configurations[place], strict=True))
        return size.K % (one["BLOCK_K"] * one["SPLIT_K"]) == 0

    def best(self, size: Size) -> float:
        """Seconds of the fastest of all that are right for the size."""
        return min(
            seconds
            for place, seconds in enumerate(self.seconds[size])
            if seconds is not None and self.right(size, place)
        )


@cache
def recording() -> Recording:
    told = json.loads(RECORD.read_text())
    seconds = {
        Size(one["dtype"], one["M"], one["N"], one["K"]): [x and 1e-6 * x for x in one["microseconds"]]
        for one in told["sizes"]
    }
    return Recording(
        names=tuple(told["space"]),
        configurations=[*itertools.product(*told["space"].values())],
        seconds=seconds,
        shared=told["shared"],
        compile_seconds=told["compile_seconds"],
        bench_seconds=min(told["do_bench_seconds"].values()),
    )


@dataclass
class Content:
    """Of a matrix (rows, columns): how often the product was added to it since it was as given, and what else is true.

    kept: what was in it at the start is still there. whole: no launch has left something out.
    """

    shape: tuple[int, int]
    sums: int = 0
    kept: bool = True
    why: str = ""


@dataclass
class Spent:
    """What was done. wrong: the first request whose c is not what it should be, and why. again: the first size that was
    measured twice with the same configuration. seconds: of compiling and measuring; measured: how often.
    slower: for each request, its time over that of the best configuration; 0 where it was not launched.
    chosen: the configuration of each launch that counts.
    """

    wrongs: int = 0
    wrong: str = ""
    agains: int = 0
    again: str = ""
    compiled: int = 0
    measured: int = 0
    seconds: float = 0.0
    slower: list[float] = field(default_factory=list)
    chosen: list[list[int]] = field(default_factory=list)

    @property
    def ledger(self) -> list[int]:
        """Wrong results, sizes tuned again, seconds over the budget, per cent over the best; all rounded up."""
        over = max(0, math.ceil(self.seconds - BUDGET_SECONDS))
        mean = sum(self.slower) / max(1, len(self.slower))
        too_slow = len(self.slower) >= AVERAGED and mean > SLOWER_AT_MOST
        return [self.wrongs, self.agains, over, math.ceil(100 * (mean - 1)) if too_slow else 0]


class TooMuchShared(Exception):
    """bytes, and the most that a block may have."""


class NotRecorded(Exception):
    """A configuration outside of the space, or operands that are not those of one request."""


class RecordedGpu(Lab):
    """requests: the products to be added, each to a c of its own. Matrix 3i is a of request i, 3i + 1 w, 3i + 2 c."""

    def __init__(self, device: str, requests: Sequence[Size]) -> None:
        self.device, self.requests, self.record = device, tuple(requests), recording()
        self.spent = Spent(slower=[0.0] * len(requests), chosen=[[] for _ in requests])
        self._places = {one: place for place, one in enumerate(self.record.configurations)}
        self._contents: dict[int, Content] = {}
        for index, size in enumerate(requests):
            for part, shape in enumerate(((size.M, size.K), (size.N, size.K), (size.M, size.N))):
                self._contents[3 * index + part] = Content(shape)
        self._compiled: set[tuple[str, int]] = set()
        self._tuned: set[tuple[Size, int]] = set()
        self._twice: set[Size] = set()
        self._measuring: float | None = None
        self._began = False

    def during(self, names: dict[str, Any]) -> AbstractContextManager[None]:
        """A submission has a proxy, which puts itself in Triton's place."""
        return nullcontext()

    def launch(
        self, operands: Sequence[int], sizes: Sequence[int], configuration: Sequence[int], grid: Sequence[int]
    ) -> None:
        """c += a @ w.T. operands: the numbers of a, w, c. sizes: M, N, K as passed. grid: programs in x, y, z.

        A program for which there is no tile does nothing. Raises TooMuchShared and NotRecorded.
        """
        a, w, c = operands
        index = a // 3
        if a % 3 or w != a + 1 or not 0 <= index < len(self.requests) or c not in self._contents:
            raise NotRecorded("a and w are not the operands of one request")
        size, place = self.requests[index], self._places.get(tuple(configuration))
        if place is None:
            raise NotRecorded(f"{self.said(configuration)} is not in the space")
        if self._contents[c].shape != (size.M, size.N):
            raise NotRecorded("c has not the shape of the product")
        if (size.dtype, place) not in self._compiled:
            self._compiled.add((size.dtype, place))
            self.spent.compiled += 1
            self.spent.seconds += self.record.compile_seconds
        seconds = self.record.seconds[size][place]
        if seconds is None:
            raise TooMuchShared(self.record.shared[size.dtype][place])
        content = self._contents[c]
        content.sums += 1
        content.why = content.why or self._fault(size, sizes, place, grid)
        if c != a + 2 and c // 3 < len(self.requests):
            content.why = f"the product of request {index} was added to it"
        if self._measuring is not None:
            self._measured(size, place, seconds)
        else:
            self.spent.slower[index] = max(self.spent.slower[index], seconds / self.record.best(size))
            self.spent.chosen[index] = list(configuration)

    def bench(self, begins: bool) -> float:
        """Begin to measure, or end it: then the milliseconds of what was launched since; infinity for nothing."""
        if begins:
            self._measuring, self._began = math.inf, True
            return 0.0
        found, self._measuring = self._measuring, None
        return math.inf if found is None else 1e3 * found

    def zero(self, matrix: int) -> None:
        self._contents[matrix] = Content(self._contents[matrix].shape, kept=False)

    def clone(self, matrix: int) -> int:
        """The number of the copy."""
        number = len(self._contents)
        self._contents[number] = Content(**vars(self._contents[matrix]))
        return number

    def copy(self, target: int, source: int) -> None:
        self._contents[target] = Content(**vars(self._contents[source]))

    def ended(self) -> Spent:
        """What was done, with the results judged as they are now."""
        faults = [self._judged(index) for index in range(len(self.requests))]
        self.spent.wrongs = sum(map(bool, faults))
        self.spent.wrong = next(filter(None, faults), "")
        return self.spent

    def graded(self, outputs: Sequence[torch.Tensor], held: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        """The ledger as it is."""
        return [torch.tensor(self.spent.ledger, device=self.device)]

    def _measured(self, size: Size, place: int, seconds: float) -> None:
        if self._began:
            self.spent.measured += 1
            self.spent.seconds += self.record.bench_seconds
            if (size, place) in self._tuned:
                self._twice.add(size)
                self.spent.agains = len(self._twice)
                self.spent.again = self.spent.again or str(size)
            self._tuned.add((size, place))
        self._began, self._measuring = False, seconds

    def _fault(self, size: Size, sizes: Sequence[int], place: int, grid: Sequence[int]) -> str:
        """Why a launch does not give the product."""
        one = dict(zip(self.record.names, self.record.configurations[place], strict=True))
        if list(sizes) != [size.M, size.N, size.K]:
            return f"M, N, K were passed as {', '.join(map(str, sizes))}"
        x, y, _ = grid
        tiles = -(-size.M // one["BLOCK_M"]) * -(-size.N // one["BLOCK_N"])
        if x < tiles:
            return f"the grid has {x} programs for {tiles} tiles of {one['BLOCK_M']} x {one['BLOCK_N']}"
        if y != one["SPLIT_K"]:
            return f"the grid has {y} programs for each tile where SPLIT_K={one['SPLIT_K']}"
        if not self.record.right(size, place):
            step = f"BLOCK_K={one['BLOCK_K']} times SPLIT_K={one['SPLIT_K']}"
            return f"K is not a multiple of {step}, so the kernel leaves out the rest of the sum"
        return ""

    def _judged(self, index: int) -> str:
        """What is wrong with the c of a request."""
        content, size = self._contents[3 * index + 2], self.requests[index]
        why = content.why
        if not content.sums or not self.spent.slower[index]:
            why = "the product was not added to c"
        elif not content.kept:
            why = "what was in c before is lost: reset_to_zero clears it, restore_value gives it back"
        elif content.sums > 1:
            why = f"the product was added {content.sums} times: measuring runs the kernel, too"
        return f"request {index}, {size}: {why}" if why else ""

    def said(self, configuration: Sequence[int]) -> str:
        return " ".join(f"{name}={value}" for name, value in zip(self.record.names, configuration, strict=True))
