"""An entry of JAX whose kernel is Pallas's: traced once, and that program is read, lowered for TPUs and GPUs, and run.

Neither is needed for that. The kernel runs on the CPU in JAX's interpreter, one step of the grid after another, with
NaN in what a block has beyond its array. What the interpreter cannot show is read from the trace: which blocks each
step writes, and what is computed outside of the kernel.

JAX stays on the CPU where there is a GPU as well. Its plugin for CUDA takes most of the GPU's memory, writes where a
submission's process may not write, and runs another program: Pallas has Triton load and store whole blocks there, also
what lies beyond the array.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from sysconfig import get_path
from typing import Any

import jax
import torch
from jax import ShapeDtypeStruct, jit, make_jaxpr  # as they are before there is a submission
from jax.export import DisabledSafetyCheck, export
from jax.extend.core import ClosedJaxpr, Jaxpr, jaxpr_as_fun
from jax.sharding import AbstractDevice, AbstractMesh, use_abstract_mesh

from kernelpath.hooks import jax as hooks
from kernelpath.verdict import Verdict
from kernelpath.work.exception_findings import RuleViolation

PLATFORMS = {"tpu": "a TPU", "cuda": "an NVIDIA GPU", "rocm": "an AMD GPU"}
"""What the kernel is lowered for: Mosaic's code for the TPU, Triton's for the GPUs."""

_MOVING = frozenset(
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
"""What may be done to arrays outside of kernels."""

hooks.DISCOVER_PLUGINS.get()  # jax_platforms alone does not keep JAX from importing its plugins
hooks.DISCOVER_PLUGINS.replace(lambda: None)
jax.config.update("jax_platforms", "cpu")

_TRITON = "__gpu$xla.gpu.triton"

if "jax_pallas_use_mosaic_gpu" in jax.config.values:  # from JAX 0.11 on a kernel is Triton's unless it asks for Mosaic
    jax.config.update("jax_pallas_use_mosaic_gpu", False)

_CARD = AbstractDevice(device_kind="NVIDIA H100", num_cores=None, platform="cuda")
_TRACED_FOR = AbstractMesh((), (), abstract_device=_CARD)
"""JAX 0.11 wants to know a GPU when it lowers for one. It need not be here, and says which float8 numbers there are."""


def wrap_jax_entry(entry: Callable[..., Any]) -> Callable[..., torch.Tensor]:
    """The entry, a function of arrays and the keyword `interpret`, as one of tensors that holds it to the rules.

    Raises blame.Refused: NOT_YOUR_KERNEL where something is computed outside of kernels, or by one of a package, RACE
    where two steps of a grid write one block, TOO_MUCH_TRAFFIC for more than one kernel, COMPILE_ERROR where it does
    not lower for one of PLATFORMS, WRONG_TYPE.
    """

    def called(*tensors: torch.Tensor) -> torch.Tensor:
        arrays = [jax.dlpack.from_dlpack(tensor.cpu().contiguous()) for tensor in tensors]
        shapes = [ShapeDtypeStruct(array.shape, array.dtype) for array in arrays]
        with use_abstract_mesh(_TRACED_FOR):
            program, made = make_jaxpr(jit(lambda *given: entry(*given, interpret=False)), return_shape=True)(*shapes)
        if not isinstance(made, ShapeDtypeStruct):
            raise RuleViolation(Verdict.WRONG_TYPE, f"it returned a {type(made).__name__}; return one jax.Array")
        _examine(program.jaxpr)
        for platform, what in PLATFORMS.items():
            _lower(program, shapes, platform, what)
        (out,) = jit(jaxpr_as_fun(program.replace(jaxpr=_interpreted(program.jaxpr))))(*arrays)
        device = tensors[0].device if tensors else torch.device("cpu")
        return torch.utils.dlpack.from_dlpack(out).clone().to(device)

    return called


def _lower(program: ClosedJaxpr, shapes: list[Any], platform: str, what: str) -> None:
    allowed = [DisabledSafetyCheck.custom_call(_TRITON)]
    try:
        export(jit(jaxpr_as_fun(program)), platforms=[platform], disabled_checks=allowed)(*shapes)
    except Exception as error:
        said = " ".join(str(error).split())[:400] or type(error).__name__
        raise RuleViolation(Verdict.COMPILE_ERROR, f"it does not lower for {what}: {said}") from error


def _examine(jaxpr: Jaxpr) -> None:
    kernels = 0
    for equation in _equations(jaxpr):
        name = equation.primitive.name
        if name == "pallas_call":
            kernels += 1
            _own(equation.params)
            _written_once(equation.params["grid_mapping"])
        elif name not in _MOVING:
            cause = f"{name} is computed outside of the kernel, by XLA: move it into the function that pallas_call runs"
            raise RuleViolation(Verdict.NOT_YOUR_KERNEL, cause)
    if not kernels:
        raise RuleViolation(Verdict.NOT_YOUR_KERNEL, "it has no pallas_call: write a kernel that pallas_call runs")
    if kernels > 1:
        cause = f"{kernels} kernels read and write the matrix one after another: one pallas_call has to do the work"
        raise RuleViolation(Verdict.TOO_MUCH_TRAFFIC, cause)


def _own(params: dict[str, Any]) -> None:
    """Whether a kernel is the submission's, and lowered where the platform has it."""
    kernel = params["jaxpr"].debug_info
    if Path(kernel.func_filename or "").is_relative_to(get_path("purelib")):
        raise RuleViolation(Verdict.NOT_YOUR_KERNEL, f"pallas_call runs {kernel.func_name}, a kernel of a package")
    if params["interpret"]:
        cause = "its kernel is always interpreted, and compiled for no platform: pass interpret on to pallas_call"
        raise RuleViolation(Verdict.COMPILE_ERROR, cause)


def _interpreted(jaxpr: Jaxpr) -> Jaxpr:
    """The same program, its kernels run by JAX's interpreter."""

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
    """The equations of a program and of the functions that it calls, kernels left whole."""
    for equation in jaxpr.eqns:
        inner = [getattr(value, "jaxpr", value) for value in equation.params.values()]
        called = [value for value in inner if hasattr(value, "eqns")]
        if equation.primitive.name == "pallas_call" or not called:
            yield equation
        for one in called if equation.primitive.name != "pallas_call" else ():
            yield from _equations(one)


def _written_once(mapping: Any) -> None:
    """On a TPU the steps of a grid follow one another and may share a block; on a GPU they run side by side."""
    for block in mapping.block_mappings[mapping.num_inputs : mapping.num_inputs + mapping.num_outputs]:
        of = block.index_map_jaxpr
        written: dict[tuple[int, ...], tuple[int, ...]] = {}
        for step in itertools.product(*map(range, mapping.grid)):
            place = tuple(map(int, jax.core.eval_jaxpr(of.jaxpr, of.consts, *step)))
            if place in written:
                both = f"steps {written[place]} and {step} of the grid both write block {place} of the output"
                when = "in order on a TPU, at the same time on a GPU"
                raise RuleViolation(Verdict.RACE, f"{both}: {when}; let the index map in out_specs follow the step")
            written[place] = step
