"""An entry of JAX whose kernel is Pallas's: traced, read, lowered for TPUs and for GPUs, and run.

Neither is needed for that. On the CPU the kernel runs in JAX's interpreter, one step of the grid after another, with
NaN in what a block has beyond its array. What the interpreter cannot show is read from the trace: which blocks each
step writes, and what is computed outside of the kernel.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import torch
from jax import export

from kernelpath.verdict import Verdict
from kernelpath.work.blame import Refused

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

_TRITON = "__gpu$xla.gpu.triton"

jax.config.update("jax_pallas_use_mosaic_gpu", False)  # Triton, for the GPUs of NVIDIA and of AMD


def of_torch(entry: Callable[..., Any]) -> Callable[..., torch.Tensor]:
    """The entry, a function of arrays and the keyword `interpret`, as one of tensors that holds it to the rules.

    Raises blame.Refused: NOT_YOUR_KERNEL where something is computed outside of kernels, RACE where two steps of a
    grid write one block, COMPILE_ERROR where a kernel does not lower for one of PLATFORMS, WRONG_TYPE.
    """

    def called(*tensors: torch.Tensor) -> torch.Tensor:
        arrays = [jax.dlpack.from_dlpack(tensor.contiguous()) for tensor in tensors]
        shapes = [jax.ShapeDtypeStruct(array.shape, array.dtype) for array in arrays]
        compiled = jax.jit(lambda *given: entry(*given, interpret=False))
        _examine(jax.make_jaxpr(compiled)(*shapes).jaxpr)
        for platform, what in PLATFORMS.items():
            _lower(compiled, shapes, platform, what)
        made = entry(*arrays, interpret=jax.default_backend() == "cpu")
        if not isinstance(made, jax.Array):
            raise Refused(Verdict.WRONG_TYPE, f"it returned a {type(made).__name__}; return one jax.Array")
        return torch.utils.dlpack.from_dlpack(made).clone()

    return called


def _lower(compiled: Any, shapes: list[Any], platform: str, what: str) -> None:
    allowed = [export.DisabledSafetyCheck.custom_call(_TRITON)]
    try:
        export.export(compiled, platforms=[platform], disabled_checks=allowed)(*shapes)
    except Exception as error:
        said = " ".join(str(error).split())[:400]
        raise Refused(Verdict.COMPILE_ERROR, f"it does not lower for {what}: {said}") from error


def _examine(jaxpr: Any) -> None:
    kernels = 0
    for equation in _equations(jaxpr):
        name = equation.primitive.name
        if name == "pallas_call":
            kernels += 1
            _written_once(equation.params["grid_mapping"])
        elif name not in _MOVING:
            cause = f"{name} is computed outside of the kernel, by XLA: move it into the function that pallas_call runs"
            raise Refused(Verdict.NOT_YOUR_KERNEL, cause)
    if not kernels:
        raise Refused(Verdict.NOT_YOUR_KERNEL, "it has no pallas_call: write a kernel that pallas_call runs")


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
                raise Refused(Verdict.RACE, f"{both}: in order on a TPU, at the same time on a GPU")
            written[place] = step
