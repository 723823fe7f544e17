"""Compile a complete CUDA C++ program, host code included, with nvcc, and call its functions.

    program = host_program.build("w01d_host_program.cu")
    program.call("add_on_gpu", x, y, out, x.numel(), milliseconds)

With a GPU, the program gets NVIDIA's runtime library and runs there. Without one, it gets a runtime library of
warpcheck's: kernels and copies run on the PTX machine, and a call that CUDA leaves undefined, an error that the program
ignores, and memory that it does not free are exceptions that name the line. The program is compiled by nvcc in both
cases, which needs a C++ compiler, and from pip the package nvidia-cuda-nvcc.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, Literal

import msgspec
import torch

from warpcheck import backend, frontends, packages, simulated_gpu
from warpcheck.cache import cache_read, cache_write
from warpcheck.frontends import cutlass
from warpcheck.frontends.cuda_runtime import DEVICE_BYTES, DEVICE_START, CudaRuntime, SourceLines
from warpcheck.frontends.host_program_errors import NOT_SUPPORTED, HostProgramError, error_name
from warpcheck.frontends.nvrtc import CompileError
from warpcheck.source_text import source_text
from warpcheck.target import gpu_architecture

__all__ = ["CompileError", "HostProgram", "HostProgramError", "build", "error_name", "nvcc"]

_RUNTIME = Path(__file__).with_name("cuda_runtime.cpp")

# The caller of a function of the runtime must stay on the stack, and inlined wrappers must be in its place:
# cudaMalloc<float> is a template of cuda_runtime.h that calls cudaMalloc.
_HOST_OPTIONS = ("-fPIC", "-g", "-O2", "-fno-optimize-sibling-calls", "-Wno-unused-result")

_HANDLER = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_char_p, ctypes.c_uint64, ctypes.POINTER(ctypes.c_uint64))
_MOST_ARGUMENTS = 8
_TIME_TOLERANCE = 1e-4  # of a float


class _Library(msgspec.Struct):
    """A compiled program: the shared library, and the PTX of its kernels."""

    content: bytes
    ptx: str


def build(source: str | os.PathLike[str], device: Literal["auto", "cpu", "cuda"] = "auto") -> HostProgram:
    """Compile a program for the GPU, or for the PTX machine without one, and return it.

    Args:
        source: The path of a .cu file, relative to the directory of the calling file, or the source text itself. A
            string that contains a line break is source text.
        device: "cpu" for the PTX machine, "cuda" for the GPU, or "auto" for the GPU where there is one.

    Raises:
        CompileError: The source does not compile; the message is the compilers' log.
        frontends.Unavailable: There is no nvcc, no C++ compiler, or the program uses a function of the runtime that
            warpcheck does not simulate.
        FileNotFoundError: There is no such file.
    """
    text = os.fspath(source)
    file = Path("program.cu")
    if "\n" not in text:
        file = Path(os.path.dirname(sys._getframe(1).f_globals.get("__file__", "")), text).resolve()
        text = source_text(file)
    # Where another device replaces the PTX machine, as in a grading, kernels go there even if there is a GPU.
    is_gpu_real = torch.cuda.is_available() and not simulated_gpu.has_cuda_tensors()
    has_gpu = is_gpu_real and isinstance(backend.device(), backend.Local)
    if device == "cuda" or (device == "auto" and has_gpu):
        architecture = gpu_architecture(*torch.cuda.get_device_capability())
        return _build(text, str(file), architecture, is_simulated=False)
    return _build(text, str(file), simulated_gpu.target().virtual, is_simulated=True)


class HostProgram:
    """A compiled program whose functions can be called. A function takes up to eight integers and pointers."""

    def __init__(self, file: str, source: str, library: _Library, is_simulated: bool) -> None:
        self.file = file
        self._source = source
        self._ptx = library.ptx
        self._is_simulated = is_simulated
        # The loader reads a library from a file, and two programs may have the same name.
        self._folder = tempfile.TemporaryDirectory(prefix="host-program-", ignore_cleanup_errors=True)
        path = os.path.join(self._folder.name, "program.so")
        Path(path).write_bytes(library.content)
        # A library is never unloaded: the loader keeps it until the process ends, even if the file is removed.
        self._library = ctypes.CDLL(path)
        if is_simulated:
            self._library.warpcheck_base.restype = ctypes.c_uint64
            self._lines = SourceLines(path, self._library.warpcheck_base(), file)

    def call(
        self,
        function: str,
        *arguments: Any,
        kernel_milliseconds: torch.Tensor | None = None,
        with_failures: bool = False,
    ) -> None:
        """Call a function with C linkage that returns a cudaError_t.

        A tensor is passed as a pointer to host memory. Where there is a GPU, the function gets a copy in the memory of
        the host of a tensor on the GPU, and what it writes there is copied back.

        Args:
            function: The name of the function.
            arguments: Integers, and contiguous tensors for pointers.
            kernel_milliseconds: The argument, a float32 tensor of one element, in which the function reports the time
                of its kernels, measured with events. Checked without a GPU.
            with_failures: Whether to call the function before this call as often as it makes calls to the runtime that
                may fail, and let one of them fail each time. The function has to return that error, and to release
                everything nevertheless. Without a GPU only.

        Raises:
            HostProgramError: The function returned an error or, without a GPU, used the runtime wrongly. A function
                that only returns cudaErrorNotSupported counts as not started.
            simt.Fault: A kernel did something undefined. Without a GPU only.
        """
        if len(arguments) > _MOST_ARGUMENTS:
            raise TypeError(f"{function} is called with {len(arguments)} arguments; {_MOST_ARGUMENTS} are supported")
        entry = self._find(function)
        if not self._is_simulated:
            if status := _call_on_gpu(entry, arguments):
                raise HostProgramError("call failed", f"{function} returned {error_name(status)}", self.file, 0)
            return
        # This call counts the calls that can fail. Each further one lets another of them fail.
        calls = self._call_once(function, entry, arguments, 0, kernel_milliseconds) if with_failures else 0
        for number in range(1, calls + 1):
            self._call_once(function, entry, arguments, number, None)
        self._call_once(function, entry, arguments, 0, kernel_milliseconds)

    def main(self, *arguments: str) -> int:
        """Run the program's main() with command-line arguments, and return its exit status.

        Its output is written to sys.stdout when it has returned.

        Raises HostProgramError and simt.Fault as `call` does.
        """
        texts = [os.path.basename(self.file), *arguments]
        argv = (ctypes.c_char_p * (len(texts) + 1))(*(text.encode() for text in texts))
        words = [len(texts), ctypes.addressof(argv)]
        entry = self._find("main")
        with _captured_output():
            status, runtime = self._run(entry, words) if self._is_simulated else (_call(entry, words), None)
        if runtime is not None:
            runtime.check(0)  # an exit status is no cudaError_t
        return status

    def _find(self, function: str) -> Any:
        entry = getattr(self._library, function, None)
        if entry is None:
            linkage = "" if function == "main" else f' with C linkage: extern "C" before {function}'
            raise CompileError(f"{Path(self.file).name} has no function {function}{linkage}")
        return entry

    def _call_once(
        self, function: str, entry: Any, arguments: Sequence[Any], fail_at: int, milliseconds: torch.Tensor | None
    ) -> int:
        """Call a function once, and return the number of its calls to the runtime that could have failed."""
        arrays = [
            (f"argument {position}", _bytes_of(value))
            for position, value in enumerate(arguments, 1)
            if isinstance(value, torch.Tensor)
        ]
        words = [_word(value) for value in arguments]
        status, runtime = self._run(entry, words, arrays, fail_at)
        if status == NOT_SUPPORTED and runtime.calls == 0:
            definition = re.search(rf"\b{function}\s*\(", self._source)
            line = self._source.count("\n", 0, definition.start()) + 1 if definition else 0
            raise HostProgramError("not started", f"{function} returns cudaErrorNotSupported", self.file, line)
        runtime.check(status)
        if milliseconds is not None:
            reported = ctypes.c_float.from_address(milliseconds.data_ptr()).value  # item() is an operator of torch
            self._check_time(reported, runtime)
        return runtime.calls

    def _run(
        self, entry: Any, words: Sequence[int], arrays: Sequence[tuple[str, torch.Tensor]] = (), fail_at: int = 0
    ) -> tuple[int, CudaRuntime]:
        """Call a function of the program, and return its result as an int, and the runtime afterwards."""
        runtime = CudaRuntime(self.file, self._source, self._ptx, self._lines, arrays, fail_at)

        def handle(name: bytes, caller: int, arguments: Any) -> int:
            return runtime.handle(name.decode(), caller, arguments)

        handler = _HANDLER(handle)  # must live as long as the library may call it
        for symbol, value in (
            ("warpcheck_handler", ctypes.cast(handler, ctypes.c_void_p).value),
            ("warpcheck_device_start", DEVICE_START),
            ("warpcheck_device_end", DEVICE_START + DEVICE_BYTES),
        ):
            ctypes.c_uint64.in_dll(self._library, symbol).value = value or 0
        # On x86-64 and aarch64 a function ignores arguments that it does not have, so each one gets all eight.
        padded = (ctypes.c_uint64 * _MOST_ARGUMENTS)(*words)
        result = ctypes.c_uint64(0)
        fault = (ctypes.c_uint64 * 2)()
        if self._library.warpcheck_call(ctypes.cast(entry, ctypes.c_void_p), padded, ctypes.byref(result), fault):
            raise runtime.describe_host_access(*fault)
        return ctypes.c_int(result.value & 0xFFFFFFFF).value, runtime

    def _check_time(self, milliseconds: float, runtime: CudaRuntime) -> None:
        expected = 1e3 * runtime.kernel_seconds
        if abs(milliseconds - expected) > _TIME_TOLERANCE * expected:
            message = (
                f"the function reports {milliseconds:.4f} ms, and the kernel took {expected:.4f} ms on the simulated "
                "clock: record one event right before the launch and one right after it"
            )
            raise HostProgramError("wrong time", message, self.file, runtime.last_launch_line)


def nvcc() -> str:
    """Return the path of nvcc: from the package nvidia-cuda-nvcc, else from a toolkit.

    Raises frontends.Unavailable where there is none, or no C++ compiler, which nvcc needs.
    """
    with suppress(ModuleNotFoundError):
        spec = importlib.util.find_spec("nvidia.cu13")
        for folder in (spec.submodule_search_locations or ()) if spec else ():
            if (program := Path(folder, "bin", "nvcc")).is_file():
                return _with_compiler(str(program))
    if found := shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc"):
        return _with_compiler(found)
    raise frontends.Unavailable(packages.missing("nvidia-cuda-nvcc"))


def _with_compiler(program: str) -> str:
    if shutil.which("g++") is None:
        raise frontends.Unavailable("nvcc needs g++ for host code, and it is not installed: sudo apt install g++")
    return program


@cache
def _version(program: str) -> str:
    return subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout


@cache
def _build(source: str, file: str, architecture: str, is_simulated: bool) -> HostProgram:
    program = nvcc()
    options = [f"-arch={architecture}", "-lineinfo", "-std=c++17", "-shared", "-Xcompiler", ",".join(_HOST_OPTIONS)]
    # pip installs nvcc in the latest version, and the runtime's headers in the one that PyTorch requires. CCCL, which
    # CUTLASS includes, refuses such a pair, as for NVRTC (headers.PRELUDE).
    options += ["-DCCCL_DISABLE_CTK_COMPATIBILITY_CHECK"]
    if cutlass.is_included(source):
        # CUTLASS calls constexpr functions of the host in kernels, and keeps helpers of host code in another folder.
        utilities = cutlass.folder().parent / "tools" / "util" / "include"
        options += ["--expt-relaxed-constexpr", f"-I{cutlass.folder()}", f"-I{utilities}"]
    inputs = []
    if is_simulated:
        # -z defs: what no library defines is an error of the linker now, and not of the loader later.
        # -Bsymbolic: calls reach this runtime, not the libcudart that PyTorch's build for CUDA has loaded before.
        options += ["-code", architecture, "-cudart", "none", "-Xlinker", "-z,defs,-Bsymbolic"]
        inputs = [str(_RUNTIME)]
    else:
        options += ["-cudart", "static"]
    key = hashlib.sha256(repr((source, file, options, _version(program), _RUNTIME.read_text())).encode()).hexdigest()
    is_cached = not re.search(r'#\s*include\s*"', source)  # the key does not cover the content of an included file
    with suppress(msgspec.MsgspecError):
        if is_cached and (content := cache_read("nvcc", key)) is not None:
            return HostProgram(file, source, msgspec.msgpack.decode(content, type=_Library), is_simulated)
    library = _compile([program, *options], source, file, inputs)
    if is_cached:
        cache_write("nvcc", key, msgspec.msgpack.encode(library))
    return HostProgram(file, source, library, is_simulated)


def _compile(command: Sequence[str], source: str, file: str, inputs: Sequence[str]) -> _Library:
    with tempfile.TemporaryDirectory(prefix="nvcc-", ignore_cleanup_errors=True) as folder, frontends.compiling():
        # The compilers name the file as it is given to them. The copy is what the key of the cache is about.
        copy = Path(folder, Path(file).name)
        copy.write_text(source, encoding="utf-8")
        library = Path(folder, "library.so")
        arguments = [f"-I{Path(file).parent}", "--keep", "--keep-dir", folder, "-o", str(library), str(copy), *inputs]
        ran = subprocess.run([*command, *arguments], capture_output=True, text=True, errors="replace", cwd=folder)
        if ran.returncode != 0 or not library.is_file():
            raise _failure(_clean_log(ran.stderr + ran.stdout, folder))
        ptx = copy.with_suffix(".ptx")
        text = ptx.read_text(encoding="utf-8") if ptx.is_file() else ""
        sys.audit("warpcheck.compiled", text, copy.stem)
        return _Library(library.read_bytes(), text)


_UNDEFINED = re.compile(r"undefined reference to [`'\"]((?:__)?cuda\w+)")


def _failure(log: str) -> Exception:
    if missing := sorted(set(_UNDEFINED.findall(log))):
        names = ", ".join(missing)
        return frontends.NotSimulated(f"the CUDA runtime of the PTX machine does not have {names}")
    return CompileError(log)


def _clean_log(log: str, folder: str) -> str:
    """Return a log of nvcc, g++ and ld in the form of nvcc's, "file.cu(5): error: ...", without the folder."""
    log = log.replace(f"{folder}/", "")
    place = re.compile(r"^(\S+\.cu):(\d+):(?:\d+:)? (?=(?:fatal )?error|warning|undefined)", re.MULTILINE)
    return place.sub(r"\1(\2): ", log)


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    if not tensor.is_contiguous():
        raise ValueError("a host program takes contiguous tensors")
    return tensor.reshape(-1).view(torch.uint8)


