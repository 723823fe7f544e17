"""Describe a fault, or a kernel that could not be checked, for people and for tools.

A `KernelFinding` holds only strings, numbers and booleans, so that one process can send it to another one. It has five
forms: text for a terminal, a result of SARIF 2.1.0, an annotation of GitHub Actions, JSON, and a line of JSON Lines.
"""

from __future__ import annotations

import inspect
import json
import linecache
import os
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from warpcheck import errors, frontends
from warpcheck.errors import Fault, Rejected, TimedOut, Unsupported
from warpcheck.frontends import Unavailable
from warpcheck.schedule import Schedule

__all__ = [
    "KERNEL_ERRORS",
    "MACHINE_PACKAGES",
    "NOT_CHECKED",
    "WIDTH",
    "KernelFinding",
    "count_by_kind",
    "format_annotation",
    "format_count",
    "format_finding",
    "format_json_lines",
    "format_location",
    "sarif_log",
]

# The exceptions that are findings.
KERNEL_ERRORS = (Fault, TimedOut, Unsupported, Unavailable, Rejected)

# The packages whose frames a traceback leaves out: a fault is in the kernel, and its launch in the program.
MACHINE_PACKAGES = ("warpcheck", "triton", "cutlass", "torch")

# The rules of findings that say that a kernel could not be checked, and not that it is wrong.
NOT_CHECKED = ("Unsupported", "Unavailable", "NotSimulated")

# The columns of a terminal.
WIDTH = 80

_KINDS = {
    "Deadlock": "deadlock",
    "TimedOut": "timed out",
    "Unsupported": "unsupported",
    "Unavailable": "unavailable",
    "NotSimulated": "not simulated",
    "Rejected": "rejected",
}


@dataclass(frozen=True)
class KernelFinding:
    """A fault of a kernel, or the reason why a kernel could not be checked.

    Attributes:
        rule: The name of the exception's class, such as "OutOfBounds".
        kind: The same for people, such as "out of bounds".
        message: One sentence.
        kernel: The name of the kernel; empty if it is not known.
        file: The source file of the kernel; empty if it is not known.
        line: The source line; 0 if it is not known.
        code: The text of the source line.
        conflict_line: The line of the other access of a race; 0 if there is none.
        conflict_code: The text of that line.
        arch: The architecture, such as "sm_90a".
        schedule: The order of blocks and warps in which the kernel ran, such as "reverse".
        launch: The grid and the block.
        test: The test that launched the kernel.
        expected: The test expects the exception.
    """

    rule: str
    kind: str
    message: str
    kernel: str = ""
    file: str = ""
    line: int = 0
    code: str = ""
    conflict_line: int = 0
    conflict_code: str = ""
    arch: str = ""
    schedule: str = ""
    launch: str = ""
    test: str = ""
    expected: bool = False

    @classmethod
    def of(cls, error: BaseException, *, kernel: str = "", arch: str = "", launch: str = "") -> KernelFinding:
        """Describe one of KERNEL_ERRORS.

        Args:
            kernel: The kernel, for an exception that does not name it.
        """
        rule = type(error).__name__
        file = getattr(error, "file", "")
        source = getattr(error, "source", "")
        line = getattr(error, "line", 0)
        conflict_line = getattr(error, "conflict_line", 0)
        return cls(
            rule=rule,
            kind=error.kind.value if isinstance(error, Fault) else _KINDS[rule],
            message=_message(error),
            kernel=getattr(error, "kernel", kernel),
            file=file,
            line=line,
            code=_code(source, file, line),
            conflict_line=conflict_line,
            conflict_code=_code(source, file, conflict_line),
            arch=arch,
            schedule=Schedule(error.schedule).name.lower() if isinstance(error, (Fault, TimedOut)) else "",
            launch=launch,
        )

    @property
    def is_fault(self) -> bool:
        """Return whether the kernel is wrong, rather than not checked."""
        return self.rule not in NOT_CHECKED

    def to_json(self) -> dict[str, Any]:
        """Return the attributes as a JSON object."""
        return asdict(self)

    def for_test(self, test: str, *, expected: bool) -> KernelFinding:
        """Return this finding with the test that launched the kernel."""
        return replace(self, test=test, expected=expected)


