"""List a Triton kernel's operations at every level of its compilation, by line of source."""

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
_MAX_TEXT_WIDTH = 44


@dataclass(frozen=True)
class CompilationLevels:
    """The operations of a kernel by line and level.

    Attributes:
        operations: Line of source -> level -> the names of its operations, in order.
        texts: The text of each line.
    """

    operations: Mapping[int, Mapping[str, Sequence[str]]]
    texts: Mapping[int, str]

    def counts(self) -> dict[str, dict[str, int]]:
        """Return the number of operations of each line at each level, as a table."""
        rows = {
            _truncate(self.texts[line]): {level: len(by_level.get(level, ())) for level in LEVELS}
            for line, by_level in sorted(self.operations.items())
            if line in self.texts
        }
        total = {level: sum(row[level] for row in rows.values()) for level in LEVELS}
        return {**rows, "all lines": total}

    def names(self, text: str, level: str) -> list[str]:
        """Return the operations at a level of all lines that contain this text, in the order of the lines."""
        lines = [line for line, line_text in sorted(self.texts.items()) if text in line_text]
        return [name for line in lines for name in self.operations.get(line, {}).get(level, ())]

    def of(self, text: str) -> dict[str, dict[str, str]]:
        """Return the operations of the first line that contains this text as a table; "4 FMUL" stands for four."""
        line = next(line for line, line_text in self.texts.items() if text in line_text)
        columns = {level: _count_repeats(self.operations[line].get(level, ())) for level in LEVELS}
        row_count = max(map(len, columns.values()))
        return {
            str(row + 1): {level: names[row] for level, names in columns.items() if row < len(names)}
            for row in range(row_count)
        }


def opened(compiled: Any, kernel: Any) -> CompilationLevels:
    """Return the operations of a compiled kernel at each level.

    SASS is empty if Triton's package has no ptxas or nvdisasm.

    Args:
        kernel: The object that triton.jit returned, whose source the lines are of.
    """
    file = _compiled_file(compiled.asm["ttir"]) or str(kernel.fn.__code__.co_filename)
    name = compiled.metadata.name
    ptx = _attribute_to_callers(compiled.asm["ptx"], file)
    code = assembled(ptx, name)
    operations_by_line: dict[int, dict[str, list[str]]] = {}
    operations_by_level = {
        "TTIR": _mlir_operations(compiled.asm["ttir"], file),
        "TTGIR": _mlir_operations(compiled.asm["ttgir"], file),
        "LLVM IR": _llvm_operations(compiled.asm["llir"], file),
        "PTX": ((instruction.line, _opcode(instruction.text)) for instruction in ptx_of(ptx, name, file)),
        "SASS": (
            (instruction.line, _opcode(instruction.text))
            for instruction in (sass_of(code.cubin, name, file) if code else ())
        ),
    }
    for level, operations in operations_by_level.items():
        for line, operation in operations:
            # One operation of TTIR may become many of PTX, and some lines vanish at a lower level.
            operations_by_line.setdefault(line, {}).setdefault(level, []).append(operation)
    lines, start = inspect.getsourcelines(kernel.fn)
    return CompilationLevels(operations_by_line, dict(enumerate(map(str.strip, lines), start)))


def _compiled_file(ttir: str) -> str:
    """Return the file that the locations of a kernel name; "" if it has none.

    Triton's cache ignores file names. A cell of a notebook gets another one when any of its text changes, and a kernel
    in it may come from the cache with the name that the cell had before.
    """
    location = re.search(r'^#loc = loc\("([^"]+)":\d+:\d+\)', ttir, re.MULTILINE)
    return location[1] if location else ""


def _attribute_to_callers(ptx: str, file: str) -> str:
    """Replace locations in other files that have no known caller by the previous location in `file`.

    Triton 3.6 inlines code of other files in this way.
    """
    main = re.search(rf'^\s*\.file\s+(\d+)\s+"[^"]*{re.escape(Path(file).name)}"', ptx, re.MULTILINE)
    last_location = ""
    lines = []
    for line in ptx.splitlines():
        if main and (location := re.match(r"\s*\.loc\s+(\d+)", line)):
            last_location = line if location[1] == main[1] else last_location
            line = line if "inlined_at" in line else last_location or line
        lines.append(line)
    return "\n".join(lines)


