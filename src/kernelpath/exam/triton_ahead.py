"""Compile Triton kernels without launching them, in any process: the course's own kernels, which are trusted."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kernelpath.course import registry
from warpcheck.hooks import triton as hooks

__all__ = ["Ahead", "compile_kernel"]


@dataclass(frozen=True)
class Ahead:
    """A compiled kernel: its PTX, its name there, the threads of a block, and its bytes of shared memory."""

    ptx: str
    name: str
    threads: int
    shared: int


def compile_kernel(path: Path, signature: Mapping[str, str], constants: Mapping[str, int], warps: int) -> Ahead:
    """Compile the function `kernel` of a file for sm_80.

    Pointers are multiples of 16 bytes, as the addresses of tensors are. Raises ValueError for a kernel that Triton does
    not compile.

    Args:
        signature: Triton's type of each parameter that is not a constant, such as "*fp32" or "i32".
    """
    os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")  # Triton 3.9 warns where it is not set
    import triton

    module = registry.import_file(path, path.stem, listed=False)
    types = {**signature, **dict.fromkeys(constants, "constexpr")}
    names = module.kernel.arg_names
    if set(types) != set(names):
        raise ValueError(f"the kernel takes {', '.join(names)}, and the launch gives {', '.join(types)}")
    aligned = {(at,): [["tt.divisibility", 16]] for at, name in enumerate(names) if types[name].startswith("*")}
    source = hooks.AHEAD.get()(module.kernel, {name: types[name] for name in names}, dict(constants), aligned)
    try:
        compiled = triton.compile(source, hooks.TARGET.get()("cuda", 80, 32), {"num_warps": warps})
    except hooks.REFUSED.get() as error:
        raise ValueError(str(error)) from error
    return Ahead(compiled.asm["ptx"], compiled.metadata.name, 32 * warps, compiled.metadata.shared)
