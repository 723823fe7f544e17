"""The padding of structs that a host passes by value: it holds what was there before, and no kernel reads it.

The same goes for the end of a tensor map.
"""

from __future__ import annotations

from kernelpath.device import messages
from warpcheck import pointers, ptx, simt, tensor_map

__all__ = ["zeroed"]


def zeroed(module: simt.Module, asked: messages.Launch) -> list[int | float | messages.Pointer | messages.Blob]:
    """The arguments of a launch with zeros in the bytes that its kernel does not read."""
    told = list(asked.arguments)
    if not any(isinstance(value, messages.Blob) for value in told):
        return told
    for number, unread in enumerate(ptx.unread(module.parsed.functions[asked.kernel])[: len(told)]):
        value = told[number]
        if isinstance(value, messages.Blob):
            end = tensor_map.READ if pointers.is_tensor_map(value.content) else len(value.content)
            content = bytes(0 if at in unread or at >= end else byte for at, byte in enumerate(value.content))
            told[number] = messages.Blob(content, value.pointers)
    return told
