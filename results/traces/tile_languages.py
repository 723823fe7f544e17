"""One kernel in Helion, TileLang, and cuTile, compiled for Hopper (sm_90a).

`python results/traces/tile_languages.py [LANGUAGE...]` writes the recordings of results/traces/tile_languages again. It
needs the packages of the languages, and no GPU. Helion is recorded with two kinds of indexing, and TileLang with five
numbers of stages.
"""

import gzip
import sys
from dataclasses import replace
from pathlib import Path

from kernelpath.show import tile_languages
from kernelpath.verdict import decode, encode

FOLDER = Path(__file__).with_suffix("")
STAGES = (0, 1, 2, 3, 4)


def sources(language: str) -> dict[str, str]:
    """Return the sources to record by the names of their recordings."""
    text = tile_languages.source(language)
    if language == "Helion":
        return {"helion": text, "helion_descriptors": text.replace('"pointer"', '"tensor_descriptor"')}
    if language == "TileLang":
        return {f"tilelang{stages}": text.replace("num_stages=3", f"num_stages={stages}") for stages in STAGES}
    return {language.lower(): text}


if __name__ == "__main__":
    index = FOLDER / tile_languages.INDEX
    kernels = decode(index.read_bytes(), dict[str, tile_languages.CompiledKernel]) if index.is_file() else {}
    for language in sys.argv[1:] or tile_languages.LANGUAGES:
        for name, text in sources(language).items():
            kernel = tile_languages.run_compiler(language, text)
            (FOLDER / f"{name}.ptx.gz").write_bytes(gzip.compress(kernel.ptx.encode(), mtime=0))
            kernels[name] = replace(kernel, ptx="")
    lines = [f" {encode(name)}: {encode(kernel)}" for name, kernel in sorted(kernels.items())]
    index.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
