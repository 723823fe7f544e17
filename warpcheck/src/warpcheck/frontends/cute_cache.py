"""Cache the output of CuTe DSL's compiler passes, PTX and host code, on disk.

The DSL's own cache lives as long as its process, and `cute.compile` does not use it. A program is traced every time,
because tracing runs Python code that may depend on anything. The traced module is then the complete input of the
passes, so its bytecode serves as the key.
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
    """A compiled program.

    Attributes:
        module: The MLIR bytecode, which includes the cubin.
        ptx: The content of each dumped PTX file, by file name.
    """

    module: bytes
    ptx: dict[str, bytes]


@contextmanager
def cached_passes(folder: Path) -> Iterator[None]:
    """Reuse the output of a module's earlier compilation inside the `with` block. folder: the dump directory of PTX."""
    try:
        provider = hooks.COMPILER.of(hooks.DSL.get()())
        parse = hooks.PARSE.get()
        hooks.PASSES.get()
    except Changed:  # Another version of the DSL: compile without a cache.
        yield
        return
    compile_module = provider.compile

    def compile_or_read(module: Any, pipeline: str, *options: Any, **keywords: Any) -> Any:
        passes = pipeline.replace(
            str(folder), ""
        )  # The dump directory is a temporary one, and must not change the key.
        traced = (_bytecode(module), passes, options, keywords, version("nvidia-cutlass-dsl"))
        key = hashlib.sha256(repr(traced).encode()).hexdigest()
        entry = _decoded(cache_read("cute", key))
        if entry is not None:
            for name, content in entry.ptx.items():
                (folder / name).write_bytes(content)
            return parse(entry.module, module.context)
        compiled = compile_module(module, pipeline, *options, **keywords)
        new_entry = _Compiled(_bytecode(compiled), {file.name: file.read_bytes() for file in folder.glob("*.ptx")})
        cache_write("cute", key, codec.seal(msgspec.msgpack.encode(new_entry)))
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
    """Return a cached program; None if there is none or if the content is not authentic."""
    try:
        return msgspec.msgpack.decode(codec.unseal(sealed) or b"", type=_Compiled)
    except msgspec.MsgspecError:
        return None
