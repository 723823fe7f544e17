"""A GPU that answers with recorded times, as a submission gets it: what launches on its matrices goes there.

Triton's autotuner, its decorator and its cache are the real ones. A launch with such a matrix among its arguments, and
triton.testing.do_bench, are messages.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from kernelpath.course.labs import Lab
from kernelpath.device import lab_messages as messages
from kernelpath.device.lab_messages import LabResponse
from kernelpath.device.messages import Message
from warpcheck.hooks import triton as hooks

Ask = Callable[[Message], LabResponse]

SPACE = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "SPLIT_K", "num_warps", "num_stages")
DEFAULTS = {"num_warps": 4, "num_stages": 3}
"""Triton's own, where a configuration does not say."""
MOST_SHARED = 232_448
"""Bytes of shared memory that a block may have on sm_90. Source: CUDA C++ Programming Guide, compute capabilities."""


@dataclass(eq=False)
class Matrix:
    """A matrix of the recorded GPU. Its values are known to be right or not, and nothing else is known of them."""

    number: int
    shape: tuple[int, int]
    dtype: torch.dtype
    gpu: Gpu

    def data_ptr(self) -> int:
        return (self.number + 1) << 32

    def stride(self, dim: int | None = None) -> Any:
        strides = (self.shape[1], 1)
        return strides if dim is None else strides[dim]

    def numel(self) -> int:
        return self.shape[0] * self.shape[1]

    def element_size(self) -> int:
        return self.dtype.itemsize

    def zero_(self) -> Matrix:
        self.gpu.ask(messages.Move(what="zero", matrix=self.number))
        return self

    def clone(self) -> Matrix:
        went = self.gpu.ask(messages.Move(what="clone", matrix=self.number))
        return Matrix(int(went.values[0]), self.shape, self.dtype, self.gpu)

    def copy_(self, source: Matrix) -> Matrix:
        self.gpu.ask(messages.Move(what="copy", matrix=source.number, target=self.number))
        return self


class Gpu(Lab):
    """recorded.RecordedGpu for a submission."""

    def __init__(self, device: str, ask: Ask) -> None:
        self.device, self.ask = device, ask
        told = [int(value) for value in ask(messages.Requests()).values]
        self.requests = [self._operands(3 * i, *told[4 * i : 4 * i + 4]) for i in range(len(told) // 4)]

    def _operands(self, number: int, bits: int, m: int, n: int, k: int) -> tuple[Matrix, Matrix, Matrix]:
        """a (M, K), w (N, K) of the request's dtype, and c (M, N) float32."""
        dtype: torch.dtype = getattr(torch, f"float{bits}")
        parts = ((m, k), dtype), ((n, k), dtype), ((m, n), torch.float32)
        a, w, c = (Matrix(number + place, shape, kind, self) for place, (shape, kind) in enumerate(parts))
        return a, w, c

    def ledger(self) -> torch.Tensor:
        """As recorded.Spent.ledger, int64."""
        return torch.tensor([int(value) for value in self.ask(messages.GetTuningLedger()).values], device=self.device)

    def do_bench(
        self, fn: Callable[[], object], *_: object, quantiles: Sequence[float] | None = None, **__: object
    ) -> Any:
        """triton.testing.do_bench: milliseconds of fn(), which runs more than once; one number for each quantile."""
        self.ask(messages.Bench(begins=True))
        try:
            fn()
            fn()
        finally:
            took = self.ask(messages.Bench(begins=False)).values[0]
        return took if quantiles is None else [took] * len(quantiles)

    @contextlib.contextmanager
    def during(self, names: dict[str, Any]) -> Iterator[None]:
        """Launches on this GPU's matrices, and do_bench, come here. names: the globals of the submission."""
        import triton.testing

        run, real = hooks.LAUNCH.get(), triton.testing.do_bench

        def launched(kernel: Any, *arguments: Any, grid: Any, warmup: bool = False, **named: Any) -> Any:
            values = {**dict(zip(hooks.ARGUMENTS.of(kernel), arguments, strict=False)), **named}
            if not any(isinstance(value, Matrix) for value in values.values()):
                return run(kernel, *arguments, grid=grid, warmup=warmup, **named)
            return None if warmup else self._launch(values, grid)

        clock = property(lambda tuner: tuner._do_bench or self.do_bench)
        hooks.CLOCK.get()
        stand_ins = [(hooks.LAUNCH.owner(), "run", launched), (hooks.CLOCK.owner(), "do_bench", clock)]
        stand_ins += [(triton.testing, "do_bench", self.do_bench)]
        with contextlib.ExitStack() as stack:
            for owner, name, stand_in in stand_ins:
                stack.callback(setattr, owner, name, vars(owner)[name])
                setattr(owner, name, stand_in)
            for name in [name for name, value in names.items() if value is real]:
                stack.callback(names.__setitem__, name, real)
                names[name] = self.do_bench
            yield

    def _launch(self, values: Mapping[str, Any], grid: Any) -> None:
        """Raises OutOfResources as Triton does, and ValueError for what was not recorded."""
        values = {**DEFAULTS, **values}
        if missing := [name for name in ("a", "w", "c", "M", "N", "K", *SPACE) if name not in values]:
            unset = ", ".join(missing)
            raise TypeError(f"the launch has no {unset}; a triton.Config of @triton.autotune sets what is not passed")
        programs = [operator.index(count) for count in (grid(values) if callable(grid) else grid)]
        x, y, z = (*programs, 1, 1)[:3]
        a, w, c = (values[name].number for name in "awc")
        m, n, k = (operator.index(values[name]) for name in "MNK")
        asked = messages.LaunchRecorded(
            operands=(a, w, c),
            sizes=(m, n, k),
            configuration=[operator.index(values[name]) for name in SPACE],
            grid=(x, y, z),
        )
        if (went := self.ask(asked)).status:
            raise hooks.OUT_OF_RESOURCES.get()(int(went.values[0]), MOST_SHARED, "shared memory")
