"""Encode a compiled kernel as bytes for the cache: a header of plain data and the machine code.

Processes that are not trusted write caches, so ``decode`` accepts only what ``encode`` could have written. Machine code
cannot be validated; see ``files`` for who may write it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Annotated

import msgspec

from warpcheck.layout import Access, AtomicStrategy, Space
from warpcheck.lowered_kernel import AccessSite, Check, CompiledShape, Lowered, SassAccess
from warpcheck.runtime.access_history import BLOCK_STRONG, STRONG, UNORDERED, VOLATILE

__all__ = ["decode", "decode_shape", "encode", "encode_shape", "seal", "unseal"]

MAX_CHUNKS = 1 << 16
Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 40)]  # of bytes, lines, parts
Checks = list[tuple[str, list[Count]]]  # the function and the constants of each

_ERRORS = (ValueError, KeyError, RecursionError)  # msgspec's errors are ValueErrors


class _Site(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """An access site, with its fields and those of its ``SassAccess`` in order."""

    space: Space
    access: Access
    bytes: Count
    parts: Count
    strong: int
    line: Count
    text: str
    ptx_line: Count
    sass_bytes: Count
    group: Count
    chunks: Count
    strategy: AtomicStrategy

    def __post_init__(self) -> None:
        # Values that would make the machine read or write outside of its own memory are rejected.
        chunks = self.chunks
        if chunks > MAX_CHUNKS or chunks & chunks - 1 or bool(chunks) != bool(self.group):
            raise ValueError("a group with a number of chunks that cannot be")
        if self.group and not self.sass_bytes:
            raise ValueError("a group of no bytes")
        if not 0 < self.parts <= self.bytes or self.strong not in (0, STRONG, BLOCK_STRONG, VOLATILE, UNORDERED):
            raise ValueError("a site that cannot be")


class _Kernel(msgspec.Struct, forbid_unknown_fields=True):
    """A kernel without its IR, which the machine code replaces. ``code`` has the sizes of its parts."""

    bytes: tuple[Count, Count, Count]
    shared: dict[str, tuple[Count, Count]]
    sites: list[_Site]
    blocks: list[list[tuple[Count, str]]]
    successors: list[list[Count]]
    symbols: list[str]
    clears_registers: bool
    checks: Checks
    code: list[Count]


class _Shape(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    symbol: str
    functions: dict[str, str]
    sites: list[_Site]
    checks: Checks
    carried: bool

    def __post_init__(self) -> None:
        if self.symbol not in self.functions:
            raise ValueError("a shape without code")


def encode(lowered: Lowered, code: Sequence[bytes]) -> bytes:
    """Encode a kernel, without its IR, and the parts of its machine code."""
    header = _Kernel(
        bytes=(lowered.warp_bytes, lowered.shared_bytes, lowered.local_bytes),
        shared={name: (span.start, span.stop) for name, span in lowered.shared.items()},
        sites=_encode_sites(lowered.sites),
        blocks=lowered.blocks,
        successors=lowered.successors,
        symbols=lowered.symbols,
        clears_registers=lowered.clears_registers,
        checks=_encode_checks(lowered.checks),
        code=[len(part) for part in code],
    )
    text = msgspec.json.encode(header)
    return len(text).to_bytes(8, "little") + text + b"".join(code)


def decode(data: bytes, functions: Mapping[str, int]) -> tuple[Lowered, list[bytes]] | None:
    """Decode what ``encode`` wrote, or return None. ``functions`` has the number of constants of each check."""
    end = 8 + int.from_bytes(data[:8], "little")
    try:
        header = msgspec.json.decode(data[8:end], type=_Kernel)
        checks = _decode_checks(header.checks, functions)
        code = _split(header.code, data[end:])
    except _ERRORS:
        return None
    shared = {name: range(*span) for name, span in header.shared.items()}
    sites = _decode_sites(header.sites)
    lowered = Lowered("", *header.bytes, shared, sites, header.blocks, header.symbols, checks)
    lowered.successors = header.successors
    lowered.clears_registers = header.clears_registers
    return lowered, code


def encode_shape(shape: CompiledShape) -> bytes:
    """Encode the IR of a compiled shape."""
    sites = _encode_sites(shape.sites)
    checks = _encode_checks(shape.checks)
    return msgspec.json.encode(_Shape(shape.symbol, shape.functions, sites, checks, shape.carried))


def decode_shape(data: bytes, functions: Mapping[str, int]) -> CompiledShape | None:
    """Decode what ``encode_shape`` wrote, or return None; ``functions`` as in ``decode``."""
    try:
        shape = msgspec.json.decode(data, type=_Shape)
        checks = _decode_checks(shape.checks, functions)
    except _ERRORS:
        return None
    return CompiledShape(shape.symbol, shape.functions, _decode_sites(shape.sites), checks, shape.carried)


def seal(data: bytes) -> bytes:
    """Prepend a digest, so that a truncated or damaged file is detected."""
    return hashlib.sha256(data).digest() + data


def unseal(sealed: bytes | None) -> bytes | None:
    """Return what ``seal`` was given; None for anything else."""
    if sealed is None or hashlib.sha256(sealed[32:]).digest() != sealed[:32]:
        return None
    return sealed[32:]


def _encode_sites(sites: Iterable[AccessSite]) -> list[_Site]:
    return [
        _Site(s.space, s.access, s.bytes, s.parts, int(s.strong), s.line, s.text, s.ptx_line, *s.sass_access)
        for s in sites
    ]


def _decode_sites(sites: Iterable[_Site]) -> list[AccessSite]:
    return [
        AccessSite(
            s.space,
            s.access,
            s.bytes,
            s.parts,
            s.strong,
            s.line,
            s.text,
            s.ptx_line,
            SassAccess(s.sass_bytes, s.group, s.chunks, s.strategy),
        )
        for s in sites
    ]


def _encode_checks(checks: Iterable[Check]) -> Checks:
    return [(check.function, list(check.constants)) for check in sorted(checks)]


def _decode_checks(checks: Checks, functions: Mapping[str, int]) -> set[Check]:
    """Return the checks. Raises KeyError or ValueError for one that is not among the ``functions``."""
    for function, constants in checks:
        if len(constants) != functions[function]:
            raise ValueError(f"a check with {len(constants)} constants")
    return {Check(function, tuple(constants)) for function, constants in checks}


def _split(sizes: list[int], code: bytes) -> list[bytes]:
    ends = list(accumulate(sizes, initial=0))
    if ends[-1] != len(code):
        raise ValueError(f"{len(code)} bytes of machine code, not {ends[-1]}")
    return [code[start:end] for start, end in pairwise(ends)]
