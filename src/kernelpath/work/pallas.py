"""Run an entry of JAX whose kernel is written in Pallas.

The entry is traced once. That program is examined, lowered for TPUs and GPUs, and run; neither of them is needed for
that. The kernel runs on the CPU in JAX's interpreter, one step of the grid after another, with NaN in the part of a
block beyond its array. What the interpreter cannot show is read from the trace: which blocks each step writes, and what
is computed outside of the kernel.

JAX stays on the CPU where there is a GPU as well. Its plugin for CUDA allocates most of the GPU's memory, writes to
folders where a submission's process may not write, and runs another program: there, Pallas makes Triton load and store
whole blocks, including the part beyond the array.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from sysconfig import get_path
from typing import Any

# XLA starts so many threads in each of several pools, by default one for each core. On a machine with many cores a
# submission's process may not start that many.
os.environ["NPROC"] = str(min(4, len(os.sched_getaffinity(0))))

import jax
import torch
from jax import ShapeDtypeStruct, jit, make_jaxpr  # as they are before there is a submission
from jax.export import DisabledSafetyCheck, export
from jax.extend.core import ClosedJaxpr, Jaxpr, jaxpr_as_fun
from jax.sharding import AbstractDevice, AbstractMesh, use_abstract_mesh

from kernelpath.verdict import Verdict
from kernelpath.work.exception_findings import RuleViolation
from warpcheck.hooks import jax as hooks

# The platforms that the kernel is lowered for: Mosaic's code for the TPU, Triton's for the GPUs.
PLATFORMS = {"tpu": "a TPU", "cuda": "an NVIDIA GPU", "rocm": "an AMD GPU"}

# The operations on arrays that are allowed outside of kernels.
_DATA_MOVEMENT = frozenset(
    (
        "broadcast_in_dim",
        "concatenate",
        "convert_element_type",
        "copy",
        "pad",
        "reshape",
        "slice",
        "squeeze",
        "transpose",
    )
)

hooks.DISCOVER_PLUGINS.get()  # jax_platforms alone does not keep JAX from importing its plugins
hooks.DISCOVER_PLUGINS.replace(lambda: None)
jax.config.update("jax_platforms", "cpu")

_TRITON = "__gpu$xla.gpu.triton"

if "jax_pallas_use_mosaic_gpu" in jax.config.values:  # from JAX 0.11 on a kernel is Triton's unless it asks for Mosaic
    jax.config.update("jax_pallas_use_mosaic_gpu", False)

_GPU = AbstractDevice(device_kind="NVIDIA H100", num_cores=None, platform="cuda")

# The GPU that JAX 0.11 requires when it lowers for GPUs. It need not be present, and determines the float8 dtypes.
_TRACED_FOR = AbstractMesh((), (), abstract_device=_GPU)


def wrap_jax_entry(entry: Callable[..., Any]) -> Callable[..., torch.Tensor]:
    """Wrap an entry, a function of arrays and the keyword `interpret`, as a function of tensors that checks the rules.

    The wrapper raises RuleViolation with these verdicts:

    - NOT_YOUR_KERNEL where something is computed outside of kernels, or by a kernel of a package
    - RACE where two steps of a grid write one block
    - TOO_MUCH_TRAFFIC for more than one kernel
    - COMPILE_ERROR where it does not lower for one of PLATFORMS
    - WRONG_TYPE where it returns something other than one array
    """

    def run(*tensors: torch.Tensor) -> torch.Tensor:
        arrays = [jax.dlpack.from_dlpack(tensor.cpu().contiguous()) for tensor in tensors]
        shapes = [ShapeDtypeStruct(array.shape, array.dtype) for array in arrays]
        # This is the only call of the entry. Called again, with interpret=True or with arrays, it could return another
        # program than the one that is examined.
        with use_abstract_mesh(_TRACED_FOR):
            program, output = make_jaxpr(jit(lambda *arguments: entry(*arguments, interpret=False)), return_shape=True)(
                *shapes
            )
        if not isinstance(output, ShapeDtypeStruct):
            raise RuleViolation(Verdict.WRONG_TYPE, f"it returned a {type(output).__name__}; return one jax.Array")
        _examine(program.jaxpr)
        for platform, description in PLATFORMS.items():
            _lower(program, shapes, platform, description)
        (out,) = jit(jaxpr_as_fun(program.replace(jaxpr=_interpreted(program.jaxpr))))(*arrays)
        device = tensors[0].device if tensors else torch.device("cpu")
        # The clone has memory of its own. Without it, the tensor would share the buffer of a jax.Array, which is
        # immutable.
        return torch.utils.dlpack.from_dlpack(out).clone().to(device)

    return run


def _lower(program: ClosedJaxpr, shapes: list[Any], platform: str, description: str) -> None:
    allowed = [DisabledSafetyCheck.custom_call(_TRITON)]
    try:
        export(jit(jaxpr_as_fun(program)), platforms=[platform], disabled_checks=allowed)(*shapes)
    except Exception as error:
        message = " ".join(str(error).split())[:400] or type(error).__name__
        raise RuleViolation(Verdict.COMPILE_ERROR, f"it does not lower for {description}: {message}") from error


def _examine(jaxpr: Jaxpr) -> None:
    kernels = 0
    for equation in _equations(jaxpr):
        name = equation.primitive.name
        if name == "pallas_call":
            kernels += 1
            _check_kernel(equation.params)
            _check_blocks_written_once(equation.params["grid_mapping"])
        elif name not in _DATA_MOVEMENT:
            cause = f"{name} is computed outside of the kernel, by XLA: move it into the function that pallas_call runs"
            raise RuleViolation(Verdict.NOT_YOUR_KERNEL, cause)
    if not kernels:
        raise RuleViolation(Verdict.NOT_YOUR_KERNEL, "it has no pallas_call: write a kernel that pallas_call runs")
    if kernels > 1:
        cause = f"{kernels} kernels read and write the matrix one after another: one pallas_call has to do the work"
        raise RuleViolation(Verdict.TOO_MUCH_TRAFFIC, cause)


def _check_kernel(params: dict[str, Any]) -> None:
    """Raise RuleViolation unless a kernel is the submission's own, and is lowered where the platform has Pallas."""
    kernel = params["jaxpr"].debug_info
    if Path(kernel.func_filename or "").is_relative_to(get_path("purelib")):
        raise RuleViolation(Verdict.NOT_YOUR_KERNEL, f"pallas_call runs {kernel.func_name}, a kernel of a package")
    if params["interpret"]:
        cause = "its kernel is always interpreted, and compiled for no platform: pass interpret to pallas_call"
        raise RuleViolation(Verdict.COMPILE_ERROR, cause)


