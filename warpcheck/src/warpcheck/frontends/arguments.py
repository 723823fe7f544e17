"""Check and convert the grid, the block and the arguments of a CUDA C++ launch before anything runs."""

from __future__ import annotations

import ctypes
import operator
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from warpcheck.frontends.declarations import Parameter
from warpcheck.frontends.tensor_map import TensorMap

Dim3 = tuple[int, int, int]
Value = int | float | bytes

# The ctypes type of each PTX scalar type.
#
# PTX types carry a sign only where an instruction needs one, so an integer may be in the signed or the unsigned range.
C_TYPES: dict[str, Any] = {
    "u8": ctypes.c_uint8,
    "s8": ctypes.c_int8,
    "u16": ctypes.c_uint16,
    "s16": ctypes.c_int16,
    "u32": ctypes.c_uint32,
    "s32": ctypes.c_int32,
    "u64": ctypes.c_uint64,
    "s64": ctypes.c_int64,
    "f32": ctypes.c_float,
    "f64": ctypes.c_double,
}


def parse_configuration(launch: Any) -> tuple[Dim3, Dim3, int]:
    """Return grid, block and bytes of dynamic shared memory of `kernel[launch]`. Raises ValueError."""
    if not isinstance(launch, tuple) or len(launch) not in (2, 3):
        raise ValueError("launch a kernel as kernel[grid, block](…) or kernel[grid, block, shared_bytes](…)")
    grid, block, shared = (*launch, 0)[:3]
    return dim3("grid", grid), dim3("block", block), operator.index(shared)


def dim3(noun: str, size: Any) -> Dim3:
    """Return an extent along x, y and z from one to three integers.

    Args:
        noun: The name of the extent in messages: "grid", "block" or "cluster".

    Raises:
        ValueError: `size` is not one to three positive integers.
    """
    try:
        sizes = tuple(map(operator.index, size if isinstance(size, (Sequence, np.ndarray)) else (size,)))
    except TypeError:
        raise ValueError(f"{noun} {size!r} is not of whole numbers: divide with // and round up") from None
    if 0 in sizes:
        raise ValueError(
            f"the {noun} has 0 {'threads' if noun == 'block' else 'blocks'}: round up, (n + size - 1) // size"
        )
    if not 1 <= len(sizes) <= 3 or min(sizes) < 1:
        raise ValueError(f"{noun} {size!r}: expected one to three positive integers")
    x, y, z = (*sizes, 1, 1)[:3]
    return x, y, z


def convert_arguments(kernel: str, parameters: tuple[Parameter, ...], arguments: tuple[Any, ...]) -> list[Value]:
    """Convert every argument to its parameter's type.

    Returns:
        For each argument its address for a tensor, its bytes for a struct, else an int or a float.

    Raises:
        TypeError: An argument does not fit; the message names the parameter and the kernel.
    """
    if len(arguments) != len(parameters):
        declared = ", ".join(parameter.declared or parameter.name for parameter in parameters)
        unfilled = parameters[len(arguments) :]
        lacks = f", none for {unfilled[0].declared or unfilled[0].name}" if unfilled else ""
        raise TypeError(f"{kernel} takes {len(parameters)} arguments ({declared}), got {len(arguments)}{lacks}")
    return [_value(kernel, parameter, argument) for parameter, argument in zip(parameters, arguments, strict=True)]


def tensor_of(argument: Any) -> Any:
    """Return the tensor that a kernel reaches through an argument; None if the argument is not a tensor or its map."""
    if isinstance(argument, TensorMap):
        return argument.tensor
    return argument if is_tensor(argument) else None


def is_tensor(argument: Any) -> bool:
    """Return whether an argument is passed as the address of its data."""
    return hasattr(argument, "data_ptr")


