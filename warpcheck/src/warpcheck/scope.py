"""Run kernels on the PTX machine inside a with block, and restore PyTorch and Triton when the block ends."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from importlib.util import find_spec
from typing import Any

from warpcheck import backend, events, frontends, initcheck, patching, simulated_gpu
from warpcheck.backend import Bounds, check_bounds
from warpcheck.frontends import cute_calls, torch_cuda
from warpcheck.report import Report
from warpcheck.schedule import Schedule, additional_schedules, parse_schedules
from warpcheck.target import TARGETS
from warpcheck.threads import check_threads

__all__ = ["gpu", "run"]

# Held while a scope is active: what a scope replaces belongs to the process, and not to a thread.
_active_scope = threading.Lock()


@contextlib.contextmanager
def gpu(
    arch: str = "sm_80",
    *,
    schedules: str | Schedule | Iterable[str | Schedule] = "forward",
    uninitialized: bool = True,
    bounds: Bounds = "tensor",
    timeline: bool = False,
    threads: int | None = None,
) -> Iterator[Report]:
    """Run the kernels that are launched inside the with block on this machine's memory, and check every access.

    Triton kernels, `@cute.jit` functions run by `warpcheck.cute.run`, and kernels of `warpcheck.cuda` are compiled by
    their own compilers for `arch`. `torch.cuda.get_device_properties` and its relatives describe a GPU of that
    architecture. On a machine without a GPU, device="cuda" makes tensors in this process's memory, whose operators run
    on the CPU. Everything is restored when the block ends, even if an exception ends it.

    Args:
        arch: "sm_80", "sm_90a" or "sm_100a".
        schedules: the orders of blocks and warps in which every launch runs: "forward", "reverse", "strided", "all",
            or several names or members of `Schedule`. The results are those of the forward order; each further order
            costs the time of a launch. A result that depends on the order is a warning.
        uninitialized: report reads of memory from torch.empty and its relatives that nothing has written.
        bounds: what a kernel may access of a tensor. "tensor": from its first element to its last. "allocation": the
            whole allocation, for kernels that write to padding behind a view.
        timeline: record the events of the first block of every launch.
        threads: how many threads run the blocks of a launch, by default as `WARPCHECK_THREADS` says. See `threads`.

    Yields:
        The report, to which every launch is added.

    Raises:
        KeyError: there is no such architecture.
        RuntimeError: another scope is active, in this thread or another one.
        ValueError: there are no such schedules, bounds or threads; or a kernel of the block ran on a GPU, unchecked.
    """
    target = TARGETS[arch]
    check_bounds(bounds)
    check_threads(threads)
    extra = additional_schedules(parse_schedules(schedules))
    report = Report(arch)

    def record_launch(launched: frontends.Launched) -> None:
        if launched.counted is None:
            raise ValueError(f"{launched.name} ran on {launched.device} and was not checked: pass CPU tensors")
        report.add(launched)

    # Waiting for the other scope would never end where the same thread has opened it.
    if not _active_scope.acquire(blocking=False):
        raise RuntimeError("a warpcheck.gpu scope is active already; a process stands for one GPU at a time")
    try:
        with (
            patching.scope(),
            frontends.observe(record_launch),
            backend.observe_faults(report.faults.append),
            events.recorded(timeline),
        ):
            _prepare(target.name, extra, uninitialized, bounds, threads)
            yield report
    finally:
        _active_scope.release()


def _prepare(arch: str, extra: tuple[Schedule, ...], uninitialized: bool, bounds: Bounds, threads: int | None) -> None:
    """Replace what a scope replaces. The current `patching` scope undoes all of it."""
    patching.replace(backend.checks, "threads", threads)
    replace_checks(extra, uninitialized, bounds)
    if find_spec("torch") is not None:
        simulated_gpu.show({}, arch)
        if uninitialized:
            initcheck.watch()
        torch_cuda.activate()
        cute_calls.activate()
    else:
        simulated_gpu.stand_for({}, arch)
    patching.when_imported("triton", _activate_triton)


def _activate_triton() -> None:
    from warpcheck.frontends import triton

    triton.activate("cpu")


def replace_checks(extra: tuple[Schedule, ...], uninitialized: bool, bounds: Bounds) -> None:
    """Replace what launches check. The current `patching` scope undoes it."""
    patching.replace(backend.checks, "extra_schedules", extra)
    patching.replace(backend.checks, "uninitialized", uninitialized)
    patching.replace(backend.checks, "bounds", bounds)
    patching.replace(backend.checks, "permits_unused_reads", True)


def run(
    function: Callable[..., Any],
    /,
    *args: Any,
    arch: str = "sm_80",
    schedules: str | Schedule | Iterable[str | Schedule] = "forward",
    uninitialized: bool = True,
    bounds: Bounds = "tensor",
    timeline: bool = False,
    **kwargs: Any,
) -> Report:
    """Call a function that launches kernels, and check every access of them.

    Args:
        function: called as `function(*args, **kwargs)`; the report has its return value as `result`.
        arch, schedules, uninitialized, bounds, timeline: as for `gpu`.

    Returns:
        The report of all launches.

    Raises:
        Fault: a kernel did something that CUDA leaves undefined: the subclass says what (Race, OutOfBounds, ...). It is
            raised at the launch and, if the function catches it there, once more when the function has returned.
        TimedOut: a kernel did not end within its limit of instructions; Deadlock, if its threads wait for each other.
        ValueError: the function launched no kernel, so that nothing was checked.
    """
    with gpu(arch, schedules=schedules, uninitialized=uninitialized, bounds=bounds, timeline=timeline) as report:
        report.result = function(*args, **kwargs)
    if report.faults:
        raise report.faults[0]
    if not report.launches:
        raise ValueError(f"{getattr(function, '__name__', function)} launched no kernel: nothing was checked")
    return report
