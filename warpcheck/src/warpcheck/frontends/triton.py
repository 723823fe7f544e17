"""Run Triton kernels as usual on a GPU, and on the PTX machine for CPU tensors.

Call `activate` once, before the submission is imported.
"""

from __future__ import annotations

import ast
import ctypes
import inspect
import math
import operator
import os
import struct
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from warpcheck import backend, frontends, patching, simulated_gpu
from warpcheck.frontends import triton_descriptors as descriptors
from warpcheck.frontends import tuning
from warpcheck.frontends.cubin import resources
from warpcheck.frontends.triton_advice import find_misread_comparisons
from warpcheck.hooks import Changed
from warpcheck.hooks import triton as hooks


class CompileError(Exception):
    """Triton cannot compile a kernel; the message starts with file and line in NVRTC's format."""


def activate(device: str) -> None:
    """Make `kernel[grid](...)` work on tensors of `device` ("cuda" or "cpu") and record its launches.

    On "cpu" the PTX machine runs them, never Triton's interpreter. Call this function before anything imports triton.
    """
    patching.replace(warnings, "formatwarning", _without_source)
    if interpreted := os.environ.pop("TRITON_INTERPRET", None):  # Triton reads it when a function is decorated.
        patching.on_exit(lambda: os.environ.setdefault("TRITON_INTERPRET", interpreted))
    _report_compilation()
    _assemble_once()
    tuning.watch()
    if device == "cuda":
        _record_gpu_launches()
    else:
        os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")  # Triton 3.9 warns where it is not set
        choice = vars(hooks.DRIVER.get())  # Reading its attribute `active` would make Triton search for a GPU.
        previous = dict(choice)
        hooks.ACTIVATE.get()(_Driver())
        patching.on_exit(lambda: choice.update(previous))
        _tune_without_a_clock()


def _tune_without_a_clock() -> None:
    """End autotuning at the first configuration that can be launched, because times mean nothing here.

    The configuration runs between the autotuner's hooks as on a GPU, which exposes kernels that must not run twice. An
    autotuner with a benchmark function or a `run` of its own still tries all configurations.
    """
    try_out = hooks.TRY.get()
    run = hooks.TUNE.get()
    has_launched: dict[Any, bool] = {}  # of the autotuners that choose a configuration now

    def try_until_one_runs(self: Any, *arguments: Any, config: Any, **meta: Any) -> list[float]:
        if has_launched.get(self) and self.do_bench is _without_a_clock:
            return [math.inf] * 3
        times: list[float] = try_out(self, *arguments, config=config, **meta)
        if self in has_launched:
            # _bench gives infinity for a configuration that Triton cannot compile or launch.
            has_launched[self] = times[0] < math.inf
        return times

    def run_untried(self: Any, *arguments: Any, **meta: Any) -> Any:
        has_launched[self] = False
        try:
            return run(self, *arguments, **meta)
        finally:
            has_launched.pop(self, None)

    hooks.TRY.replace(try_until_one_runs)
    hooks.TUNE.replace(run_untried)


def _report_compilation() -> None:
    """Report compilation to `frontends.compiling`.

    Triton's public hook is no alternative: it serializes a kernel's constants as JSON, and fails for a function.
    """
    compile_kernel = hooks.COMPILE.get()

    def compile_and_report(self: Any, *args: Any, **kwargs: Any) -> Any:
        _reject_misleading_code(self)
        with frontends.compiling():
            return compile_kernel(self, *args, **kwargs)

    hooks.COMPILE.replace(compile_and_report)


def _assemble_once() -> None:
    """Run ptxas once for each PTX.

    ptxas takes a third of the compilation time of a small kernel, and a quarter of the specializations for different
    alignments of the arguments have the same PTX.
    """
    with suppress(Changed):
        assemble = hooks.ASSEMBLE.get()
        assembled: dict[tuple[str, str, int], bytes] = {}

        def assemble_once(self: Any, ptx: str, metadata: Any, options: Any, capability: int) -> bytes:
            key = ptx, repr(options), capability
            if key not in assembled:
                assembled[key] = assemble(self, ptx, metadata, options, capability)
            return assembled[key]

        hooks.ASSEMBLE.replace(assemble_once)


@cache
def _reject_misleading_code(kernel: Any) -> None:
    """Reject code that Triton compiles to something unexpected: a kernel that returns a value, and a chained mask.

    The cache makes this run once for each kernel, and not for each specialization.
    """
    for node in ast.walk(hooks.PARSE.get()(kernel)):
        if isinstance(node, ast.Return) and not (node.value is None or ast.unparse(node.value) == "None"):
            raise _error_at(kernel, node.lineno, "a kernel returns nothing: write what it computes with tl.store")
    for line, advice in find_misread_comparisons(hooks.SOURCE.of(kernel)):
        raise _error_at(kernel, line, advice)


