"""Run ptxas and nvdisasm: registers, local memory and SASS, by source line. Both tools come with Triton."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from pathlib import Path

__all__ = ["Assembled", "Instruction", "assembled", "ptx_of", "sass_of"]

# The time limit of one run of a tool.
TIMEOUT_SECONDS = 60.0


@dataclass(frozen=True)
class Instruction:
    """One instruction of PTX or SASS as text, and its source line; 0 if none is known."""

    line: int
    text: str


@dataclass(frozen=True)
class Assembled:
    """The result of ``ptxas -v`` for a kernel. The bytes are of a thread; ``stack`` holds its arrays and spilled
    registers.
    """

    registers: int
    stack: int
    spill_stores: int
    spill_loads: int
    cubin: bytes = field(repr=False)

    @property
    def uses_local_memory(self) -> bool:
        return self.stack + self.spill_stores + self.spill_loads > 0


@cache
def assembled(ptx: str, kernel: str, device: str = "") -> Assembled | None:
    """Assemble a kernel of ``ptx``; None if there is no ptxas or it rejects the PTX.

    Args:
        device: "sm_90a", for example; the target that the PTX names if it is empty.
    """
    ptxas = _tool("ptxas-blackwell", "ptxas")
    target = re.search(r"^\s*\.target\s+(\w+)", ptx, re.MULTILINE)
    if ptxas is None or target is None:
        return None
    device = device or target[1]
    ptx = _fix_inline_lines(ptx)
    log, cubin = _assemble(ptxas, ptx, device)
    newest = re.search(r"Unsupported \.version [\d.]+; current version is '([\d.]+)'", log)
    # NVRTC is often newer than the assembler, but its PTX for these targets does not use what is new.
    if newest:
        log, cubin = _assemble(ptxas, re.sub(r"\.version [\d.]+", f".version {newest[1]}", ptx, count=1), device)
    # ptxas -v reports a kernel after the line that names it.
    pattern = (
        rf"Compiling entry function '{re.escape(kernel)}'.*?(\d+) bytes stack frame, (\d+) bytes spill stores,"
        r" (\d+) bytes spill loads.*?Used (\d+) registers"
    )
    match = re.search(pattern, log, re.DOTALL)
    if match is None:
        return None
    stack, stores, loads, registers = map(int, match.groups())
    return Assembled(registers, stack, stores, loads, cubin)


def ptx_of(ptx: str, kernel: str, file: str) -> list[Instruction]:
    """Return the instructions of a kernel in PTX. Lines are those of ``file``; inlined code has the innermost line
    there.
    """
    numbers = {int(number): name for number, name in re.findall(r'^\s*\.file\s+(\d+)\s+"([^"]*)"', ptx, re.MULTILINE)}
    start = re.search(rf"\.entry\s+{re.escape(kernel)}\(.*?^{{", ptx, re.DOTALL | re.MULTILINE)
    if start is None:
        return []
    body = ptx[start.end() : ptx.index("\n}", start.end())]
    line = 0
    instructions = []
    for text in map(str.strip, _fix_inline_lines(body).splitlines()):
        if location := _LOC.match(text):
            file_number, line_number, caller, called_at = location.groups("0")
            places = [
                (numbers.get(int(file_number), ""), int(line_number)),
                (numbers.get(int(caller), ""), int(called_at)),
            ]
            line = _line(places, file) or line
        elif text and not text.startswith((".", "//", "{", "}")) and not text.endswith(":"):
            instructions.append(Instruction(line, " ".join(text.rstrip(";").split())))
    return instructions


def _fix_inline_lines(ptx: str) -> str:
    """Give inline assembly one line: Triton counts its lines as if they were the source's."""
    return _ASM.sub(lambda block: _LOC_LINE.sub("", block[0]), ptx)


_ASM = re.compile(r"// begin inline asm.*?// end inline asm", re.DOTALL)
_LOC_LINE = re.compile(r"^\s*\.loc\s.*\n", re.MULTILINE)
_LOC = re.compile(r"\.loc\s+(\d+)\s+(\d+)\s+\d+(?:.*?inlined_at\s+(\d+)\s+(\d+))?")


@cache
def sass_of(cubin: bytes, kernel: str, file: str) -> tuple[Instruction, ...]:
    """Return the instructions of a kernel in SASS without the padding at its end; none if there is no nvdisasm.

    Lines are those of ``file``. A subroutine that ptxas adds, such as a 64-bit division, has line 0.
    """
    nvdisasm = _tool("nvdisasm")
    if nvdisasm is None:
        return ()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "kernel.cubin").write_bytes(cubin)
        listing, _ = _run([nvdisasm, "-c", "-gi", "kernel.cubin"], folder)
    instructions = list(_instructions(listing, kernel, file))
    # A kernel ends with a branch to itself, behind which only NOPs follow.
    return tuple(instructions[:-1] if instructions and instructions[-1].text.startswith("BRA") else instructions)


def _instructions(listing: str, kernel: str, file: str) -> Iterator[Instruction]:
    places: list[tuple[str, int]] = []
    line = 0
    new_location = True
    inside = False
    for text in listing.splitlines():
        if section := re.match(r"\s*\.section\s+([^,\s]+)", text):
            inside = section[1] == f".text.{kernel}"
        elif not inside:
            continue
        elif "//## File" in text:
            # Several File lines before one instruction are a chain of inlined calls, the innermost first.
            places = places if not new_location else []
            places += [(name, int(number)) for name, number in re.findall(r'"([^"]*)", line (\d+)', text)]
            line = _line(places, file)
            new_location = False
        elif text.startswith("$__internal"):
            places = []
            line = 0
        elif code := re.match(r"\s*/\*[0-9a-f]{4,}\*/\s+(.*?)\s*;", text):
            new_location = True
            if code[1] != "NOP":
                yield Instruction(line, code[1])


def _line(places: list[tuple[str, int]], file: str) -> int:
    """Return the line of the first location, from the innermost on, that is in the file."""
    return next((line for name, line in places if Path(name).name == Path(file).name), 0)


def _assemble(ptxas: str, ptx: str, device: str) -> tuple[str, bytes]:
    """Return what ptxas prints about a source, and the cubin."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "kernel.ptx").write_text(ptx)
        command = [ptxas, "-v", "-lineinfo", f"-arch={device}", "kernel.ptx", "-o", "kernel.cubin"]
        log, succeeded = _run(command, folder)
        return log, (Path(folder) / "kernel.cubin").read_bytes() if succeeded else b""


def _run(command: list[str], folder: str) -> tuple[str, bool]:
    """Return what a tool prints, and whether it succeeded."""
    try:
        process = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, check=False, timeout=TIMEOUT_SECONDS
        )
    except subprocess.TimeoutExpired:
        return "", False
    return process.stdout + process.stderr, process.returncode == 0


def _tool(*names: str) -> str | None:
    """Return the first of these tools that comes with Triton, else the last one of an installed toolkit."""
    triton = find_spec("triton")  # importing it would take a second
    if triton is None or triton.origin is None:
        return shutil.which(names[-1])
    folder = Path(triton.origin).parent / "backends" / "nvidia" / "bin"
    return next((str(folder / name) for name in names if (folder / name).is_file()), shutil.which(names[-1]))