def _word(value: Any) -> int:
    return (value.data_ptr() if isinstance(value, torch.Tensor) else int(value)) & (1 << 64) - 1


@contextmanager
def _captured_output() -> Iterator[None]:
    """Write to sys.stdout what the block writes to file descriptor 1, such as the output of printf in C."""
    libc = ctypes.CDLL(None)
    sys.stdout.flush()
    libc.fflush(None)
    stdout = os.dup(1)
    with tempfile.TemporaryFile() as output:
        os.dup2(output.fileno(), 1)
        try:
            yield
        finally:
            # C buffers stdout on its own. Without the flush, its text would appear after the descriptor is restored.
            libc.fflush(None)
            os.dup2(stdout, 1)
            os.close(stdout)
            output.seek(0)
            sys.stdout.write(output.read().decode(errors="replace"))


def _call(entry: Any, words: Sequence[int]) -> int:
    return ctypes.c_int(entry(*map(ctypes.c_uint64, words))).value


def _call_on_gpu(entry: Any, arguments: Sequence[Any]) -> int:
    host = [value.cpu() if isinstance(value, torch.Tensor) else value for value in arguments]
    status = _call(entry, [_word(value) for value in host])
    for value, copy in zip(arguments, host, strict=True):
        if isinstance(value, torch.Tensor) and value.is_cuda:
            value.copy_(copy)
    return status
