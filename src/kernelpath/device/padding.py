"""Clear the padding of structs that a host passes by value.

It holds leftover bytes that no kernel reads, which must not make two transcripts differ. The same holds for the unused
end of a tensor map.
"""

from __future__ import annotations

from kernelpath.device import messages
from warpcheck import pointers, ptx, simt, tensor_map

__all__ = ["zeroed"]


def zeroed(module: simt.Module, request: messages.Launch) -> list[int | float | messages.Pointer | messages.Blob]:
    """Return the arguments of a launch, with zeros in the bytes that its kernel does not read."""
    arguments = list(request.arguments)
    if not any(isinstance(value, messages.Blob) for value in arguments):
        return arguments
    for number, unread in enumerate(ptx.unread(module.parsed.functions[request.kernel])[: len(arguments)]):
        value = arguments[number]
        if isinstance(value, messages.Blob):
            end = tensor_map.READ if pointers.is_tensor_map(value.content) else len(value.content)
            content = bytes(
                0 if offset in unread or offset >= end else byte for offset, byte in enumerate(value.content)
            )
            arguments[number] = messages.Blob(content, value.pointers)
    return arguments
