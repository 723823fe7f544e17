"""Encode a compiled kernel as bytes for the cache: a header of plain data and the machine code.

Processes that are not trusted write caches, so ``decode`` accepts only what ``encode`` could have written. Machine code
cannot be validated; see ``files`` for who may write it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any, TypeVar

from warpcheck.layout import Access, AtomicStrategy, Space
from warpcheck.lowered_kernel import AccessSite, Check, CompiledShape, Lowered, SassAccess
from warpcheck.runtime.access_history import STRONG, UNORDERED, VOLATILE

__all__ = ["decode", "decode_shape", "encode", "encode_shape", "seal", "unseal"]

T = TypeVar("T")
MAX_NUMBER = 1 << 40  # no number in a header is larger: bytes, lines, parts
MAX_CHUNKS = 1 << 16


def encode(lowered: Lowered, code: Sequence[bytes]) -> bytes:
    """Encode a kernel, without its IR, and the parts of its machine code."""
    header = {
        "bytes": [lowered.warp_bytes, lowered.shared_bytes, lowered.local_bytes],
        "shared": {name: [span.start, span.stop] for name, span in lowered.shared.items()},
        "sites": _encode_sites(lowered.sites),
        "blocks": lowered.blocks,
        "successors": lowered.successors,
        "symbols": lowered.symbols,
        "checks": _encode_checks(lowered.checks),
        "code": [len(part) for part in code],
    }
    text = json.dumps(header, separators=(",", ":")).encode()
    return len(text).to_bytes(8, "little") + text + b"".join(code)


def decode(data: bytes, functions: Mapping[str, int]) -> tuple[Lowered, list[bytes]] | None:
    """Decode what ``encode`` wrote, or return None. ``functions`` has the number of constants of each check."""
    end = 8 + int.from_bytes(data[:8], "little")
    try:
        header = json.loads(data[8:end].decode())
        return _decode_header(header, functions), _split(_decode_list(header["code"], _require_number), data[end:])
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):  # JSON's errors are ValueErrors
        return None


def encode_shape(shape: CompiledShape) -> bytes:
    """Encode the IR of a compiled shape."""
    fields = shape.symbol, shape.functions, _encode_sites(shape.sites), _encode_checks(shape.checks), shape.carried
    return json.dumps(fields, separators=(",", ":")).encode()


def decode_shape(data: bytes, functions: Mapping[str, int]) -> CompiledShape | None:
    """Decode what ``encode_shape`` wrote, or return None; ``functions`` as in ``decode``."""
    try:
        symbol, functions_by_name, sites, checks, carried = json.loads(data.decode())
        texts = {_require_text(name): _require_text(text) for name, text in functions_by_name.items()}
        if _require_text(symbol) not in texts or not isinstance(carried, bool):
            raise ValueError("a shape without code")
        return CompiledShape(
            symbol,
            texts,
            _decode_list(sites, _decode_site),
            {_decode_check(item, functions) for item in checks},
            carried,
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def seal(data: bytes) -> bytes:
    """Prepend a digest, so that a truncated or damaged file is detected."""
    return hashlib.sha256(data).digest() + data


def unseal(sealed: bytes | None) -> bytes | None:
    """Return what ``seal`` was given; None for anything else."""
    if sealed is None or hashlib.sha256(sealed[32:]).digest() != sealed[:32]:
        return None
    return sealed[32:]


def _encode_sites(sites: Iterable[AccessSite]) -> list[Any]:
    return [
        [s.space, s.access, s.bytes, s.parts, int(s.strong), s.line, s.text, s.ptx_line, *s.sass_access] for s in sites
    ]


def _encode_checks(checks: Iterable[Check]) -> list[Any]:
    return [[check.function, *check.constants] for check in sorted(checks)]


def _decode_header(header: Any, functions: Mapping[str, int]) -> Lowered:
    """Decode a header. Raises ValueError, TypeError or KeyError for one that ``encode`` does not write."""
    warp_bytes, shared_bytes, local_bytes = map(_require_number, header["bytes"])
    shared = {
        _require_text(name): range(_require_number(start), _require_number(stop))
        for name, (start, stop) in header["shared"].items()
    }
    # The IR is left out: the machine code replaces it.
    return Lowered(
        "",
        warp_bytes,
        shared_bytes,
        local_bytes,
        shared,
        _decode_list(header["sites"], _decode_site),
        _decode_list(header["blocks"], lambda block: _decode_list(block, _decode_named_line)),
        _decode_list(header["symbols"], _require_text),
        {_decode_check(item, functions) for item in header["checks"]},
        successors=_decode_list(header["successors"], lambda numbers: _decode_list(numbers, _require_number)),
    )


def _split(sizes: list[int], code: bytes) -> list[bytes]:
    ends = list(accumulate(sizes, initial=0))
    if ends[-1] != len(code):
        raise ValueError(f"{len(code)} bytes of machine code, not {ends[-1]}")
    return [code[start:end] for start, end in pairwise(ends)]


def _decode_site(item: Any) -> AccessSite:
    space, access, size, parts, strong, line, text, at, *sass, way = item
    width, group, chunks = map(_require_number, sass)
    # Values that would make the machine read or write outside of its own memory are rejected.
    if chunks > MAX_CHUNKS or chunks & chunks - 1 or bool(chunks) != bool(group) or (group and not width):
        raise ValueError("a group that cannot be")
    if not 0 < _require_number(parts) <= _require_number(size) or strong not in (0, STRONG, VOLATILE, UNORDERED):
        raise ValueError("a site that cannot be")
    location = _require_number(line), _require_text(text), _require_number(at)
    return AccessSite(
        Space(space),
        Access(access),
        size,
        parts,
        strong,
        *location,
        SassAccess(width, group, chunks, AtomicStrategy(way)),
    )


def _decode_named_line(item: Any) -> tuple[int, str]:
    line, name = item
    return _require_number(line), _require_text(name)


def _decode_check(item: Any, functions: Mapping[str, int]) -> Check:
    function, *constants = item
    if len(constants) != functions[_require_text(function)]:
        raise ValueError(f"a check with {len(constants)} constants")
    return Check(function, tuple(map(_require_number, constants)))


def _decode_list(items: Any, decode_item: Callable[[Any], T]) -> list[T]:
    if not isinstance(items, list):
        raise TypeError("not a list")
    return [decode_item(item) for item in items]


def _require_number(value: Any) -> int:
    # Not isinstance, for which True is an integer.
    if type(value) is not int or not 0 <= value < MAX_NUMBER:
        raise ValueError(f"{value!r} is not a count")
    return value


def _require_text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("not a text")
    return value
