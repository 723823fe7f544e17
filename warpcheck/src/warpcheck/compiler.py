"""Compile PTX to machine code of this computer, cached on disk by content."""

from __future__ import annotations

import ctypes
import gc
import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import llvmlite.binding as llvm

from warpcheck import codec
from warpcheck.cache import cache_read, cache_write
from warpcheck.isa import OPS
from warpcheck.lower.kernel_lowering import KernelLowering
from warpcheck.lowered_kernel import Check, CompiledShape, Lowered
from warpcheck.native import compile_function, compile_noinline, parameter_names
from warpcheck.ptx import Module
from warpcheck.runtime import (
    bulk,
    bulk_issue,
    clusters,
    launch_control,
    mbarriers,
    memory,
    proxies,
    schedule,
    setmaxnreg,
    sync,
    tensor_access,
    tensor_allocation,
    tensor_jobs,
    warpgroup,
)
from warpcheck.runtime.block_workers import MergeFunction, Workers, qualifies
from warpcheck.runtime.history_merge import find_conflict, merge_entries
from warpcheck.runtime.host import RunGrid
from warpcheck.runtime.launch import Configuration
from warpcheck.sass_access import match_sass
from warpcheck.target import SM_80, Target

__all__ = ["Program", "compile_kernel", "warm_up"]


SCHEDULE = "schedule_run_grid"
# What most lane-instructions of a kernel call, and what a launch on several cores calls for each granule.
FREQUENT: set[Callable[..., int]] = {memory.access, find_conflict, merge_entries}
# The native functions that generated code calls. Each is compiled for the constants that a site passes.
CHECKS = (
    memory.access,
    *(getattr(sync, name) for name in sync.__all__),
    *(warpgroup.hazard, warpgroup.wgmma_commit, warpgroup.wgmma_operand, warpgroup.wgmma_wait),
    bulk_issue.issue_bulk,
    bulk.commit_bulk,
    bulk.wait_bulk,
    launch_control.observe_failure,
    *(getattr(mbarriers, name) for name in mbarriers.__all__ if name.startswith("mbarrier")),
    clusters.cluster_arrive,
    clusters.cluster_wait,
    proxies.fence_proxy,
    setmaxnreg.set_registers,
    *(tensor_access.tensor_access, tensor_access.tensor_fence, tensor_access.tensor_wait),
    *(tensor_allocation.tensor_alloc, tensor_allocation.tensor_dealloc, tensor_allocation.tensor_relinquish),
    *(tensor_jobs.tensor_commit, tensor_jobs.tensor_copy, tensor_jobs.tensor_multiply, tensor_jobs.tensor_shift),
)
FUNCTIONS: dict[str, Callable[..., int]] = {check.__name__: check for check in CHECKS}
FIXED_PARAMETERS = 5  # arguments of a check that are not constants: three records, a number and a mask
CONSTANTS = {name: len(parameter_names(check)) - FIXED_PARAMETERS for name, check in FUNCTIONS.items()}


@dataclass
class Program:
    """A compiled kernel.

    ``run_grid`` is that of ``schedule``; its arguments are addresses. ``configurations`` has those of past launches, by
    the arguments that determine them. ``may_use_workers`` is whether several cores may run its blocks.
    """

    lowered: Lowered
    run_grid: RunGrid
    engine: llvm.ExecutionEngine
    configurations: dict[tuple[object, ...], Configuration] = field(default_factory=dict)
    may_use_workers: bool = True
    _workers: dict[int, Workers] = field(default_factory=dict)

    def workers(self, count: int) -> Workers | None:
        """Return so many threads for the blocks of launches, or None if one core has to run them."""
        if count == 1 or not self.may_use_workers:
            return None
        if count not in self._workers:
            self._workers[count] = Workers(count, *merge_functions())
        return self._workers[count]


def compile_kernel(module: Module, name: str, digest: str, target: Target = SM_80) -> Program:
    """Compile one kernel of ``module``, or load it from the cache. ``digest`` identifies the PTX text."""
    key = _key(f"{digest} {name} {target}")
    cached = codec.unseal(cache_read("simt", key))
    # Anything that does not decode is compiled again: a crash may have left half an entry, or another program wrote it.
    kernel = codec.decode(cached, CONSTANTS) if cached else None
    if kernel is None:
        with _no_collection():
            lowering = KernelLowering(module, module.functions[name], OPS, target, _look_up_shape)
            lowered = lowering.lower()
        lowered.sites = match_sass(lowered, lowering.flow.blocks, module.text, name)
        kernel = (
            lowered,
            # The kernel's own function calls shapes and common functions, which are compiled by themselves: it needs no
            # passes.
            [machine_code(lowered.ir, speed=0), *(_shape_code(*shape) for shape in lowered.functions.items())],
        )
        cache_write("simt", key, codec.seal(codec.encode(*kernel)))
    lowered, objects = kernel
    # Everything is linked from object files: the kernel, its shapes, the scheduler, and the checks that it calls.
    # MCJIT has to begin with a module: an empty one.
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _new_target_machine(1))
    # The checks are sorted, because the order of a set differs from process to process.
    common = (_schedule_code(), _copy_code(), _tensor_code(), _noinline_code())
    for part in (*objects, *common, *map(_check_code, sorted(lowered.checks))):
        engine.add_object_file(llvm.ObjectFileRef.from_data(part))
    engine.finalize_object()
    signature = ctypes.CFUNCTYPE(*[ctypes.c_int64] * 3)
    # A clock counts the instructions of all blocks.
    reads_clock = "%clock" in module.text or "%globaltimer" in module.text
    run_grid = signature(engine.get_function_address(SCHEDULE))
    return Program(lowered, run_grid, engine, may_use_workers=qualifies(lowered) and not reads_clock)


