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

from warpcheck import codec, frontends
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
    """Reuse the output of a module's earlier compilation inside the `with` block. folder: the dump directory of PTX.

    Does nothing inside another such block, whose folder then has the PTX.
    """
    try:
        provider = hooks.COMPILER.of(hooks.DSL.get()())
        parse = hooks.PARSE.get()
        hooks.PASSES.get()
    except Changed:  # Another version of the DSL: compile without a cache.
        yield
        return
    if "compile" in vars(provider):
        yield
        return
    compile_module = provider.compile
    post_compile_hook = hooks.POST_COMPILE

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
            return finish(parse(entry.module, module.context))
        for file in folder.glob("*.ptx"):  # of an earlier module, whose PTX has been read
            file.unlink()
        with frontends.compiling():
            compiled = compile_without_hook(module, pipeline, *options, **keywords)
        new_entry = _Compiled(_bytecode(compiled), {file.name: file.read_bytes() for file in folder.glob("*.ptx")})
        cache_write("cute", key, codec.seal(msgspec.msgpack.encode(new_entry)))
        return finish(compiled)

    def compile_without_hook(*args: Any, **keywords: Any) -> Any:
        hook = post_compile_hook.of(provider)
        provider._post_compile_hook = None
        try:
            return compile_module(*args, **keywords)
        finally:
            provider._post_compile_hook = hook

    def finish(module: Any) -> Any:
        """Call the hook that adds the function for TVM FFI. It depends on more than the traced module."""
        hook = post_compile_hook.of(provider)
        if hook is not None:
            hook(module)
        return module

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