# Matches `%3 = tt.load %2 : tensor<64x!tt.ptr<f32>> loc(#loc4)`, and captures "tt.load" and "#loc4".
_OPERATION = re.compile(r'^\s*(?:%[^=]*= )?"?([a-z]+\.[\w.]+)"?.*loc\((#?\w+)\)\s*$')

# Matches `#loc4 = loc("kernel.py":12:8)`, the definition of a location.
_ALIAS = re.compile(r"^(#loc\d*) = loc\((.*)\)$", re.MULTILINE)
_LOCATION = re.compile(r'^"([^"]*)":(\d+):\d+')


def _mlir_operations(text: str, file: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the name of each operation of a module in Triton's dialects."""
    locations = dict(_ALIAS.findall(text))
    pending = ""
    for line in text.splitlines():
        if opens := re.match(r'^\s*(?:%[^=]*= )"(tt\.reduce|tt\.scan)"', line):
            pending = opens[1]  # its location follows its body
        elif pending and line.strip().startswith("})"):
            location = re.search(r"loc\((#\w+)\)\s*$", line)
            yield _line_of(location[1] if location else "", locations, file), pending
            pending = ""
        elif (operation := _OPERATION.match(line)) and not operation[1].startswith(("tt.func", "tt.reduce.return")):
            yield _line_of(operation[2], locations, file), operation[1]


def _line_of(location: str, locations: Mapping[str, str], file: str) -> int:
    """Return the line of a location, or of its caller if the location is in another file; 0 if unknown."""
    definition = locations.get(location, location)
    if direct := _LOCATION.match(definition):
        return int(direct[2]) if Path(direct[1]).name == Path(file).name else 0
    references = re.findall(r"#loc\d*", definition)
    return next(
        (
            line
            for line in (_line_of(reference, locations, file) for reference in references if reference != location)
            if line
        ),
        0,
    )


def _llvm_operations(text: str, file: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the name of each instruction of LLVM IR. The name of a call is its callee's."""
    nodes = dict(re.findall(r"^(!\d+) = (?:distinct )?(!.*)$", text, re.MULTILINE))
    for line in text.splitlines():
        instruction = re.match(r"^\s+(?:%\S+ = )?(.*?), !dbg (!\d+)", line)
        if instruction:
            yield _llvm_line(instruction[2], nodes, file), _llvm_name(instruction[1])


def _llvm_line(node: str, nodes: Mapping[str, str], file: str) -> int:
    node_text = nodes.get(node, "")
    line = re.search(r"line: (\d+)", node_text)
    scope = re.search(r"scope: (!\d+)", node_text)
    owner = re.search(r"file: (!\d+)", nodes.get(scope[1], "")) if scope else None
    name = re.search(r'filename: "([^"]*)"', nodes.get(owner[1], "")) if owner else None
    if line and name and Path(name[1]).name == Path(file).name:
        return int(line[1])
    caller = re.search(r"inlinedAt: (!\d+)", node_text)
    return _llvm_line(caller[1], nodes, file) if caller else 0


def _llvm_name(instruction: str) -> str:
    """Return a name such as "add", "asm ld.global.v4.b32" or "nvvm.shfl.sync.bfly"."""
    if assembly := re.search(r'\basm (?:sideeffect )?"([^"]*)"', instruction):
        # LLVM IR spells a newline in a string as \0A, and a tab as \09.
        statements = [statement.strip() for statement in re.split(r";|\\0A|\\09", assembly[1])]
        return f"asm {_opcode([statement for statement in statements if statement][-1])}"
    if intrinsic := re.search(r"@llvm\.([\w.]+)\(", instruction):
        # The rest of an intrinsic's name is the types of its operands.
        return ".".join(intrinsic[1].split(".")[:4])
    words = [word for word in instruction.split() if word not in ("tail", "exact")]
    return words[0]


def _opcode(text: str) -> str:
    """Return an instruction's name without its predicate and operands."""
    words = text.split()
    return words[1] if words[0].startswith("@") else words[0]


def _count_repeats(names: Sequence[str]) -> list[str]:
    return [f"{count} {name}" if count > 1 else name for name, count in Counter(names).items()]


def _truncate(text: str) -> str:
    return text if len(text) <= _MAX_TEXT_WIDTH else f"{text[: _MAX_TEXT_WIDTH - 1]}…"
