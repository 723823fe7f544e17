"""Plain memory inside functions that Numba compiles: records and numbers at addresses.

Numba's own arrays count references; at one access a lane that would cost more than the access.
"""

from __future__ import annotations

from typing import Any

from numba import types
from numba.extending import intrinsic

__all__ = ["load", "record", "store"]


@intrinsic  # type: ignore[untyped-decorator]
def record(context: Any, address: Any, kind: Any) -> Any:
    """The record of type ``kind`` at an address; its fields can be read and written."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return kind.instance_type(types.int64, kind), codegen


@intrinsic  # type: ignore[untyped-decorator]
def load(context: Any, address: Any, kind: Any) -> Any:
    """The number of type ``kind`` at an address."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        value = context.get_value_type(signature.return_type)
        return builder.load(builder.inttoptr(arguments[0], value.as_pointer()))

    return kind.instance_type(types.int64, kind), codegen


@intrinsic  # type: ignore[untyped-decorator]
def store(context: Any, address: Any, value: Any) -> Any:
    """Write a number to an address."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.store(arguments[1], builder.inttoptr(arguments[0], arguments[1].type.as_pointer()))
        return context.get_dummy_value()

    return types.void(types.int64, value), codegen