def _value(kernel: str, parameter: Parameter, argument: Any) -> Value:
    if parameter.type.startswith("b8["):
        return _struct(kernel, parameter, argument)
    # Most scalars of NumPy are no int or float, but their items are.
    if isinstance(argument, np.generic):
        argument = argument.item()
    # A pointer behind a typedef is a u64 like an integer; see declarations.Parameter.
    if parameter.type in ("ptr", "u64") and is_tensor(argument):
        address: int = argument.data_ptr()
        return address
    if parameter.type == "ptr":
        if argument is None:
            return 0
        raise _mismatch(kernel, parameter, "a tensor", argument)
    if parameter.type in ("f32", "f64"):
        if not isinstance(argument, (int, float)):
            raise _mismatch(kernel, parameter, "a number", argument)
        return float(argument)
    if parameter.type not in C_TYPES:
        raise TypeError(f"{parameter.name} of {kernel}: parameters of type {parameter.type} are not supported")
    # A tensor of one element has __index__ too. Its value would be passed silently where the kernel expects a number.
    if not hasattr(argument, "__index__") or is_tensor(argument):
        raise _mismatch(kernel, parameter, "an integer", argument)
    number = operator.index(argument)
    # From the least signed to the largest unsigned number: the type in PTX does not tell which of both the source has.
    bits = 8 * ctypes.sizeof(C_TYPES[parameter.type])
    if not -(1 << bits - 1) <= number < 1 << bits:
        raise _mismatch(kernel, parameter, f"an integer of {bits} bits", argument)
    return number


def describe_dtype_mismatches(parameters: tuple[Parameter, ...], arguments: tuple[Any, ...]) -> Iterator[str]:
    """Describe each tensor whose dtype differs from the element type of its pointer parameter.

    Pointers to unsigned integers, vectors and void are skipped: kernels use them for raw bits of any dtype.
    """
    for parameter, argument in zip(parameters, arguments, strict=True):
        pointer = _POINTER.match(parameter.declared)
        if (
            pointer
            and is_tensor(argument)
            and (dtype := str(argument.dtype).removeprefix("torch.")) not in POINTED_DTYPES[pointer[1]]
        ):
            article = "an" if dtype.startswith("int") else "a"
            yield f"{parameter.declared} is given {article} {dtype} tensor: the kernel takes its bits for {pointer[1]}"


# The dtypes that a pointer to each C++ type accepts without a warning.
POINTED_DTYPES = {
    "float": ("float32",),
    "double": ("float64",),
    "__half": ("float16",),
    "half": ("float16",),
    "__nv_bfloat16": ("bfloat16",),
    "nv_bfloat16": ("bfloat16",),
    "short": ("int16", "uint16"),
    "int": ("int32", "uint32"),
    "long long": ("int64", "uint64"),
}

_POINTER = re.compile(rf"(?:(?:const|volatile)\s+)*({'|'.join(POINTED_DTYPES)})\s*(?:const\s*)?\*(?!.*\*)")


def _struct(kernel: str, parameter: Parameter, argument: Any) -> bytes:
    nbytes = int(parameter.type[len("b8[") : -1])
    if isinstance(argument, TensorMap):
        content = argument.content
    elif isinstance(argument, (int, float, np.generic)):
        content = _half(parameter.declared, float(argument))
    else:
        try:
            content = bytes(memoryview(argument))
        except TypeError:
            content = b""
    if len(content) != nbytes:
        raise _mismatch(kernel, parameter, f"{nbytes} bytes (a ctypes.Structure, say)", argument)
    return content


def _half(declared: str, number: float) -> bytes:
    """Return the bytes of a number as __half or __nv_bfloat16, rounded to nearest even; b"" for other types."""
    if re.search(r"\b(__)?half\b", declared):
        with np.errstate(over="ignore"):
            return np.float16(number).tobytes()
    if re.search(r"\b(__)?nv_bfloat16\b", declared):
        # A bfloat16 is the upper half of a float32. Adding 0x7FFF, and 1 more if the lowest kept bit is set, carries
        # into the upper half exactly where round-to-nearest-even rounds up. An infinity or a NaN must not be rounded.
        bits = int(np.float32(number).view(np.uint32))
        rounded = bits + 0x7FFF + (bits >> 16 & 1) if np.isfinite(number) else bits
        return (rounded >> 16).to_bytes(2, "little")
    return b""


def _mismatch(kernel: str, parameter: Parameter, expected: str, argument: Any) -> TypeError:
    got = f"{argument!r}" if isinstance(argument, (int, float)) or argument is None else type(argument).__name__
    if is_tensor(argument):
        got += ", whose number is its .item()"
    elif expected == "a tensor" and isinstance(argument, int) and argument >= 1 << 32:
        got += ": an address alone does not say how much memory is there"
    elif expected == "a tensor" and isinstance(argument, (int, float)) and argument:
        got += ": the launch has the arguments in another order"
    elif isinstance(argument, np.ndarray):
        got += ", a NumPy array: pass the torch tensor itself"
    return TypeError(f"{parameter.declared or parameter.name} of {kernel} takes {expected}, got {got}")
