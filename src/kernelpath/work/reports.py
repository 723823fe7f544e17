"""A report on recorded files: the files as a submission gets them, and what it says of them as plain values."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kernelpath.course.traces import Fact
from kernelpath.work import messages
from kernelpath.work.exception_findings import WrongType


@contextmanager
def written_files(asked: messages.ReadFiles) -> Iterator[tuple[Any, ...]]:
    """The arguments of the entry: paths to the files, which are there inside, then what else it takes."""
    with tempfile.TemporaryDirectory() as folder:
        places = [Path(folder) / file.name for file in asked.files]
        for place, file in zip(places, asked.files, strict=True):
            place.write_bytes(file.content)
        yield (*places, *asked.arguments)


def collect_facts(entry: Callable[..., Any], inputs: tuple[Any, ...]) -> dict[str, Fact]:
    """The entry's report, a mapping or a dataclass, as a dict of plain values. Raises WrongType."""
    report, name = entry(*inputs), entry.__name__
    if dataclasses.is_dataclass(report) and not isinstance(report, type):
        report = {field.name: getattr(report, field.name) for field in dataclasses.fields(report)}
    if not isinstance(report, Mapping):
        told = "None; end it with `return`" if report is None else f"a {type(report).__name__}"
        raise WrongType(f"{name} returned {told}; return a dict or a dataclass of facts")
    return {str(key): _plain(f"{name}(…)[{str(key)!r}]", value) for key, value in report.items()}


def _plain(name: str, value: Any, inside: bool = False) -> Any:
    """A number, a text, a truth value, None, or a list or dict of them; those of NumPy and torch become Python's."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, (Mapping, list, tuple)) and inside:
        raise WrongType(f"{name} holds a {type(value).__name__}; its elements are numbers, strings or None")
    if isinstance(value, Mapping):
        return {str(key): _plain(name, one, inside=True) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(name, one, inside=True) for one in value]
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
        raise WrongType(f"{name} is an integer of more than 64 bits")
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    for kind in (bool, int, float):
        if isinstance(value, kind):
            return kind(value)
    if value is None:
        return None
    raise WrongType(f"{name} is a {type(value).__name__}; facts are numbers, strings, None, or lists and dicts of them")
