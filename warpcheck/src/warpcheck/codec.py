"""A compiled kernel as bytes for the cache: a header of plain data and the machine code.

Caches are written by processes that are not trusted, so nothing is believed that is read: ``decode`` takes what
``encode`` could have made and nothing else. Machine code cannot be judged; see ``files`` for who may write it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any, TypeVar

from warpcheck.layout import Access, AtomicStrategy, Space
from warpcheck.lowered import AccessSite, Check, CompiledShape, Lowered, SassAccess
from warpcheck.runtime.history import STRONG, UNORDERED, VOLATILE

__all__ = ["decode", "decode_form", "encode", "encode_form", "seal", "unseal"]

T = TypeVar("T")
MOST = 1 << 40  # no number in a header is larger: bytes, lines, parts
MOST_CHUNKS = 1 << 16


def encode(lowered: Lowered, code: Sequence[bytes]) -> bytes:
    """A kernel, without its IR, and the parts of its machine code."""
    header = {
        "bytes": [lowered.warp_bytes, lowered.shared_bytes, lowered.local_bytes],
        "shared": {name: [span.start, span.stop] for name, span in lowered.shared.items()},
        "sites": _of_sites(lowered.sites),
        "blocks": lowered.blocks,
        "symbols": lowered.symbols,
        "checks": _of_checks(lowered.checks),
        "code": [len(part) for part in code],
    }
    text = json.dumps(header, separators=(",", ":")).encode()
    return len(text).to_bytes(8, "little") + text + b"".join(code)


def decode(data: bytes, functions: Mapping[str, int]) -> tuple[Lowered, list[bytes]] | None:
    """What ``encode`` made, or None. ``functions`` has the checks that there are: how many constants each takes."""
    end = 8 + int.from_bytes(data[:8], "little")
    try:
        header = json.loads(data[8:end].decode())
        return _lowered(header, functions), _parts(_list(header["code"], _number), data[end:])
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):  # JSON's errors are ValueErrors
        return None


def encode_form(form: CompiledShape) -> bytes:
    """Code that kernels share, as IR."""
    fields = form.symbol, form.functions, _of_sites(form.sites), _of_checks(form.checks), form.carried
    return json.dumps(fields, separators=(",", ":")).encode()


def decode_form(data: bytes, functions: Mapping[str, int]) -> CompiledShape | None:
    """What ``encode_form`` made, or None; ``functions`` as in ``decode``."""
    try:
        symbol, code, sites, checks, carried = json.loads(data.decode())
        texts = {_text(name): _text(text) for name, text in code.items()}
        if _text(symbol) not in texts or not isinstance(carried, bool):
            raise ValueError("a form without code")
        return CompiledShape(symbol, texts, _list(sites, _site), {_check(item, functions) for item in checks}, carried)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def seal(data: bytes) -> bytes:
    """Bytes with their digest before them, so that a file that was cut or damaged is not taken for whole."""
    return hashlib.sha256(data).digest() + data


def unseal(sealed: bytes | None) -> bytes | None:
    """What ``seal`` was given; None for anything else."""
    if sealed is None or hashlib.sha256(sealed[32:]).digest() != sealed[:32]:
        return None
    return sealed[32:]


def _of_sites(sites: Iterable[AccessSite]) -> list[Any]:
    return [[s.space, s.access, s.bytes, s.parts, int(s.strong), s.line, s.text, s.at, *s.served] for s in sites]


def _of_checks(checks: Iterable[Check]) -> list[Any]:
    return [[check.function, *check.constants] for check in sorted(checks)]


def _lowered(header: Any, functions: Mapping[str, int]) -> Lowered:
    """Raises ValueError, TypeError or KeyError for a header that ``encode`` does not make."""
    warp_bytes, shared_bytes, local_bytes = map(_number, header["bytes"])
    shared = {_text(name): range(_number(start), _number(stop)) for name, (start, stop) in header["shared"].items()}
    return Lowered(
        "",
        warp_bytes,
        shared_bytes,
        local_bytes,
        shared,
        _list(header["sites"], _site),
        _list(header["blocks"], lambda block: _list(block, _named_line)),
        _list(header["symbols"], _text),
        {_check(item, functions) for item in header["checks"]},
    )


def _parts(sizes: list[int], code: bytes) -> list[bytes]:
    ends = list(accumulate(sizes, initial=0))
    if ends[-1] != len(code):
        raise ValueError(f"{len(code)} bytes of machine code, not {ends[-1]}")
    return [code[start:end] for start, end in pairwise(ends)]


def _site(item: Any) -> AccessSite:
    space, access, size, parts, strong, line, text, at, *served, way = item
    width, group, chunks = map(_number, served)
    if chunks > MOST_CHUNKS or chunks & chunks - 1 or bool(chunks) != bool(group) or (group and not width):
        raise ValueError("a group that cannot be")
    if not 0 < _number(parts) <= _number(size) or strong not in (0, STRONG, VOLATILE, UNORDERED):
        raise ValueError("a site that cannot be")
    place = _number(line), _text(text), _number(at)
    return AccessSite(
        Space(space), Access(access), size, parts, strong, *place, SassAccess(width, group, chunks, AtomicStrategy(way))
    )


def _named_line(item: Any) -> tuple[int, str]:
    line, name = item
    return _number(line), _text(name)


def _check(item: Any, functions: Mapping[str, int]) -> Check:
    function, *constants = item
    if len(constants) != functions[_text(function)]:
        raise ValueError(f"a check with {len(constants)} constants")
    return Check(function, tuple(map(_number, constants)))


def _list(items: Any, one: Callable[[Any], T]) -> list[T]:
    if not isinstance(items, list):
        raise TypeError("not a list")
    return [one(item) for item in items]


def _number(value: Any) -> int:
    if type(value) is not int or not 0 <= value < MOST:
        raise ValueError(f"{value!r} is not a count")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("not a text")
    return value
