"""Call an entry that reports on recorded files: write the files, and return the report as plain values."""

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
def written_files(request: messages.ReadFiles) -> Iterator[tuple[Any, ...]]:
    """Write the files of a request, and yield the arguments of the entry: the paths, then the other arguments.

    The files are removed at the end of the `with` block.
    """
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / file.name for file in request.files]
        for path, file in zip(paths, request.files, strict=True):
            path.write_bytes(file.content)
        yield (*paths, *request.arguments)


def collect_facts(entry: Callable[..., Any], inputs: tuple[Any, ...]) -> dict[str, Fact]:
    """Return the entry's report, a mapping or a dataclass, as a dict of plain values. Raises WrongType."""
    report = entry(*inputs)
    name = entry.__name__
    if dataclasses.is_dataclass(report) and not isinstance(report, type):
        report = {field.name: getattr(report, field.name) for field in dataclasses.fields(report)}
    if not isinstance(report, Mapping):
        returned = "None; end it with `return`" if report is None else f"a {type(report).__name__}"
        raise WrongType(f"{name} returned {returned}; return a dict or a dataclass of facts")
    return {str(key): _plain(f"{name}(…)[{str(key)!r}]", value) for key, value in report.items()}


def _plain(name: str, value: Any, is_element: bool = False) -> Any:
    """Return a number, string, bool, None, or a list or dict of these. Values of NumPy and torch become Python's."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, (Mapping, list, tuple)) and is_element:
        raise WrongType(f"{name} holds a {type(value).__name__}; its elements are numbers, strings or None")
    if isinstance(value, Mapping):
        return {str(key): _plain(name, element, is_element=True) for key, element in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(name, element, is_element=True) for element in value]
    # MessagePack, the format of the wire, has integers of at most 64 bits.
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
        raise WrongType(f"{name} is an integer of more than 64 bits")
    if isinstance(value, str):
        # A string may have surrogates, which UTF-8 cannot encode.
        return value.encode(errors="replace").decode()
    # bool comes first, since it is a subclass of int.
    for kind in (bool, int, float):
        if isinstance(value, kind):
            return kind(value)
    if value is None:
        return None
    raise WrongType(f"{name} is a {type(value).__name__}; facts are numbers, strings, None, or lists and dicts of them")
