"""The modules that Inductor writes: what each launches, what is fused there, and why the next launch is not.

A file holds a module for each graph, behind a line `# graph 1 of 2`. Comments above a launch name the operators of the
program that it stands for.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from kernelpath.course.traces import Facts, Malformed

BYTES = {
    "float64": 8,
    "int64": 8,
    "float32": 4,
    "int32": 4,
    "bfloat16": 2,
    "float16": 2,
    "int8": 1,
    "uint8": 1,
    "bool": 1,
}
MOVES = frozenset(
    ("clone", "copy", "expand", "permute", "select", "slice", "squeeze", "t", "transpose", "unsqueeze", "view")
)
"""Operators that compute nothing: what is made of these alone is a copy in another layout."""

_GRAPH = re.compile(r"^# graph \d+ of \d+$", re.M)
_HEURISTIC = re.compile(r"^@triton_heuristics\.(\w+)\(.*?^def (\w+)\(([^)]*)\)", re.M | re.S)
_ALLOCATED = re.compile(r"^\s*(buf\d+) = empty_strided_\w+\(\(([^)]*)\), \([^)]*\), torch\.(\w+)\)")
_RENAMED = re.compile(r"^\s*(buf\d+) = (?:reinterpret_tensor\()?(buf\d+)\b")
_LAUNCH = re.compile(r"^\s*(?:(buf\d+) = )?(?:(triton_\w+)\.run|(extern_kernels\.\w+|torch\.ops\.[\w.]+))\((.*)\)$")
_ORIGINAL = re.compile(r"^\s*# Topologically Sorted Source Nodes: .*Original ATen: \[(.*)\]$")
_BUFFER = re.compile(r"\bbuf\d+\b")
_NAMES = re.compile(r"\b(?:buf|arg)\d+(?:_1)?\b|\btriton_\w+?_\d+\b")


@dataclass(frozen=True)
class Launch:
    """A kernel's launch. kind: Inductor's name for the shape of a kernel, or "extern". reads, writes: buffers."""

    kernel: str
    kind: str
    operators: Sequence[str]
    reads: frozenset[str]
    writes: frozenset[str]

    @property
    def extern(self) -> bool:
        return self.kind == "extern"

    @property
    def reduces(self) -> bool:
        return "reduction" in self.kind or "scan" in self.kind


@dataclass
class Graph:
    """A module: launches in order, and the bytes of each buffer that it allocates."""

    launches: list[Launch] = field(default_factory=list)
    nbytes: dict[str, int] = field(default_factory=dict)


def graphs(text: str) -> list[Graph]:
    """Every module of a file. Raises Malformed."""
    found = modules(text)
    if not found:
        raise Malformed("this is not what Inductor writes: there is no line `# graph 1 of 1`")
    return [_graph(module) for module in found]


def modules(text: str) -> list[str]:
    """The modules of a file."""
    return [module.strip("\n") for module in _GRAPH.split(text)[1:]]


def joined(modules: Sequence[str]) -> str:
    """A file of these modules."""
    return "\n".join(f"# graph {number} of {len(modules)}\n{module}\n" for number, module in enumerate(modules, 1))


def of(text: str) -> Facts:
    """The facts of the report."""
    found = graphs(text)
    launches = [launch for graph in found for launch in graph.launches]
    return {
        "graphs": len(found),
        "kernels": [launch.kernel for launch in launches],
        "kinds": [launch.kind for launch in launches],
        "operators": [", ".join(launch.operators) for launch in launches],
        "reasons": list(_reasons(found)),
        "intermediate_bytes": sum(sum(crossing(graph).values()) for graph in found),
    }


def _graph(module: str) -> Graph:
    kinds = {name: (kind, _parameters(given)) for kind, name, given in _HEURISTIC.findall(module)}
    graph, operators = Graph(), ""
    first_name: dict[str, str] = {}
    for line in module[module.index("def call(") :].splitlines():
        if original := _ORIGINAL.match(line):
            operators = original[1]
        elif allocated := _ALLOCATED.match(line):
            name, shape, dtype = allocated.groups()
            graph.nbytes[name] = math.prod(int(size) for size in shape.split(",") if size.strip()) * BYTES[dtype]
        elif launched := _LAUNCH.match(line):
            result, triton, extern, arguments = launched.groups()
            kind, parameters = kinds[triton] if triton else ("extern", [])
            if triton:
                pairs = list(zip(parameters, _top_level(arguments), strict=False))
                before = {one for launch in graph.launches for one in launch.writes}
                found = [(name, first_name.get(one, one)) for name, one in pairs if _BUFFER.fullmatch(one)]
                writes = {one for name, one in found if "out_ptr" in name}
                reads = {one for name, one in found if name.startswith("in") and (one not in writes or one in before)}
            else:
                into = [result] if result else re.findall(r"\bout=(buf\d+)", arguments)
                writes = {first_name.get(one, one) for one in into}
                reads = {first_name.get(one, one) for one in _BUFFER.findall(arguments)} - writes
            told = tuple(name.strip().removeprefix("aten.") for name in operators.split(",") if name.strip())
            graph.launches.append(Launch(triton or extern, kind, told, frozenset(reads), frozenset(writes)))
        elif alias := _RENAMED.match(line):
            first_name[alias[1]] = first_name.get(alias[2], alias[2])
    return graph


def _parameters(signature: str) -> list[str]:
    return [one.partition(":")[0].strip() for one in signature.split(",")]


def _top_level(arguments: str) -> Iterator[str]:
    """Arguments of a call, of which only names and views of buffers matter: a view counts as its buffer."""
    plain = re.sub(r"reinterpret_tensor\((\w+), \([^)]*\), \([^)]*\), \d+\)", r"\1", arguments)
    return (one.strip() for one in plain.split(","))


def crossing(graph: Graph) -> dict[str, int]:
    """Bytes of the buffers that one launch writes and a later one reads."""
    written: set[str] = set()
    read: set[str] = set()
    for launch in graph.launches:
        read |= launch.reads & written
        written |= launch.writes
    return {name: graph.nbytes.get(name, 0) for name in sorted(read)}


def _reasons(found: Sequence[Graph]) -> Iterator[str]:
    """Why each launch is not part of one before it."""
    for number, graph in enumerate(found):
        for place, launch in enumerate(graph.launches):
            producers = [one for one in graph.launches[:place] if one.writes & launch.reads]
            if not launch.extern and MOVES.issuperset(launch.operators):
                yield "layout"
            elif place == 0:
                yield "graph break" if number else "first"
            elif launch.extern or any(one.extern for one in producers):
                yield "extern"
            elif any(one.reduces for one in producers):
                yield "reduction"
            else:
                yield "shape" if producers else "independent"


def varied(drawn: random.Random, text: str) -> str:
    """The same program with other numbers in the names of its buffers and kernels."""
    offset = drawn.randrange(3, 40)

    def other(match: re.Match[str]) -> str:
        return re.sub(r"\d+(?=(?:_1)?$)", lambda number: str(int(number[0]) + offset), match[0])

    return _NAMES.sub(other, text)
