"""Kernels in Mojo, for an A100 (sm_80) and an AMD Instinct MI300X (gfx942).

`python results/traces/mojo.py` writes results/traces/mojo/NAME.TARGET.s.gz from the sources beside them. It needs
Modular's packages mojo-compiler and max-core, and no GPU.
"""

import gzip
import re
from pathlib import Path

from kernelpath.show import mojo

FOLDER = Path(__file__).with_suffix("")


def assembly(kernel: str, target: str) -> str:
    """Return the text without empty lines, in which the kernel has its own name instead of one with a digest."""
    text = mojo.compile_kernel(mojo.source(kernel), kernel, target)
    text = re.sub(rf"{kernel}_{kernel}_\w*_[0-9a-f]{{16}}", kernel, text)
    return "\n".join(line for line in text.splitlines() if line.strip()) + "\n"


if __name__ == "__main__":
    for path in sorted(FOLDER.glob("*.mojo")):
        for target in mojo.GPU_MODELS.values():
            content = gzip.compress(assembly(path.stem, target).encode(), mtime=0)
            (FOLDER / f"{path.stem}.{target}.s.gz").write_bytes(content)