def _interpreted(jaxpr: Jaxpr) -> Jaxpr:
    """Return the same program with its kernels run by JAX's interpreter."""

    def changed(value: Any) -> Any:
        if isinstance(value, ClosedJaxpr):
            return value.replace(jaxpr=_interpreted(value.jaxpr))
        return _interpreted(value) if isinstance(value, Jaxpr) else value

    def params_of(equation: Any) -> dict[str, Any]:
        if equation.primitive.name == "pallas_call":
            return {**equation.params, "interpret": True}
        return {name: changed(value) for name, value in equation.params.items()}

    return jaxpr.replace(eqns=[equation.replace(params=params_of(equation)) for equation in jaxpr.eqns])


def _equations(jaxpr: Any) -> Iterator[Any]:
    """Yield the equations of a program and of the functions that it calls. A kernel is one equation."""
    for equation in jaxpr.eqns:
        inner = [getattr(value, "jaxpr", value) for value in equation.params.values()]
        nested = [value for value in inner if hasattr(value, "eqns")]
        if equation.primitive.name == "pallas_call" or not nested:
            yield equation
        for program in nested if equation.primitive.name != "pallas_call" else ():
            yield from _equations(program)


def _check_blocks_written_once(mapping: Any) -> None:
    """Raise RuleViolation where two steps of the grid write one block of the output.

    On a TPU the steps follow one another and may share a block. On a GPU they run in parallel.
    """
    for block in mapping.block_mappings[mapping.num_inputs : mapping.num_inputs + mapping.num_outputs]:
        index_map = block.index_map_jaxpr
        writers: dict[tuple[int, ...], tuple[int, ...]] = {}
        for step in itertools.product(*map(range, mapping.grid)):
            indices = tuple(map(int, jax.core.eval_jaxpr(index_map.jaxpr, index_map.consts, *step)))
            if indices in writers:
                conflict = f"steps {writers[indices]} and {step} of the grid both write block {indices} of the output"
                when = "in order on a TPU, at the same time on a GPU"
                raise RuleViolation(Verdict.RACE, f"{conflict}: {when}; let the index map in out_specs follow the step")
            writers[indices] = step
