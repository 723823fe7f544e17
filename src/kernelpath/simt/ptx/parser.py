"""A PTX file: its functions, their statements, source lines and scopes."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from kernelpath.simt.ptx import variables
from kernelpath.simt.ptx.operands import parse_operands
from kernelpath.simt.ptx.records import (
    Function,
    Instruction,
    Module,
    Not,
    PtxSyntaxError,
    Register,
    Symbol,
    Variable,
)

__all__ = ["parse"]


def parse(text: str, source: str | None = None) -> Module:
    """Parse PTX ``text``.

    Line numbers are those of ``source`` where the PTX names that file, else of the first ``.file``. Code inlined from
    other files (headers, Triton's standard library) counts for the line that called it.

    Raises PtxSyntaxError.
    """
    return _Parser(text, source).module()


_IGNORED = re.compile(r'("[^"\n]*")|//[^\n]*|/\*.*?\*/|\.section\s+\S+\s*\{[^}]*\}', re.DOTALL)
_ASM = {"// begin inline asm": ".asm_begins;", "// end inline asm": ".asm_ends;"}


def _kept(match: re.Match[str]) -> str:
    """What stays of text that is ignored: strings, and where inline assembly begins and ends."""
    return match[1] or _ASM.get(match[0].strip(), " ")


_FILE = re.compile(r'\.file\s+(\d+)\s+"([^"]*)"[^\n]*', re.ASCII)
_LOC = re.compile(r"\.loc\s+(\d+)\s+(\d+)\s+(\d+)(?:[^\n]*?,\s*inlined_at\s+(\d+)\s+(\d+)\s+(\d+))?[^\n]*", re.ASCII)
_SPACE = re.compile(r"\s+")
_BRACE = re.compile(r"[{}]")
_LABEL = re.compile(r"([A-Za-z_$%][\w$]*)\s*:(?!:)", re.ASCII)
_STATEMENT = re.compile(r"([^;]*);")
_HEADER = re.compile(r"\.(version|target|address_size|loc|pragma)[^\n]*")
_TARGET = re.compile(r"\.target\s+(\w+)")
_REQNTID = re.compile(r"\.reqntid\s+(\d+(?:\s*,\s*\d+)*)", re.ASCII)
_FUNCTION = re.compile(
    r"(?:\.(?:visible|extern|weak)\s+)*\.(?P<kind>entry|func)\s*(?:\.noreturn\s*)?(?:\((?P<results>[^)]*)\)\s*)?"
    r"(?P<name>[\w$%]+)\s*(?:\((?P<params>[^)]*)\))?(?P<directives>[^;{]*)(?P<end>[;{])",
    re.ASCII,
)
_INSTRUCTION = re.compile(
    r"(?:@\s*(?P<not>!?)\s*(?P<guard>[%\w$]+)\s+)?"
    r"(?P<opcode>[A-Za-z]\w*)(?P<modifiers>(?:\s*\.[\w:]+)*)(?P<operands>(?:\s|[\[({]).*)?",
    re.DOTALL | re.ASCII,
)


class _Parser:
    def __init__(self, text: str, source: str | None) -> None:
        self.text = _IGNORED.sub(_kept, text)
        files = {int(number): path for number, path in _FILE.findall(self.text)}
        wanted = [number for number, path in files.items() if source and path.rsplit("/", 1)[-1] in source]
        self.main = min(wanted or files or [1])
        self.file = source or files.get(self.main, "")
        self.at = 0

    def module(self) -> Module:
        functions: dict[str, Function] = {}
        declared: dict[str, Variable] = {}
        target = _TARGET.search(self.text)
        while self._skip_space():
            if match := self._match(_FUNCTION):
                if match["end"] == "{":
                    functions[match["name"]] = self._function(match)
            elif self._match(_FILE) or self._match(_HEADER):
                continue
            elif match := self._match(_STATEMENT):
                declared |= {variable.name: variable for variable in variables.variables(match[1])}
            else:
                raise PtxSyntaxError(f"cannot read {self._here()!r}")
        return Module(functions, declared, self.file, target[1] if target else "")

    def _function(self, head: re.Match[str]) -> Function:
        """A function whose text goes on after its ``{``."""
        parts = self._parts(head["name"])
        body = _Body(self.main, _scopes(parts))
        for pattern, match in parts:
            body.take(pattern, match)
        reqntid = _REQNTID.search(head["directives"])
        return Function(
            name=head["name"],
            entry=head["kind"] == "entry",
            params=tuple(variables.parameters(head["params"])),
            results=tuple(variables.parameters(head["results"])),
            registers=body.registers,
            variables=body.variables,
            body=tuple(body.instructions),
            labels=body.labels,
            tables=body.tables,
            reqntid=tuple(int(n) for n in reqntid[1].split(",")) if reqntid else (),
        )

    def _parts(self, name: str) -> list[_Part]:
        """What stands in a function, each with the pattern that it matches, without its last brace."""
        parts: list[_Part] = []
        depth = 1
        while True:
            if not self._skip_space():
                raise PtxSyntaxError(f"{name} has no end")
            for pattern in (_BRACE, _LOC, _LABEL, _STATEMENT):
                if match := self._match(pattern):
                    break
            else:
                raise PtxSyntaxError(f"cannot read {self._here()!r}")
            depth += {"{": 1, "}": -1}.get(match[0], 0)
            if not depth:
                return parts
            parts.append((pattern, match))

    def _skip_space(self) -> bool:
        self._match(_SPACE)
        return self.at < len(self.text)

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        match = pattern.match(self.text, self.at)
        if match:
            self.at = match.end()
        return match

    def _here(self) -> str:
        return self.text[self.at : self.at + 60]


_Part = tuple[re.Pattern[str], re.Match[str]]


def _scopes(parts: list[_Part]) -> list[dict[str, str]]:
    """For each scope of a function, in their order, the new names of its labels.

    Found before anything else, for a branch may go forward. The function itself is scope 0 and keeps its names.
    """
    scopes: list[dict[str, str]] = [{}]
    inside = [0]
    for pattern, match in parts:
        if match[0] == "{":
            inside.append(len(scopes))
            scopes.append({})
        elif match[0] == "}":
            inside.pop()
        elif pattern is _LABEL:
            name, scope = match[1], inside[-1]
            if name in scopes[scope]:
                raise PtxSyntaxError(f"the label {name} is defined twice")
            scopes[scope][name] = f"{name}@{scope}" if scope else name
    return scopes


@dataclass
class _Body:
    """The statements of one function, with nested scopes flattened by renaming what they declare."""

    main: int
    scopes: list[dict[str, str]]
    registers: dict[str, str] = field(default_factory=dict)
    variables: dict[str, Variable] = field(default_factory=dict)
    instructions: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    tables: dict[str, tuple[str, ...]] = field(default_factory=dict)
    line: int = 0
    callers: dict[tuple[int, int, int], tuple[int, int, int]] = field(default_factory=dict)
    inside: list[int] = field(default_factory=lambda: [0])
    opened: int = 0
    pending: str = ""
    in_asm: bool = False

    def take(self, pattern: re.Pattern[str], match: re.Match[str]) -> None:
        if match[0] == "{":
            self.opened += 1
            self.inside.append(self.opened)
        elif match[0] == "}":
            self.inside.pop()
        elif pattern is _LOC:
            self._locate(match)
        elif pattern is _LABEL:
            self.pending = self._rename(match[1])
            self.labels[self.pending] = len(self.instructions)
        elif match[1].startswith("."):
            self._directive(match[1])
        elif match[1].strip():
            self.instructions.append(self._instruction(match[1].strip()))

    def _locate(self, match: re.Match[str]) -> None:
        """Take the line of a ``.loc``; inlined code from another file takes the line of its caller."""
        if self.in_asm:  # subtle: Triton counts the lines of inline assembly as if they were the source's
            return
        place = (int(match[1]), int(match[2]), int(match[3]))
        if match[4]:
            self.callers[place] = (int(match[4]), int(match[5]), int(match[6]))
        seen = set()
        while place[0] != self.main and place in self.callers and place not in seen:
            seen.add(place)
            place = self.callers[place]
        if place[0] == self.main and place[1]:
            self.line = place[1]

    def _directive(self, text: str) -> None:
        if text.startswith(".branchtargets"):
            names = text.removeprefix(".branchtargets").split(",")
            self.tables[self.pending] = tuple(self._rename(name.strip()) for name in names)
        elif text.startswith((".pragma", ".callprototype")):
            return
        elif text.startswith(".asm_"):
            self.in_asm = text == ".asm_begins"
        elif text.startswith(".reg"):
            for name, kind in variables.registers(text):
                self.registers[self._declare(name)] = kind
        else:
            for variable in variables.variables(text):
                name = self._declare(variable.name)
                self.variables[name] = replace(variable, name=name)

    def _declare(self, name: str) -> str:
        scope = self.inside[-1]
        if scope:
            self.scopes[scope][name] = f"{name}@{scope}"
        return self._rename(name)

    def _rename(self, name: str) -> str:
        for scope in reversed(self.inside):
            if name in self.scopes[scope]:
                return self.scopes[scope][name]
        return name

    def _name(self, name: str) -> Register | Symbol:
        renamed = self._rename(name)
        is_register = name.startswith("%") or name == "_" or renamed in self.registers
        return Register(renamed) if is_register else Symbol(renamed)

    def _instruction(self, text: str) -> Instruction:
        match = _INSTRUCTION.fullmatch(text)
        if not match:
            raise PtxSyntaxError(f"line {self.line}: cannot read {text!r}")
        register = Register(self._rename(match["guard"])) if match["guard"] else None
        guard = Not(register) if register and match["not"] else register
        modifiers = tuple(modifier.strip() for modifier in match["modifiers"].split("."))[1:]
        try:
            operands = parse_operands(match["operands"] or "", self._name)
        except PtxSyntaxError as error:
            raise PtxSyntaxError(f"line {self.line}: {error} in {text!r}") from error
        return Instruction(match["opcode"], modifiers, operands, guard, self.line)
