"""Run on the PTX machine the functions that a program compiles and calls by the CuTe DSL itself.

    compiled = cute.compile(host, *arguments, options="--enable-tvm-ffi")
    compiled(x, out)
    host(x, out)

The program's own host code runs, and checks and unpacks the arguments as on a machine with a GPU. Its calls of the CUDA
runtime are redirected by `cute_host`. Inside a scope, the DSL compiles for the simulated GPU, with lines and PTX.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from warpcheck import frontends, patching, simulated_gpu
from warpcheck.hooks import Changed

__all__ = ["activate"]

# The attribute of a compiled function that holds its `CpuHost`.
_HOST = "_warpcheck_host"

# A variable of TVM FFI. With "1" it asks Python for the current stream, and not PyTorch's C++ library, which has no
# streams without a GPU.
_SKIP_EXCHANGE_API = "TVM_FFI_SKIP_DLPACK_C_EXCHANGE_API"


def activate() -> None:
    """Run the functions that the program compiles, until the current `patching` scope ends.

    Nothing is imported for a program that does not use the DSL.
    """
    patching.when_imported("cutlass", _replace_calls)


def _replace_calls() -> None:
    """Replace how the DSL compiles and calls functions. If this version has changed, its own errors say so."""
    from warpcheck.hooks import cute as hooks

    with contextlib.suppress(Changed):
        _replace_settings()
        hooks.WRAP.replace(_remembering_tensor(hooks.WRAP.get()))
        hooks.TRACE.replace(_named_trace(hooks.TRACE.get()))
        hooks.CALL.replace(_named_call(hooks.CALL.get()))
        hooks.RUN.get()
        hooks.RUN.replace(_run)
        hooks.BIND.get()
        hooks.BIND.replace(lambda compiled, device=None: compiled)
        _replace_hardware_info()
        _replace_clock()
        if find_spec("tvm_ffi") is not None:
            _replace_tvm_ffi()


def _replace_settings() -> None:
    """Let the DSL compile for the simulated GPU, with PTX and line numbers, and reuse what it compiled before."""
    from warpcheck.frontends.cute_cache import cached_passes
    from warpcheck.frontends.cute_places import remember_places
    from warpcheck.hooks import cute as hooks

    selected = hooks.SELECTED_ARCH.get()
    apply_settings = hooks.SETTINGS.get()
    keep_ptx, line_info, dump_folder = hooks.KEEP_PTX.get(), hooks.LINE_INFO.get(), hooks.DUMP_FOLDER.get()
    hooks.FILE_CACHE.get()
    stack = contextlib.ExitStack()
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    stack.enter_context(cached_passes(folder))
    patching.on_exit(stack.close)

    def apply(options: Any, envar: Any, function_name: str) -> None:
        options.options[keep_ptx].value = True
        options.options[line_info].value = True
        options.options[dump_folder].value = str(folder)
        apply_settings(options, envar, function_name)

    hooks.SETTINGS.replace(apply)
    # The DSL remembers the architecture that it finds at its first look. A scope may have another one.
    hooks.SELECTED_ARCH.replace(property(_arch, selected.fset, selected.fdel))
    hooks.FILE_CACHE.replace(lambda *args, **kwargs: None)  # its entries have no PTX
    remember_places()


def _replace_hardware_info() -> None:
    """Let `cutlass.utils.HardwareInfo` describe the simulated GPU. It calls the driver otherwise."""
    from warpcheck.hooks import cute as hooks

    for hook, replacement in (
        (hooks.CONNECT, _connect),
        (hooks.MULTIPROCESSORS, lambda info: int(simulated_gpu.shown()["multi_processor_count"])),
        (hooks.L2_CACHE, lambda info: int(simulated_gpu.shown()["L2_cache_size"])),
        (hooks.ACTIVE_CLUSTERS, _count_active_clusters),
    ):
        hook.get()
        hook.replace(replacement)


def _connect(info: Any, device_id: int = 0) -> None:
    info.device_id = device_id


def _count_active_clusters(info: Any, cluster_size: int, stream: Any = None) -> int:
    """Return how many clusters may run at a time, with a block on each multiprocessor.

    On a GPU fewer may fit, because a cluster is in one GPC, and a GPC has a number of multiprocessors that the size of
    the cluster need not divide.

    Raises:
        ValueError: The simulated GPU has no clusters of this size.
    """
    largest = simulated_gpu.target().cluster_most or 1
    if not 1 <= cluster_size <= largest:
        raise ValueError(f"Cluster size must be between 1 and {largest}, {cluster_size} is not supported")
    return int(simulated_gpu.shown()["multi_processor_count"]) // cluster_size


# The time of every call, as programs divide by it.
_MICROSECONDS = 1.0


def _replace_clock() -> None:
    """Let `cutlass.testing.benchmark` and `tune` call each function once, because times mean nothing here.

    They repeat the call otherwise, between events of the driver. `tune` takes the first configuration that runs.
    """
    from warpcheck.hooks import cute as hooks

    arguments = hooks.ARGUMENTS.get()

    def benchmark(
        callable: Callable[..., Any],
        *,
        kernel_arguments: Any = None,
        workspace_generator: Callable[[], Any] | None = None,
        **_: Any,
    ) -> float:
        workspace = kernel_arguments if workspace_generator is None else workspace_generator()
        if not isinstance(workspace, arguments):
            raise TypeError("workspace_generator and/or kernel_arguments should use JitArguments type")
        callable(*workspace.args, **workspace.kwargs)
        return _MICROSECONDS

    for hook, replacement in (
        (hooks.BENCHMARK, benchmark),
        (hooks.DEPRECATED_BENCHMARK, benchmark),
        (hooks.BENCHMARK_TUNED, _call_once),
    ):
        hook.get()
        hook.replace(replacement)


def _call_once(callable: Callable[..., Any], *args: Any, **kwargs: Any) -> float:
    """Call a function for `cutlass.testing.tune`, which passes its own options as keywords."""
    options = ("warmup_iterations", "iterations", "use_cold_l2", "print_verbose", "current_stream")
    callable(*args, **{name: value for name, value in kwargs.items() if name not in options})
    return _MICROSECONDS


def _arch(envar: Any) -> str:
    """Return the architecture that a program has chosen by CUTE_DSL_ARCH, or that of the simulated GPU."""
    return os.environ.get(f"{envar.prefix}_ARCH") or simulated_gpu.target().name


def _replace_tvm_ffi() -> None:
    from warpcheck.hooks import tvm_ffi as hooks

    create_function = hooks.FUNCTION.get()

    def create(compiled: Any) -> Any:
        if compiled.engine is None:
            return None
        host = _host_of(compiled)
        return create_function(host.export_to_tvm_ffi(), keep_alive_object=host)

    hooks.CREATE.get()
    hooks.CREATE.replace(create)
    for hook in (hooks.CALL, hooks.CALL_WITH_KEYWORDS):
        hook.replace(_direct_call(hook.get()))
    previous = os.environ.get(_SKIP_EXCHANGE_API)
    os.environ[_SKIP_EXCHANGE_API] = "1"
    patching.on_exit(lambda: _restore_variable(_SKIP_EXCHANGE_API, previous))


def _restore_variable(name: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value


def _host_of(compiled: Any) -> Any:
    """Return the host code of a compiled function, which is loaded at the first call."""
    from warpcheck.frontends.cute_host import CpuHost
    from warpcheck.hooks import cute as hooks

    host = vars(compiled).get(_HOST)
    if host is None:
        if hooks.KERNELS.of(compiled) and not hooks.PTX.of(compiled):
            raise frontends.Unavailable(
                f"{compiled.function_name} was compiled before the scope or read from a file, and its PTX is gone"
            )
        host = CpuHost(compiled, ())
        setattr(compiled, _HOST, host)
    return host


def _direct_call(call: Callable[..., Any]) -> Callable[..., Any]:
    """Return a replacement of the call of a function with TVM FFI, whose code itself unpacks the arguments."""

    def run(compiled: Any, *args: Any, **kwargs: Any) -> Any:
        host = vars(compiled).get(_HOST)
        if host is None:  # compiled before the scope
            return call(compiled, *args, **kwargs)
        return host.observe(lambda: call(compiled, *args, **kwargs), _named_tensors(compiled, args, kwargs))

    return run


# The attribute of a tensor of the DSL that holds the tensor from which `from_dlpack` made it.
_TENSOR = "_warpcheck_tensor"


def _remembering_tensor(initialize: Callable[..., None]) -> Callable[..., None]:
    """Return a replacement of the constructor of the DSL's tensors, which keep only a capsule of DLPack."""

    def run(wrapper: Any, tensor: Any, *args: Any, **kwargs: Any) -> None:
        initialize(wrapper, tensor, *args, **kwargs)
        setattr(wrapper, _TENSOR, tensor)

    return run


