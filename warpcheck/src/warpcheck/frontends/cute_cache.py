"""Keeps what CuTe DSL's passes make of a traced program: PTX and host code, by content, in the cache of the process.

The DSL's own cache serves the process that filled it; what `cute.compile` makes it keeps nowhere. A program is traced
every time, because what Python computes there may come from anywhere; what has been traced then says all.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec

from warpcheck import codec
from warpcheck.cache import cache_read, cache_write
from warpcheck.hooks import Changed
from warpcheck.hooks import cute as hooks


class _Compiled(msgspec.Struct):
    """module: MLIR bytecode, any cubin in it. ptx: the files that were dumped, by name."""

    module: bytes
    ptx: dict[str, bytes]


@contextmanager
def cached_passes(folder: Path) -> Iterator[None]:
    """Inside the `with` block, a module that was compiled before is not compiled again. folder: where PTX is dumped."""
    try:
        provider, parse = hooks.COMPILER.of(hooks.DSL.get()()), hooks.PARSE.get()
        hooks.PASSES.get()
    except Changed:  # nothing is kept then
        yield
        return
    compile_module = provider.compile

    def compile_or_read(module: Any, pipeline: str, *options: Any, **named: Any) -> Any:
        passes = pipeline.replace(str(folder), "")
        traced = (_bytecode(module), passes, options, named, version("nvidia-cutlass-dsl"))
        key = hashlib.sha256(repr(traced).encode()).hexdigest()
        kept = _decoded(cache_read("cute", key))
        if kept is not None:
            for name, content in kept.ptx.items():
                (folder / name).write_bytes(content)
            return parse(kept.module, module.context)
        compiled = compile_module(module, pipeline, *options, **named)
        made = _Compiled(_bytecode(compiled), {file.name: file.read_bytes() for file in folder.glob("*.ptx")})
        cache_write("cute", key, codec.seal(msgspec.msgpack.encode(made)))
        return compiled

    provider.compile = compile_or_read
    try:
        yield
    finally:
        del provider.compile


def _bytecode(module: Any) -> bytes:
    content = io.BytesIO()
    module.operation.write_bytecode(content)
    return content.getvalue()


def _decoded(sealed: bytes | None) -> _Compiled | None:
    """None where nothing is kept, or something else."""
    try:
        return msgspec.msgpack.decode(codec.unseal(sealed) or b"", type=_Compiled)
    except msgspec.MsgspecError:
        return None