@contextmanager
def _no_collection() -> Iterator[None]:
    """Suspend garbage collection, which finds nothing while IR grows and would take a third of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def warm_up() -> None:
    """Load what every kernel calls, so that the first launch does not wait for it."""
    _schedule_code()
    _noinline_code()


@cache
def _schedule_code() -> bytes:
    return _native_code(schedule.run_grid, (), SCHEDULE)


@cache
def _copy_code() -> bytes:
    return _native_code(bulk.carry_out_copy, (), bulk.perform_copy.__name__)


@cache
def _tensor_code() -> bytes:
    return _native_code(tensor_jobs.carry_out_job, (), tensor_jobs.execute_job.__name__)


@cache
def _noinline_code() -> bytes:
    return _cached("apart", lambda: machine_code(compile_noinline(), speed=3))


@cache
def _check_code(check: Check) -> bytes:
    return _native_code(FUNCTIONS[check.function], check.constants, check.symbol)


@cache
def merge_functions() -> tuple[MergeFunction, MergeFunction]:
    """Return the compiled functions of ``history_merge``: find_conflict and merge_entries."""
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _new_target_machine(1))
    symbols = {function: f"compiled_{function.__name__}" for function in (find_conflict, merge_entries)}
    for function, symbol in symbols.items():
        engine.add_object_file(llvm.ObjectFileRef.from_data(_native_code(function, (), symbol)))
    engine.finalize_object()
    _engines.append(engine)
    signature = ctypes.CFUNCTYPE(*[ctypes.c_int64] * 4)
    compiled_find, compiled_merge = (signature(engine.get_function_address(symbol)) for symbol in symbols.values())
    return compiled_find, compiled_merge


_engines: list[llvm.ExecutionEngine] = []  # their code must not be freed


def _native_code(function: Callable[..., int], constants: tuple[int, ...], symbol: str) -> bytes:
    """Return machine code of a native function, from the cache if it is there."""
    speed = 3 if function in FREQUENT else 2
    return _cached(symbol, lambda: machine_code(compile_function(function, constants, symbol), speed))


def _shape_code(symbol: str, text: str) -> bytes:
    """Return machine code of a shape, from the cache if it is there. The symbol is a digest of the text."""
    return _cached(symbol, lambda: machine_code(text, speed=1))


def _look_up_shape(name: str, emit: Callable[[], CompiledShape]) -> CompiledShape:
    """Return a compiled shape, from the cache if it is there."""
    key = _key(f"shape {name}")
    cached = codec.unseal(cache_read("simt", key))
    shape = codec.decode_shape(cached, CONSTANTS) if cached else None
    if shape is None:
        shape = emit()
        cache_write("simt", key, codec.seal(codec.encode_shape(shape)))
    return shape


def _cached(name: str, make: Callable[[], bytes]) -> bytes:
    key = _key(name)
    code = codec.unseal(cache_read("simt", key))
    if not code:
        code = make()
        cache_write("simt", key, codec.seal(code))
    return code


def machine_code(text: str, speed: int) -> bytes:
    """Compile LLVM IR.

    Args:
        speed: 0 or 1 for no passes, 2 for a few fast ones, 3 for all of LLVM's.
    """
    target = _target_machine(1 if speed == 2 else speed)
    return bytes(target.emit_object(optimize(text, target, speed)))


def optimize(text: str, target: llvm.TargetMachine, speed: int) -> llvm.ModuleRef:
    """Return LLVM IR after the passes of a speed, as `machine_code` has it."""
    module = llvm.parse_assembly(text)
    passes = llvm.create_pass_builder(target, llvm.create_pipeline_tuning_options(speed_level=speed))
    # Inlining, promotion of variables to registers, and simplification: most of the effect at a fraction of the time.
    if speed == 2:
        pass_manager = llvm.create_new_module_pass_manager()
        pass_manager.add_always_inliner_pass()
        pass_manager.add_sroa_pass()
        pass_manager.add_instruction_combine_pass()
        pass_manager.add_simplify_cfg_pass()
        pass_manager.run(module, passes)
    elif speed == 3:
        passes.getModulePassManager().run(module, passes)
    return module


@cache
def _target_machine(speed: int) -> llvm.TargetMachine:
    return _new_target_machine(speed)


def _new_target_machine(speed: int) -> llvm.TargetMachine:
    """Return a new target machine: an engine frees its own when it is freed itself."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple()
    # Code is for this very CPU, so the cache key has its name and features (_host).
    features = llvm.get_host_cpu_features().flatten()
    return target.create_target_machine(cpu=llvm.get_host_cpu_name(), features=features, opt=speed, jit=True)


@cache
def _host() -> str:
    return f"{llvm.llvm_version_info}{llvm.get_host_cpu_name()}{llvm.get_host_cpu_features().flatten()}"


def _key(name: str) -> str:
    """Return the cache key of a name on this computer, for these sources."""
    return hashlib.sha256(f"{name}{_host()}{_SOURCES}".encode()).hexdigest()


def _digest_sources() -> str:
    """Return a digest of this package: a change of any source invalidates the cache."""
    files = sorted(Path(__file__).parent.rglob("*.py"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


# Computed when this module is imported, with all that generates code, and not at the first use: if the files change
# while a process runs, the process must not store the code of the old sources under the key of the new ones.
_SOURCES = _digest_sources()