def _error_at(kernel: Any, line: int, text: str) -> CompileError:
    function = hooks.FUNCTION.of(kernel)
    source, first = inspect.getsourcelines(function)
    # Triton counts lines from the `def`; the source starts at the first decorator.
    first += next(
        index for index, text_line in enumerate(source) if text_line.lstrip().startswith("def ")
    )  # below decorators
    return CompileError(f"{function.__code__.co_filename}({first + line - 1}): error: {text}")


def _without_source(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """Format a warning in one line, without the hint about tracemalloc that Python adds for Triton's warnings."""
    return f"{filename}:{lineno}: {category.__name__}: {message}\n"


def _record_gpu_launches() -> None:
    def on_launch(metadata: Any) -> None:
        frontends.record(frontends.Launched("triton", metadata.get()["name"], "cuda", ()))

    hooks.ENTERED.get()(on_launch)


class _Driver:
    """A device driver of Triton for the GPU that the PTX machine simulates."""

    def __init__(self) -> None:
        self.utils = self
        self.launcher_cls = _Launcher

    def __getattr__(self, name: str) -> Any:
        raise hooks.unanswered(name)

    @classmethod
    def is_active(cls) -> bool:
        return True

    def get_current_target(self) -> Any:
        return hooks.TARGET.get()("cuda", simulated_gpu.target().capability, 32)

    def get_current_device(self) -> int:
        """Return an index that no GPU has, a different one for each target: it is a key of Triton's kernel cache."""
        return -simulated_gpu.target().capability

    def set_current_device(self, device: int) -> None:
        pass

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_device_capability(self, device: int = 0) -> tuple[int, int]:
        return divmod(simulated_gpu.target().capability, 10)

    def get_active_torch_device(self) -> Any:
        import torch

        return torch.device("cuda", 0) if simulated_gpu.has_cuda_tensors() else torch.device("cpu")

    def get_device_interface(self) -> Any:
        import torch

        return torch.cuda

    def get_device_properties(self, device: int) -> dict[str, int]:
        """Return the properties of the GPU model that is shown, with the shared memory of the compilation target.

        The model may be of another architecture than the target, and have less shared memory than kernels compiled for
        the target use.
        """
        properties = simulated_gpu.shown()
        return {
            "max_shared_mem": simulated_gpu.target().shared,
            "multiprocessor_count": int(properties["multi_processor_count"]),
            "max_num_regs": int(properties["regs_per_multiprocessor"]),
            "warpSize": int(properties["warp_size"]),
        }

    def load_binary(self, name: str, binary: bytes, shared: int, device: int) -> tuple[None, None, int, int, int]:
        """Return module, function, registers, spilled registers and the most threads of a block.

        The module and the function are unused, because `_Launcher` launches the PTX.
        """
        usage = resources(binary)
        return None, None, usage.registers, usage.local_bytes // 4, 1024

    def unload_module(self, module: None) -> None:
        pass

    def map_python_to_cpp_type(self, ty: str) -> str:
        return ty

    def get_empty_cache_for_benchmark(self) -> None:
        return None

    def clear_cache(self, cache: None) -> None:
        pass

    def get_benchmarker(self) -> Callable[..., list[float]]:
        return _without_a_clock


def _without_a_clock(call: Callable[[], None], quantiles: Sequence[float] = (0.5,), **_: Any) -> list[float]:
    """Run a configuration of an autotuner, and report that it takes no time."""
    call()
    return [0.0] * len(quantiles)


# Triton passes stream, function, two objects of metadata, and two hooks in front of the kernel's own arguments.
_ARGUMENTS_OF_THE_LAUNCH = 6


class _Launcher:
    """A compiled kernel, which Triton calls with the grid and the bound arguments of every launch."""

    def __init__(self, source: Any, metadata: Any) -> None:
        # triton.compile("kernel.ttir") has no Python function: its arguments are known by their places.
        function = getattr(source, "fn", None)
        self.names = [f"argument {place}" for place in source.signature]
        self.file = None
        if function is not None:
            self.names = list(hooks.ARGUMENTS.of(function))
            self.file = hooks.FUNCTION.of(function).__code__.co_filename
        self.signature = list(source.signature.values())
        self.metadata = metadata
        self.name = hooks.NAME.of(metadata)
        self.shared = hooks.SHARED.of(metadata)
        self.warps = hooks.WARPS.of(metadata)
        self.ctas = hooks.CLUSTER.of(metadata)
        self.ptx = _ptx(metadata)

    def __call__(self, x: int, y: int, z: int, *arguments: Any) -> None:
        values = arguments[_ARGUMENTS_OF_THE_LAUNCH:]
        if len(values) != len(self.names):
            raise TypeError(
                f"{self.name} takes {len(self.names)} arguments ({', '.join(self.names)}) and not {len(values)}: a "
                "compiled kernel is called with its constants, too"
            )
        # Triton keeps this object, and another device may run the next launch. Triton's cache identifies a kernel by
        # its text, so that the PTX may name another file with the same text.
        module = backend.device().load(self.ptx, self.file)
        kernel = module.kernels[self.name]
        # A constexpr is compiled in, and no parameter of the PTX.
        named = [pair for pair in zip(self.names, self.signature, values, strict=True) if pair[1] != "constexpr"]
        layouts = iter(getattr(self.metadata, "tensordesc_meta", None) or ())
        args = [number for _, kind, value in named for number in numbers(kind, value, layouts)]
        tensors = [tensor for name, _, value in named for tensor in descriptors.tensors(name, value)]
        programs = _programs(x), _programs(y), _programs(z)
        blocks = math.prod(programs) * self.ctas
        if blocks <= 0:  # As on a GPU, Triton launches nothing, so that kernels need no special case for empty tensors.
            return
        # Memory for the tensor maps that the kernel makes: global_scratch_size bytes for each block of the grid.
        if nbytes := blocks * getattr(self.metadata, "global_scratch_size", 0):
            args.append(descriptors.scratch(nbytes, self.metadata.global_scratch_align))
            tensors.append(("the allocated memory", args[-1]))
        args += [0] * (len(kernel.params) - len(args))  # The last parameters are scratch memory of Triton's profiler.
        with frontends.compiling():
            module.compile(kernel.name)
        result = module.launch(
            kernel.name,
            grid=(programs[0] * self.ctas, *programs[1:]),
            block=(*(kernel.reqntid or (32 * self.warps,)), 1, 1)[:3],
            shared=self.shared,
            arguments=args,
            tensors=tensors,
            cooperative=bool(getattr(self.metadata, "launch_cooperative_grid", False)),
            programmatic_stream_serialization=bool(getattr(self.metadata, "launch_pdl", False)),
            cluster=(self.ctas, 1, 1) if self.ctas > 1 else None,
        )
        frontends.record(
            frontends.Launched("triton", kernel.name, "cpu", tuple(values), result.known_cost, result.launch)
        )


def _programs(count: Any) -> int:
    """Return an extent of a grid as an int; it may be a NumPy integer."""
    if not hasattr(count, "__index__"):
        raise TypeError(f"a grid has whole numbers of programs, not {count}: round up with triton.cdiv")
    return operator.index(count)


def _ptx(metadata: Any) -> str:
    """Return the PTX that Triton's cache stores with the binary."""
    cache = hooks.CACHE.get()(hooks.HASH.of(metadata))
    # Triton cuts the names of its cache files at 150 characters.
    groups = [cache.get_group(f"{prefix}{hooks.NAME.of(metadata)}"[:150] + ".json") or {} for prefix in ("", "@")]
    # A kernel compiled from MLIR text is cached under the symbol of its function, which begins with @.
    paths = [path for group in groups for name, path in group.items() if name.endswith(".ptx")]
    # The group of a kernel with its own `repr` has the name of the function. Its folder has one kernel alone.
    paths += map(str, Path(hooks.CACHE.get()(hooks.HASH.of(metadata)).cache_dir).glob("*.ptx"))
    return Path(paths[0]).read_text()


def numbers(kind: Any, value: Any, layouts: Iterator[Any]) -> Iterator[Any]:
    """Yield the parameter values of an argument: several for a tuple or a descriptor, a tensor for its address.

    layouts: The layouts of the tensor maps of all descriptors that follow.
    """
    if isinstance(kind, tuple):
        for inner, item in zip(kind, value, strict=True):
            yield from numbers(inner, item, layouts)
    elif kind == "constexpr":
        return
    elif isinstance(kind, str) and kind.startswith("tensordesc"):
        for item in descriptors.passed(value, next(layouts, None)):
            yield from numbers("", item, layouts)
    elif hasattr(value, "data_ptr"):
        # An object with nothing but an address may access the tensor that it points into, as any address may.
        yield value if hasattr(value, "numel") or hasattr(value, "base") else value.data_ptr()
    elif isinstance(value, bytes):
        yield value
    elif kind in _FLOATS:
        yield _FLOATS[kind](float(value))
    else:
        yield value if isinstance(value, float) else int(value or 0)


def _bfloat16(value: float) -> bytes:
    """Return a bfloat16 as bytes, rounded toward zero as Triton's launcher does."""
    # A bfloat16 is the upper half of a float32, and memory is little-endian.
    return bytes(ctypes.c_float(value))[2:]


# The conversion of a scalar argument for each floating-point type of Triton's signatures.
_FLOATS: dict[str, Callable[[float], float | bytes]] = {
    "bf16": _bfloat16,
    "fp16": lambda value: struct.pack("<e", value),
    "fp32": lambda value: ctypes.c_float(value).value,
    "fp64": float,
}