# The tensors of the calls in progress that the DSL is unpacking, by name.
_arguments: list[Mapping[str, Any]] = []


def _named_call(call: Callable[..., Any]) -> Callable[..., Any]:
    """Return a replacement of the call of a compiled function that remembers the names of its tensors for `_run`."""

    def run(compiled: Any, *args: Any, **kwargs: Any) -> Any:
        with _remembering_names(_named_tensors(compiled, args, kwargs)):
            return call(compiled, *args, **kwargs)

    return run


def _named_trace(trace: Callable[..., Any]) -> Callable[..., Any]:
    """Return a replacement of the call of a `@cute.jit` function, which compiles and runs it, for the same purpose."""

    def run(dsl: Any, funcBody: Any, *args: Any, **kwargs: Any) -> Any:
        with _remembering_names(_tensors_by_name([*inspect.signature(funcBody).parameters], args, kwargs)):
            return trace(dsl, funcBody, *args, **kwargs)

    return run


@contextlib.contextmanager
def _remembering_names(tensors: Mapping[str, Any]) -> Iterator[None]:
    _arguments.append(tensors)
    try:
        yield
    finally:
        _arguments.pop()


def _run(compiled: Any, exe_args: list[Any]) -> int:
    """Run host code whose arguments are unpacked."""
    _host_of(compiled).run(exe_args, _arguments[-1] if _arguments else {})
    return 0


def _named_tensors(compiled: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tensors among the arguments of a compiled function, by the names of its parameters."""
    return _tensors_by_name([*compiled.execution_args.signature.parameters], args, kwargs)


def _tensors_by_name(names: Sequence[str], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tensors among the arguments of a call, by the names of the parameters that lead to them."""
    bound = [*zip(names, args, strict=False), *kwargs.items()]
    return {name: tensor for parameter, value in bound for name, tensor in _tensors_in(parameter, value)}


def _tensors_in(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    import torch

    value = getattr(value, _TENSOR, value)
    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, Mapping):
        for key, member in value.items():
            yield from _tensors_in(f"{name}.{key}", member)
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        yield from _tensors_in(name, dict(zip(value._fields, value, strict=True)))
    elif isinstance(value, (tuple, list)):
        for index, member in enumerate(value):
            yield from _tensors_in(f"{name}[{index}]", member)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from _tensors_in(f"{name}.{field.name}", getattr(value, field.name))
