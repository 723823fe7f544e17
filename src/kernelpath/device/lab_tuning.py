"""Provide the proxy of a GPU that replies with recorded times. Launches on its matrices become messages.

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

Send = Callable[[Message], LabResponse]

SPACE = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "SPLIT_K", "num_warps", "num_stages")

# Triton's defaults for what a configuration does not set.
DEFAULTS = {"num_warps": 4, "num_stages": 3}

# Bytes of shared memory that a block may have on sm_90. Source: CUDA C++ Programming Guide, compute capabilities.
MAX_SHARED = 232_448


@dataclass(eq=False)
class Matrix:
    """A matrix of the recorded GPU. It has no values: the GPU tracks only whether they would be correct."""

    number: int
    shape: tuple[int, int]
    dtype: torch.dtype
    gpu: GpuProxy

    def data_ptr(self) -> int:
        # No memory is there. Addresses only differ from matrix to matrix, and are as aligned as those of a GPU.
        return (self.number + 1) << 32

    def stride(self, dim: int | None = None) -> Any:
        strides = (self.shape[1], 1)
        return strides if dim is None else strides[dim]

    def numel(self) -> int:
        return self.shape[0] * self.shape[1]

    def element_size(self) -> int:
        return self.dtype.itemsize

    def zero_(self) -> Matrix:
        self.gpu.send(messages.Move(what="zero", matrix=self.number))
        return self

    def clone(self) -> Matrix:
        response = self.gpu.send(messages.Move(what="clone", matrix=self.number))
        return Matrix(int(response.values[0]), self.shape, self.dtype, self.gpu)

    def copy_(self, source: Matrix) -> Matrix:
        self.gpu.send(messages.Move(what="copy", matrix=source.number, target=self.number))
        return self


class GpuProxy(Lab):
    """A proxy of recorded.RecordedGpu for a submission."""

    def __init__(self, device: str, send: Send) -> None:
        self.device = device
        self.send = send
        values = [int(value) for value in send(messages.Requests()).values]
        self.requests = [self._operands(3 * i, *values[4 * i : 4 * i + 4]) for i in range(len(values) // 4)]

    def _operands(self, number: int, bits: int, m: int, n: int, k: int) -> tuple[Matrix, Matrix, Matrix]:
        """Return a (M, K) and w (N, K) of the request's dtype, and c (M, N) of float32."""
        dtype: torch.dtype = getattr(torch, f"float{bits}")
        parts = ((m, k), dtype), ((n, k), dtype), ((m, n), torch.float32)
        a, w, c = (Matrix(number + position, shape, kind, self) for position, (shape, kind) in enumerate(parts))
        return a, w, c

    def ledger(self) -> torch.Tensor:
        """Return recorded.TuningUsage.ledger as int64."""
        return torch.tensor([int(value) for value in self.send(messages.GetTuningLedger()).values], device=self.device)

    def do_bench(
        self, fn: Callable[[], object], *_: object, quantiles: Sequence[float] | None = None, **__: object
    ) -> Any:
        """Replace triton.testing.do_bench: run fn() twice, and return its recorded milliseconds for each quantile."""
        # Triton's do_bench calls fn() many times. A launch that adds to its output then adds more than once.
        self.send(messages.Bench(begins=True))
        try:
            fn()
            fn()
        finally:
            milliseconds = self.send(messages.Bench(begins=False)).values[0]
        return milliseconds if quantiles is None else [milliseconds] * len(quantiles)

    @contextlib.contextmanager
    def during(self, names: dict[str, Any]) -> Iterator[None]:
        """Redirect launches on this GPU's matrices, and do_bench, to this proxy inside the `with` block.

        Args:
            names: The submission's globals.
        """
        import triton.testing

        run = hooks.LAUNCH.get()
        real_do_bench = triton.testing.do_bench

        def launch(kernel: Any, *arguments: Any, grid: Any, warmup: bool = False, **named: Any) -> Any:
            values = {**dict(zip(hooks.ARGUMENTS.of(kernel), arguments, strict=False)), **named}
            if not any(isinstance(value, Matrix) for value in values.values()):
                return run(kernel, *arguments, grid=grid, warmup=warmup, **named)
            return None if warmup else self._launch(values, grid)

        clock = property(lambda tuner: tuner._do_bench or self.do_bench)
        # This raises Changed where this version of Triton has no such property.
        hooks.CLOCK.get()
        replacements = [(hooks.LAUNCH.owner(), "run", launch), (hooks.CLOCK.owner(), "do_bench", clock)]
        replacements += [(triton.testing, "do_bench", self.do_bench)]
        with contextlib.ExitStack() as stack:
            for owner, name, replacement in replacements:
                stack.callback(setattr, owner, name, vars(owner)[name])
                setattr(owner, name, replacement)
            # After `from triton.testing import do_bench`, the submission has a name of its own for the function.
            for name in [name for name, value in names.items() if value is real_do_bench]:
                stack.callback(names.__setitem__, name, real_do_bench)
                names[name] = self.do_bench
            yield

    def _launch(self, values: Mapping[str, Any], grid: Any) -> None:
        """Launch on the recorded GPU.

        Raises:
            OutOfResources: The configuration needs too much shared memory, as in Triton.
            ValueError: The configuration was not recorded.
        """
        values = {**DEFAULTS, **values}
        if missing_names := [name for name in ("a", "w", "c", "M", "N", "K", *SPACE) if name not in values]:
            unset = ", ".join(missing_names)
            raise TypeError(f"the launch has no {unset}; a triton.Config of @triton.autotune sets what is not passed")
        programs = [operator.index(count) for count in (grid(values) if callable(grid) else grid)]
        x, y, z = (*programs, 1, 1)[:3]
        a, w, c = (values[name].number for name in "awc")
        m, n, k = (operator.index(values[name]) for name in "MNK")
        request = messages.LaunchRecorded(
            operands=(a, w, c),
            sizes=(m, n, k),
            configuration=[operator.index(values[name]) for name in SPACE],
            grid=(x, y, z),
        )
        if (response := self.send(request)).status:
            raise hooks.OUT_OF_RESOURCES.get()(int(response.values[0]), MAX_SHARED, "shared memory")