def _message(error: BaseException) -> str:
    if isinstance(error, Unsupported):
        return f"warpcheck does not support {error.instruction}"
    return getattr(error, "message", str(error))


def _code(source: str, file: str, line: int) -> str:
    if source:
        lines = source.splitlines()
        return lines[line - 1].strip() if 0 < line <= len(lines) else ""
    return linecache.getline(os.path.abspath(file), line).strip() if file and line else ""


def count_by_kind(findings: Iterable[KernelFinding]) -> dict[str, int]:
    """Return how many findings there are of each kind, the most frequent kind first."""
    counts: dict[str, int] = {}
    for finding in findings:
        counts[finding.kind] = counts.get(finding.kind, 0) + 1
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def format_count(count: int, noun: str, plural: str = "s") -> str:
    """Return "1 launch", "2 launches"."""
    return f"{count:,} {noun}{plural * (count != 1)}"


def format_location(finding: KernelFinding, line: int | None = None) -> str:
    """Return "file:line", with a file below the working directory relative to it."""
    number = finding.line if line is None else line
    path = finding.file
    if path and os.path.isabs(path):
        # A path that leads upwards is harder to read than the absolute one.
        relative = os.path.relpath(path)
        path = path if relative.startswith("..") else relative
    return f"{path or finding.kernel}:{number}" if number else path or finding.kernel


def format_finding(finding: KernelFinding) -> str:
    """Return a paragraph for a terminal: the kind, the kernel, the message, both source lines, and the launch."""
    subject = f" in {finding.kernel}" * bool(finding.kernel)
    circumstances = ", ".join(filter(None, (finding.arch, finding.schedule and f"{finding.schedule} schedule")))
    lines = [f"{finding.kind}{subject}" + f" ({circumstances})" * bool(circumstances)]
    lines += textwrap.wrap(
        finding.message,
        WIDTH,
        initial_indent="  ",
        subsequent_indent="  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    if finding.file or finding.line:
        lines += _format_code(format_location(finding), finding.code)
    if finding.conflict_line and finding.conflict_line != finding.line:
        lines += _format_code(format_location(finding, finding.conflict_line), finding.conflict_code)
    if finding.launch:
        lines.append(f"  launch: {finding.launch}")
    return "\n".join(lines)


def _format_code(location: str, code: str) -> list[str]:
    """Return a source line with its location in one line of the terminal, or in two."""
    if len(location) + len(code) + 4 <= WIDTH or not code:
        return [f"  {location}" + f": {code}" * bool(code)]
    return [f"  {location}:", f"    {textwrap.shorten(code, WIDTH - 4, placeholder=' ...')}"]


def format_annotation(finding: KernelFinding, root: Path) -> str:
    """Return a workflow command of GitHub Actions that annotates the source line.

    Reference: GitHub's documentation, "Workflow commands for GitHub Actions".

    Args:
        root: The folder that file names are relative to.
    """
    level = "error" if finding.is_fault else "warning"
    properties = {"title": f"warpcheck: {finding.kind}"}
    if finding.file:
        properties = {"file": _relative(finding.file, root), "line": str(max(finding.line, 1)), **properties}
    listed = ",".join(f"{name}={_escape(value, ':,')}" for name, value in properties.items())
    where = f"{finding.kernel}: " * bool(finding.kernel)
    which = f" ({finding.test})" * bool(finding.test)
    return f"::{level} {listed}::{_escape(f'{where}{finding.message}{which}')}"


def _escape(text: str, separators: str = "") -> str:
    """Escape the characters that end a workflow command or one of its properties."""
    for character in f"%\r\n{separators}":
        text = text.replace(character, f"%{ord(character):02X}")
    return text


def _relative(file: str, root: Path) -> str:
    path = Path(os.path.abspath(file))
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else path.as_posix()


def format_json_lines(
    findings: Iterable[KernelFinding], root: Path, *, version: str, properties: dict[str, Any]
) -> str:
    """Return JSON Lines: an object of type "run", then an object of type "finding" for each finding.

    The first line makes a run without findings differ from a run that wrote nothing.

    Args:
        root: The folder that file names are relative to.
        version: The version of warpcheck.
        properties: The counts of the run.
    """
    objects: list[dict[str, Any]] = [{"type": "run", "version": version, **properties}]
    for finding in findings:
        file = _relative(finding.file, root) if finding.file else ""
        objects.append({"type": "finding", **finding.to_json(), "file": file})
    return "".join(json.dumps(line) + "\n" for line in objects)


def sarif_log(
    findings: Sequence[KernelFinding], root: Path, *, version: str, successful: bool, properties: dict[str, Any]
) -> dict[str, Any]:
    """Return a log of SARIF 2.1.0, with a result for each finding.

    A kernel that could not be checked is a result of kind "open". A finding that its test expects is suppressed.
    Reference: OASIS, Static Analysis Results Interchange Format (SARIF) Version 2.1.0.

    Args:
        root: The folder that file names are relative to.
        version: The version of warpcheck.
        successful: The run ended as it should, whatever it found.
        properties: The counts of the run.
    """
    rules = sorted({finding.rule for finding in findings})
    driver = {
        "name": "warpcheck",
        "version": version,
        "rules": [{"id": rule, "name": rule, "shortDescription": {"text": _description(rule)}} for rule in rules],
    }
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {"SRCROOT": {"uri": root.as_uri() + "/"}},
        "invocations": [{"executionSuccessful": successful}],
        "results": [_sarif_result(finding, rules.index(finding.rule), root) for finding in findings],
        "properties": properties,
    }
    return {
        "$schema": "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json",
        "version": "2.1.0",
        "runs": [run],
    }


