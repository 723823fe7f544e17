"""A Triton kernel at every level of its compilation, by the line of source that each operation stands for."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warpcheck.assembler import assembled, ptx_of, sass_of

LEVELS = ("TTIR", "TTGIR", "LLVM IR", "PTX", "SASS")
_WIDEST = 44


@dataclass(frozen=True)
class Levels:
    """operations: line of source -> level -> the names of its operations, in their order. texts: the lines."""

    operations: Mapping[int, Mapping[str, Sequence[str]]]
    texts: Mapping[int, str]

    def counts(self) -> dict[str, dict[str, int]]:
        """How many operations each line became at each level, as a table."""
        rows = {
            _cut(self.texts[line]): {level: len(found.get(level, ())) for level in LEVELS}
            for line, found in sorted(self.operations.items())
            if line in self.texts
        }
        total = {level: sum(row[level] for row in rows.values()) for level in LEVELS}
        return {**rows, "all lines": total}

    def names(self, text: str, level: str) -> list[str]:
        """The operations at a level of all lines that have this text, in the lines' order."""
        lines = [line for line, told in sorted(self.texts.items()) if text in told]
        return [name for line in lines for name in self.operations.get(line, {}).get(level, ())]

    def of(self, text: str) -> dict[str, dict[str, str]]:
        """The operations of the first line that has this text, side by side, as a table: "4 FMUL" for four of them."""
        line = next(line for line, told in self.texts.items() if text in told)
        columns = {level: _grouped(self.operations[line].get(level, ())) for level in LEVELS}
        deepest = max(map(len, columns.values()))
        return {
            str(row + 1): {level: names[row] for level, names in columns.items() if row < len(names)}
            for row in range(deepest)
        }


def opened(compiled: Any, kernel: Any) -> Levels:
    """The levels of a kernel that was compiled. kernel: as triton.jit gave it, whose source the lines are of.

    SASS is empty where Triton's package has no ptxas or nvdisasm.
    """
    file, name = str(kernel.fn.__code__.co_filename), compiled.metadata.name
    ptx = _with_callers(compiled.asm["ptx"], file)
    code = assembled(ptx, name)
    found: dict[int, dict[str, list[str]]] = {}
    placed = {
        "TTIR": _of_mlir(compiled.asm["ttir"], file),
        "TTGIR": _of_mlir(compiled.asm["ttgir"], file),
        "LLVM IR": _of_llvm(compiled.asm["llir"], file),
        "PTX": ((one.line, _opcode(one.text)) for one in ptx_of(ptx, name, file)),
        "SASS": ((one.line, _opcode(one.text)) for one in (sass_of(code.cubin, name, file) if code else ())),
    }
    for level, operations in placed.items():
        for line, operation in operations:
            found.setdefault(line, {}).setdefault(level, []).append(operation)
    lines, start = inspect.getsourcelines(kernel.fn)
    return Levels(found, dict(enumerate(map(str.strip, lines), start)))


def _with_callers(ptx: str, file: str) -> str:
    """PTX in which code of other files without a known caller, as Triton 3.6 inlines it, has the line before it."""
    main = re.search(rf'^\s*\.file\s+(\d+)\s+"[^"]*{re.escape(Path(file).name)}"', ptx, re.MULTILINE)
    last, lines = "", []
    for line in ptx.splitlines():
        if main and (place := re.match(r"\s*\.loc\s+(\d+)", line)):
            last = line if place[1] == main[1] else last
            line = line if "inlined_at" in line else last or line
        lines.append(line)
    return "\n".join(lines)


_OPERATION = re.compile(r'^\s*(?:%[^=]*= )?"?([a-z]+\.[\w.]+)"?.*loc\((#?\w+)\)\s*$')
_ALIAS = re.compile(r"^(#loc\d*) = loc\((.*)\)$", re.MULTILINE)
_PLACE = re.compile(r'^"([^"]*)":(\d+):\d+')


def _of_mlir(text: str, file: str) -> Iterator[tuple[int, str]]:
    """Line and name of each operation of a module in Triton's dialects."""
    places = dict(_ALIAS.findall(text))
    pending = ""
    for line in text.splitlines():
        if opens := re.match(r'^\s*(?:%[^=]*= )"(tt\.reduce|tt\.scan)"', line):
            pending = opens[1]  # its place stands behind its body
        elif pending and line.strip().startswith("})"):
            place = re.search(r"loc\((#\w+)\)\s*$", line)
            yield _line_of(place[1] if place else "", places, file), pending
            pending = ""
        elif (operation := _OPERATION.match(line)) and not operation[1].startswith(("tt.func", "tt.reduce.return")):
            yield _line_of(operation[2], places, file), operation[1]


def _line_of(place: str, places: Mapping[str, str], file: str) -> int:
    """The line of a location, of the caller where that is in another file; 0 where none is known."""
    told = places.get(place, place)
    if direct := _PLACE.match(told):
        return int(direct[2]) if Path(direct[1]).name == Path(file).name else 0
    inner = re.findall(r"#loc\d*", told)
    return next((line for line in (_line_of(one, places, file) for one in inner if one != place) if line), 0)


def _of_llvm(text: str, file: str) -> Iterator[tuple[int, str]]:
    """Line and name of each instruction of LLVM IR; a call has the name of what it calls."""
    nodes = dict(re.findall(r"^(!\d+) = (?:distinct )?(!.*)$", text, re.MULTILINE))
    for line in text.splitlines():
        told = re.match(r"^\s+(?:%\S+ = )?(.*?), !dbg (!\d+)", line)
        if told:
            yield _llvm_line(told[2], nodes, file), _llvm_name(told[1])


def _llvm_line(node: str, nodes: Mapping[str, str], file: str) -> int:
    told = nodes.get(node, "")
    line, scope = re.search(r"line: (\d+)", told), re.search(r"scope: (!\d+)", told)
    owner = re.search(r"file: (!\d+)", nodes.get(scope[1], "")) if scope else None
    name = re.search(r'filename: "([^"]*)"', nodes.get(owner[1], "")) if owner else None
    if line and name and Path(name[1]).name == Path(file).name:
        return int(line[1])
    caller = re.search(r"inlinedAt: (!\d+)", told)
    return _llvm_line(caller[1], nodes, file) if caller else 0


def _llvm_name(instruction: str) -> str:
    """ "add", "asm ld.global.v4.b32", "nvvm.shfl.sync.bfly" """
    if assembly := re.search(r'\basm (?:sideeffect )?"([^"]*)"', instruction):
        statements = [one.strip() for one in re.split(r";|\\0A|\\09", assembly[1])]
        return f"asm {_opcode([one for one in statements if one][-1])}"
    if called := re.search(r"@llvm\.([\w.]+)\(", instruction):
        return ".".join(called[1].split(".")[:4])
    words = [word for word in instruction.split() if word not in ("tail", "exact")]
    return words[0]


def _opcode(text: str) -> str:
    """An instruction's name without its predicate and operands."""
    words = text.split()
    return words[1] if words[0].startswith("@") else words[0]


def _grouped(names: Sequence[str]) -> list[str]:
    return [f"{count} {name}" if count > 1 else name for name, count in Counter(names).items()]


def _cut(text: str) -> str:
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 1]}…"
