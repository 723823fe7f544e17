"""Parse the modules that Inductor writes: what each launches, what is fused there, and why the next launch is not.

A file holds a module for each graph, after a line `# graph 1 of 2`. Comments above a launch name the operators of the
program that the launch implements.
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

# Operators without arithmetic. A launch of these alone copies to another layout.
MOVES = frozenset(
    ("clone", "copy", "expand", "permute", "select", "slice", "squeeze", "t", "transpose", "unsqueeze", "view")
)

_GRAPH = re.compile(r"^# graph \d+ of \d+$", re.M)

# Matches from `@triton_heuristics.pointwise(` to `def triton_poi_fused_add_0(in_ptr0, out_ptr0, xnumel, ...)`.
_HEURISTIC = re.compile(r"^@triton_heuristics\.(\w+)\(.*?^def (\w+)\(([^)]*)\)", re.M | re.S)

# Matches `buf0 = empty_strided_cuda((8, 256), (256, 1), torch.float32)`.
_ALLOCATED = re.compile(r"^\s*(buf\d+) = empty_strided_\w+\(\(([^)]*)\), \([^)]*\), torch\.(\w+)\)")

# Matches another name of the same memory: `buf4 = buf2; del buf2`, or `buf4 = reinterpret_tensor(buf2, ...)`.
_ALIAS = re.compile(r"^\s*(buf\d+) = (?:reinterpret_tensor\()?(buf\d+)\b")

# Matches `triton_poi_fused_add_0.run(arg0_1, buf0, ...)`, and calls of `extern_kernels` and of `torch.ops`.
_LAUNCH = re.compile(r"^\s*(?:(buf\d+) = )?(?:(triton_\w+)\.run|(extern_kernels\.\w+|torch\.ops\.[\w.]+))\((.*)\)$")

# Matches `# Topologically Sorted Source Nodes: [q, matmul], Original ATen: [aten.view, aten.clone]`.
_ORIGINAL_OPERATORS = re.compile(r"^\s*# Topologically Sorted Source Nodes: .*Original ATen: \[(.*)\]$")
_BUFFER = re.compile(r"\bbuf\d+\b")

# Matches the names that Inductor numbers: buffers, arguments, and kernels.
_NAMES = re.compile(r"\b(?:buf|arg)\d+(?:_1)?\b|\btriton_\w+?_\d+\b")


@dataclass(frozen=True)
class InductorLaunch:
    """The launch of a kernel.

    Attributes:
        kind: Inductor's name for the shape of a kernel, or "extern".
        reads: The buffers that the kernel reads.
        writes: The buffers that the kernel writes.
    """

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

    launches: list[InductorLaunch] = field(default_factory=list)
    nbytes: dict[str, int] = field(default_factory=dict)


def graphs(text: str) -> list[Graph]:
    """Parse every module of a file. Raises Malformed."""
    module_texts = modules(text)
    if not module_texts:
        raise Malformed("this is not what Inductor writes: there is no line `# graph 1 of 1`")
    return [_graph(module) for module in module_texts]


def modules(text: str) -> list[str]:
    """Return the modules of a file."""
    return [module.strip("\n") for module in _GRAPH.split(text)[1:]]


def joined(modules: Sequence[str]) -> str:
    """Return a file of these modules."""
    return "\n".join(f"# graph {number} of {len(modules)}\n{module}\n" for number, module in enumerate(modules, 1))


def of(text: str) -> Facts:
    """Return the facts of the report."""
    parsed = graphs(text)
    launches = [launch for graph in parsed for launch in graph.launches]
    return {
        "graphs": len(parsed),
        "kernels": [launch.kernel for launch in launches],
        "kinds": [launch.kind for launch in launches],
        "operators": [", ".join(launch.operators) for launch in launches],
        "reasons": list(_reasons(parsed)),
        "intermediate_bytes": sum(sum(crossing(graph).values()) for graph in parsed),
    }


def _graph(module: str) -> Graph:
    kinds = {name: (kind, _parameters(parameter_list)) for kind, name, parameter_list in _HEURISTIC.findall(module)}
    graph = Graph()
    operators = ""
    first_name: dict[str, str] = {}
    for line in module[module.index("def call(") :].splitlines():
        if original_operators := _ORIGINAL_OPERATORS.match(line):
            operators = original_operators[1]
        elif allocation := _ALLOCATED.match(line):
            name, shape, dtype = allocation.groups()
            graph.nbytes[name] = math.prod(int(size) for size in shape.split(",") if size.strip()) * BYTES[dtype]
        elif launch_match := _LAUNCH.match(line):
            result, triton, extern, arguments = launch_match.groups()
            kind, parameters = kinds[triton] if triton else ("extern", [])
            if triton:
                # Parameters such as XBLOCK are constants and are not passed. The stream is passed, but is no parameter.
                pairs = list(zip(parameters, _top_level(arguments), strict=False))
                written_before = {buffer for launch in graph.launches for buffer in launch.writes}
                bound_buffers = [
                    (name, first_name.get(buffer, buffer)) for name, buffer in pairs if _BUFFER.fullmatch(buffer)
                ]
                writes = {buffer for name, buffer in bound_buffers if "out_ptr" in name}
                # An in_out_ptr is also read only where an earlier launch has written the buffer.
                reads = {
                    buffer
                    for name, buffer in bound_buffers
                    if name.startswith("in") and (buffer not in writes or buffer in written_before)
                }
            else:
                targets = [result] if result else re.findall(r"\bout=(buf\d+)", arguments)
                writes = {first_name.get(buffer, buffer) for buffer in targets}
                reads = {first_name.get(buffer, buffer) for buffer in _BUFFER.findall(arguments)} - writes
            operator_names = tuple(name.strip().removeprefix("aten.") for name in operators.split(",") if name.strip())
            graph.launches.append(
                InductorLaunch(triton or extern, kind, operator_names, frozenset(reads), frozenset(writes))
            )
        elif alias := _ALIAS.match(line):
            first_name[alias[1]] = first_name.get(alias[2], alias[2])
    return graph


def _parameters(signature: str) -> list[str]:
    return [parameter.partition(":")[0].strip() for parameter in signature.split(",")]


def _top_level(arguments: str) -> Iterator[str]:
    """Split the arguments of a call. Only names and views of buffers matter: a view counts as its buffer."""
    plain = re.sub(r"reinterpret_tensor\((\w+), \([^)]*\), \([^)]*\), \d+\)", r"\1", arguments)
    return (argument.strip() for argument in plain.split(","))


def crossing(graph: Graph) -> dict[str, int]:
    """Return the bytes of the buffers that one launch writes and a later one reads."""
    written: set[str] = set()
    read: set[str] = set()
    for launch in graph.launches:
        read |= launch.reads & written
        written |= launch.writes
    return {name: graph.nbytes.get(name, 0) for name in sorted(read)}


def _reasons(parsed: Sequence[Graph]) -> Iterator[str]:
    """Yield why each launch is not part of an earlier one."""
    for number, graph in enumerate(parsed):
        for index, launch in enumerate(graph.launches):
            producers = [producer for producer in graph.launches[:index] if producer.writes & launch.reads]
            if not launch.extern and MOVES.issuperset(launch.operators):
                yield "layout"
            elif index == 0:
                yield "graph break" if number else "first"
            elif launch.extern or any(producer.extern for producer in producers):
                yield "extern"
            elif any(producer.reduces for producer in producers):
                yield "reduction"
            else:
                yield "shape" if producers else "independent"


def renumber(rng: random.Random, text: str) -> str:
    """Return the same program with other numbers in the names of its buffers and kernels."""
    offset = rng.randrange(3, 40)

    def shift_number(match: re.Match[str]) -> str:
        return re.sub(r"\d+(?=(?:_1)?$)", lambda number: str(int(number[0]) + offset), match[0])

    return _NAMES.sub(shift_number, text)
