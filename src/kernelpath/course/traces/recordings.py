"""Read the recorded files: compressed ones in results/traces, and those of a learner's own folder."""

from __future__ import annotations

import gzip
from pathlib import Path

from kernelpath.course import registry
from kernelpath.course.traces import Malformed

FOLDER = Path("results") / "traces"
TRACE = "trace.json"
COUNTERS = "ncu.csv"


def folder(recording: str) -> Path:
    """Return the folder of the course's recording of this name, or of a learner's by its absolute path."""
    return registry.course() / FOLDER / recording


def read(recording: str, name: str) -> bytes:
    """Read a file of a recording, decompressed. Raises Malformed if it is missing or truncated."""
    path = folder(recording) / name
    packed = path.with_name(f"{name}.gz")
    try:
        return gzip.decompress(packed.read_bytes()) if packed.is_file() else path.read_bytes()
    except FileNotFoundError:
        raise Malformed(f"there is no {name} in {path.parent}; `kp profile --record FILE.py` writes one") from None
    except (OSError, EOFError) as error:
        raise Malformed(f"{path.name} in {path.parent} cannot be read: {error}") from error
