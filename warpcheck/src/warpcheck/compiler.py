"""From PTX text to machine code of this computer, kept on disk by content."""

from __future__ import annotations

import ctypes
import gc
import hashlib
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import llvmlite.binding as llvm

from warpcheck import codec
from warpcheck.cache import cache_read, cache_write
from warpcheck.isa import OPS
from warpcheck.lower.warp import Lowering
from warpcheck.lowered import Check, CompiledShape, Lowered
from warpcheck.native import compile_apart, compile_function
from warpcheck.ptx import Module
from warpcheck.runtime import (
    bulk,
    bulk_issue,
    clusters,
    mbarriers,
    memory,
    proxies,
    registers,
    schedule,
    sync,
    warpgroup,
)
from warpcheck.runtime.host import RunGrid
from warpcheck.served import served
from warpcheck.target import SM_80, Target

__all__ = ["Program", "compile_kernel", "warm_up"]


SCHEDULE = "schedule_run_grid"
OFTEN = {memory.access}  # what most lane-instructions of a kernel call
CHECKS = (
    memory.access,
    *(getattr(sync, name) for name in sync.__all__),
    *(warpgroup.hazard, warpgroup.wgmma_commit, warpgroup.wgmma_operand, warpgroup.wgmma_wait),
    bulk_issue.issue_bulk,
    bulk.commit_bulk,
    bulk.wait_bulk,
    *(getattr(mbarriers, name) for name in mbarriers.__all__ if name.startswith("mbarrier")),
    clusters.cluster_arrive,
    clusters.cluster_wait,
    proxies.fence_proxy,
    registers.set_registers,
)
FUNCTIONS: dict[str, Callable[..., int]] = {check.__name__: check for check in CHECKS}
GIVEN = 5  # arguments of a check that are not constants: three records, a number and a mask
CONSTANTS = {name: len(inspect.signature(check).parameters) - GIVEN for name, check in FUNCTIONS.items()}


@dataclass
class Program:
    """A compiled kernel. ``run_grid`` is that of ``schedule``; its arguments are addresses."""

    lowered: Lowered
    run_grid: RunGrid
    engine: llvm.ExecutionEngine


def compile_kernel(module: Module, name: str, digest: str, target: Target = SM_80) -> Program:
    """Compile one kernel of ``module``, or load it from the cache. ``digest`` identifies the PTX text."""
    key = _key(f"{digest} {name} {target}")
    kept = codec.unseal(cache_read("simt", key))
    kernel = codec.decode(kept, CONSTANTS) if kept else None
    if kernel is None:
        with _no_collection():
            lowering = Lowering(module, module.functions[name], OPS, target, _form)
            lowered = lowering.lower()
        lowered.sites = served(lowered, lowering.flow.blocks, module.text, name)
        kernel = (
            lowered,
            [machine_code(lowered.ir, speed=0), *(_code_of_form(*form) for form in lowered.functions.items())],
        )
        cache_write("simt", key, codec.seal(codec.encode(*kernel)))
    lowered, code = kernel
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _new_target_machine(1))
    for part in (*code, _schedule(), _copies(), _apart(), *map(_code_of_check, sorted(lowered.checks))):
        engine.add_object_file(llvm.ObjectFileRef.from_data(part))
    engine.finalize_object()
    signature = ctypes.CFUNCTYPE(*[ctypes.c_int64] * 3)
    return Program(lowered, signature(engine.get_function_address(SCHEDULE)), engine)


@contextmanager
def _no_collection() -> Iterator[None]:
    """Python's search for garbage, which finds none while IR grows, would take a third of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def warm_up() -> None:
    """Load what every kernel calls, so that the first launch need not wait for it."""
    _schedule()
    _apart()


@cache
def _schedule() -> bytes:
    return _native_code(schedule.run_grid, (), SCHEDULE)


@cache
def _copies() -> bytes:
    return _native_code(bulk.carry_out_copy, (), bulk.perform_copy.__name__)


@cache
def _apart() -> bytes:
    return _cached("apart", lambda: machine_code(compile_apart(), speed=3))


@cache
def _code_of_check(check: Check) -> bytes:
    return _native_code(FUNCTIONS[check.function], check.constants, check.symbol)


def _native_code(function: Callable[..., int], constants: tuple[int, ...], symbol: str) -> bytes:
    """Machine code of a native function, from the cache if it is there."""
    speed = 3 if function in OFTEN else 2
    return _cached(symbol, lambda: machine_code(compile_function(function, constants, symbol), speed))


def _code_of_form(symbol: str, text: str) -> bytes:
    """Machine code of a form, from the cache if a kernel had it before. The symbol is a digest of the text."""
    return _cached(symbol, lambda: machine_code(text, speed=1))


def _form(name: str, emit: Callable[[], CompiledShape]) -> CompiledShape:
    """A form as it is emitted, from the cache if a kernel had it before."""
    key = _key(f"form {name}")
    kept = codec.unseal(cache_read("simt", key))
    form = codec.decode_form(kept, CONSTANTS) if kept else None
    if form is None:
        form = emit()
        cache_write("simt", key, codec.seal(codec.encode_form(form)))
    return form


def _cached(name: str, make: Callable[[], bytes]) -> bytes:
    key = _key(name)
    code = codec.unseal(cache_read("simt", key))
    if not code:
        code = make()
        cache_write("simt", key, codec.seal(code))
    return code


def machine_code(text: str, speed: int) -> bytes:
    """Compile LLVM IR. ``speed`` is 0 or 1 without passes, 2 with some that take little time, 3 with all of LLVM's."""
    target = _target_machine(1 if speed == 2 else speed)
    module = llvm.parse_assembly(text)
    passes = llvm.create_pass_builder(target, llvm.create_pipeline_tuning_options(speed_level=speed))
    if speed == 2:
        short = llvm.create_new_module_pass_manager()
        short.add_always_inliner_pass()
        short.add_sroa_pass()
        short.add_instruction_combine_pass()
        short.add_simplify_cfg_pass()
        short.run(module, passes)
    elif speed == 3:
        passes.getModulePassManager().run(module, passes)
    return bytes(target.emit_object(module))


@cache
def _target_machine(speed: int) -> llvm.TargetMachine:
    return _new_target_machine(speed)


def _new_target_machine(speed: int) -> llvm.TargetMachine:
    """One of its own for each engine: an engine frees its target machine when it is freed itself."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple()
    features = llvm.get_host_cpu_features().flatten()
    return target.create_target_machine(cpu=llvm.get_host_cpu_name(), features=features, opt=speed, jit=True)


@cache
def _host() -> str:
    return f"{llvm.llvm_version_info}{llvm.get_host_cpu_name()}{llvm.get_host_cpu_features().flatten()}"


def _key(name: str) -> str:
    """The name under which the cache keeps what these sources make of something on this computer."""
    return hashlib.sha256(f"{name}{_host()}{_sources()}".encode()).hexdigest()


@cache
def _sources() -> str:
    """A digest of this package: what it compiled before a change does not count."""
    files = sorted(Path(__file__).parent.rglob("*.py"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
