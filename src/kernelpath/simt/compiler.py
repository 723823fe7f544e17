"""From PTX text to machine code of this computer, kept on disk by content."""

from __future__ import annotations

import ctypes
import hashlib
import os
import pickle
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import llvmlite.binding as llvm
import numba
from numba import cfunc
from platformdirs import user_cache_path

from kernelpath.simt import flow, memory, sync
from kernelpath.simt.instructions import EMIT
from kernelpath.simt.layout import Call
from kernelpath.simt.lower import Emitter, Lowered
from kernelpath.simt.ptx import Module
from kernelpath.simt.tensor import TENSOR

__all__ = ["Program", "compile_kernel"]

_FUNCTIONS = {
    Call.ACCESS: memory.access,
    Call.WARP_SYNC: sync.warp_sync,
    Call.FENCE: sync.fence,
    Call.COPY_ASYNC: sync.copy_async,
    Call.COMMIT_ASYNC: sync.commit_async,
    Call.WAIT_ASYNC: sync.wait_async,
}


@dataclass
class Program:
    """A compiled kernel: ``run(launch, warps, count)`` advances warps; see ``lower``."""

    lowered: Lowered
    run: ctypes._NamedFuncPointer
    engine: llvm.ExecutionEngine


def compile_kernel(module: Module, name: str, digest: str) -> Program:
    """Compile one kernel of ``module``, or load it from the cache. ``digest`` identifies the PTX text."""
    target = _target_machine()
    path = _cache_path(digest, name)
    try:
        lowered, code = pickle.loads(path.read_bytes())
    except (OSError, pickle.PickleError, EOFError, AttributeError):
        kernel = module.functions[name]
        lowered = Emitter(module, kernel, flow.analyse(module, kernel), EMIT | TENSOR).lower()
        code = target.emit_object(llvm.parse_assembly(lowered.ir))
        _save(path, pickle.dumps((lowered, code)))
    for call in lowered.calls:
        llvm.add_symbol(f"kernelpath_{call.name.lower()}", _address(call))
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), target)
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    signature = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)
    return Program(lowered, signature(engine.get_function_address("run")), engine)


def warm_up() -> None:
    """Load what almost every kernel calls, so that the first launch need not wait for it."""
    _address(Call.ACCESS)


@cache
def _target_machine() -> llvm.TargetMachine:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple()
    features = llvm.get_host_cpu_features().flatten()
    return target.create_target_machine(cpu=llvm.get_host_cpu_name(), features=features, opt=1, jit=True)


@cache
def _address(call: Call) -> int:
    """The address of a warp-level function. Numba's cache sees only one file, so it goes to a folder of our content."""
    numba.config.CACHE_DIR, before = str(_cache_path("numba", "")), numba.config.CACHE_DIR
    try:
        return int(cfunc(memory.SIGNATURE, cache=True)(_FUNCTIONS[call].py_func).address)
    finally:
        numba.config.CACHE_DIR = before


def _cache_path(digest: str, name: str) -> Path:
    sources = Path(__file__).parent.glob("*.py")
    ours = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(sources)))
    host = f"{llvm.llvm_version_info}{llvm.get_host_cpu_name()}{llvm.get_host_cpu_features().flatten()}"
    key = hashlib.sha256(f"{digest}{name}{host}{ours.hexdigest()}".encode()).hexdigest()
    return user_cache_path("kernelpath") / "simt" / key[:2] / key


def _save(path: Path, data: bytes) -> None:
    """Write atomically; a cache that cannot be written is no error."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(f".{os.getpid()}")
        temporary.write_bytes(data)
        temporary.replace(path)
    except OSError:
        return