def _description(rule: str) -> str:
    """Return the first sentence of the docstring of an exception."""
    exception = getattr(errors, rule, None) or getattr(frontends, rule)
    paragraph = " ".join((inspect.getdoc(exception) or rule).partition("\n\n")[0].split())
    return paragraph.partition(". ")[0].removesuffix(".") + "."


def _sarif_result(finding: KernelFinding, rule_index: int, root: Path) -> dict[str, Any]:
    location: dict[str, Any] = {}
    if finding.file:
        location["physicalLocation"] = _sarif_place(finding, finding.line, finding.code, root)
    if finding.kernel:
        location["logicalLocations"] = [{"name": finding.kernel, "kind": "function"}]
    result: dict[str, Any] = {
        "ruleId": finding.rule,
        "ruleIndex": rule_index,
        "kind": "fail" if finding.is_fault else "open",
        # Section 3.27.10: the level of a result whose kind is not "fail" is "none".
        "level": "error" if finding.is_fault else "none",
        "message": {"text": finding.message},
        "locations": [location] if location else [],
        "properties": {
            name: getattr(finding, name) for name in ("kind", "kernel", "test", "arch", "schedule", "launch")
        },
    }
    if finding.conflict_line and finding.file:
        place = _sarif_place(finding, finding.conflict_line, finding.conflict_code, root)
        result["relatedLocations"] = [
            {"id": 1, "physicalLocation": place, "message": {"text": "the access that conflicts with this one"}}
        ]
    if finding.expected:
        result["suppressions"] = [{"kind": "inSource", "justification": "the test expects this exception"}]
    return result


def _sarif_place(finding: KernelFinding, line: int, code: str, root: Path) -> dict[str, Any]:
    path = Path(os.path.abspath(finding.file))
    # A file outside of the root has no place relative to it, which a viewer could resolve elsewhere.
    artifact = {"uri": path.as_uri()}
    if path.is_relative_to(root):
        artifact = {"uri": quote(path.relative_to(root).as_posix()), "uriBaseId": "SRCROOT"}
    place: dict[str, Any] = {"artifactLocation": artifact}
    if line:  # a region's first line is 1: a finding without a line has no region
        place["region"] = {"startLine": line, **({"snippet": {"text": code}} if code else {})}
    return place
