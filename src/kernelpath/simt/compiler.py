"""From PTX text to machine code of this computer, kept on disk by content."""

from __future__ import annotations

import ctypes
import hashlib
import os
import pickle
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar, cast

import llvmlite.binding as llvm
from platformdirs import user_cache_path

from kernelpath.simt import flow, memory, schedule, sync
from kernelpath.simt.instructions import EMIT
from kernelpath.simt.layout import Access, Space
from kernelpath.simt.lower import Lowering
from kernelpath.simt.lowered import Check, Lowered
from kernelpath.simt.native import compile_function
from kernelpath.simt.ptx import Module

__all__ = ["Program", "compile_kernel", "warm_up"]


T = TypeVar("T")
SCHEDULE = "schedule_run_grid"
LARGE = 500_000  # characters of IR from which compiling quickly, at speed 0, is worth more than running quickly


@dataclass
class Program:
    """A compiled kernel. ``run_grid`` is that of ``schedule``; its arguments are addresses."""

    lowered: Lowered
    run_grid: Callable[[int, int, int, int], int]
    engine: llvm.ExecutionEngine


def compile_kernel(module: Module, name: str, digest: str) -> Program:
    """Compile one kernel of ``module``, or load it from the cache. ``digest`` identifies the PTX text."""

    def build() -> tuple[Lowered, bytes]:
        kernel = module.functions[name]
        lowered = Lowering(module, kernel, flow.analyse(module, kernel), EMIT).lower()
        return lowered, machine_code(lowered.ir, speed=int(len(lowered.ir) < LARGE))

    lowered, code = cached(f"{digest} {name}", build)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _target_machine(1))
    for part in (code, _schedule(), *map(_code_of_check, sorted(lowered.checks))):
        engine.add_object_file(llvm.ObjectFileRef.from_data(part))
    engine.finalize_object()
    signature = ctypes.CFUNCTYPE(*[ctypes.c_int64] * 5)
    return Program(lowered, signature(engine.get_function_address(SCHEDULE)), engine)


def warm_up() -> None:
    """Load what every kernel calls, so that the first launch need not wait for it."""
    _schedule()
    for access in (Access.LOAD, Access.STORE):
        _code_of_check(Check("access", (Space.GLOBAL, access, 4, 1, 0, 0)))


@cache
def _schedule() -> bytes:
    return cached(SCHEDULE, lambda: machine_code(compile_function(schedule.run_grid, (), SCHEDULE), speed=3))


@cache
def _code_of_check(check: Check) -> bytes:
    def build() -> bytes:
        function = {"access": memory.access}.get(check.function) or getattr(sync, check.function)
        return machine_code(compile_function(function, check.constants, check.symbol), speed=3)

    return cached(check.symbol, build)


def machine_code(text: str, speed: int) -> bytes:
    """Compile LLVM IR; ``speed`` is LLVM's optimization level, whose passes run from 2 on."""
    target = _target_machine(speed)
    module = llvm.parse_assembly(text)
    if speed > 1:
        passes = llvm.create_pass_builder(target, llvm.create_pipeline_tuning_options(speed_level=speed))
        passes.getModulePassManager().run(module, passes)
    return bytes(target.emit_object(module))


@cache
def _target_machine(speed: int) -> llvm.TargetMachine:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple()
    features = llvm.get_host_cpu_features().flatten()
    return target.create_target_machine(cpu=llvm.get_host_cpu_name(), features=features, opt=speed, jit=True)


def cached(name: str, build: Callable[[], T]) -> T:
    """What ``build`` returns, from the disk if these sources built it for this computer before."""
    host = f"{llvm.llvm_version_info}{llvm.get_host_cpu_name()}{llvm.get_host_cpu_features().flatten()}"
    key = hashlib.sha256(f"{name}{host}{_sources()}".encode()).hexdigest()
    folder = os.environ.get("KERNELPATH_CACHE") or user_cache_path("kernelpath")
    path = Path(folder) / "simt" / key[:2] / key
    with suppress(OSError, pickle.PickleError, EOFError, AttributeError):
        return cast(T, pickle.loads(path.read_bytes()))
    result = build()
    with suppress(OSError):  # a folder that cannot be written only costs time
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(f".{os.getpid()}")
        temporary.write_bytes(pickle.dumps(result))
        temporary.replace(path)
    return result


@cache
def _sources() -> str:
    """A digest of this package: what it compiled before a change does not count."""
    files = sorted(Path(__file__).parent.glob("*.py"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
