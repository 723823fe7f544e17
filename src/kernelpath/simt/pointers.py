"""Addresses as typed pointers inside functions that Numba compiles."""

from __future__ import annotations

from typing import Any

from numba import types
from numba.extending import intrinsic

__all__ = ["pointer"]


@intrinsic  # type: ignore[untyped-decorator]
def pointer(context: Any, address: Any, kind: Any) -> Any:
    """``pointer(address, types.int64)``: an address as a pointer to values of that type, for ``numba.carray``."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return types.CPointer(kind.instance_type)(types.int64, kind), codegen
