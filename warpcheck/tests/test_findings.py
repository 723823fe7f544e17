"""Test the formats of findings for terminals, GitHub, and SARIF."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import warpcheck
from warpcheck import findings
from warpcheck.errors import Deadlock, FaultKind, Rejected, TimedOut, Unsupported
from warpcheck.findings import KernelFinding
from warpcheck.frontends import NotSimulated, Unavailable

SOURCE = "__global__ void shift(int* x) {\n    int y = x[1];\n    x[0] = y;\n}\n"


def race(file: str = "kernels/shift.cu") -> KernelFinding:
    """Return a race in this file that names two source lines."""
    fault = warpcheck.Fault(
        FaultKind.RACE, "thread 1 of block 0 writes 4 bytes at x[0]", "shift", file, 3, (0,) * 3, (1, 0, 0)
    )
    fault.schedule = warpcheck.Schedule.REVERSE
    fault.conflict_line = 2
    fault.source = SOURCE
    return KernelFinding.of(fault, arch="sm_90a", launch="grid (1, 1, 1), block (64, 1, 1)")


def test_a_race_shows_both_source_lines() -> None:
    assert findings.format_finding(race()).splitlines() == [
        "race in shift (sm_90a, reverse schedule)",
        "  thread 1 of block 0 writes 4 bytes at x[0]",
        "  kernels/shift.cu:3: x[0] = y;",
        "  kernels/shift.cu:2: int y = x[1];",
        "  launch: grid (1, 1, 1), block (64, 1, 1)",
    ]


def test_a_file_below_the_working_directory_is_relative_to_it() -> None:
    assert findings.format_location(race(str(Path.cwd() / "shift.cu"))) == "shift.cu:3"
    assert findings.format_location(race("/elsewhere/shift.cu")) == "/elsewhere/shift.cu:3"


@pytest.mark.parametrize(
    "file", ["shift.cu", "/a/folder/with/a/name/longer/than/the/half/of/a/terminal/of/80/shift.cu"]
)
def test_the_text_fits_into_80_columns(file: str) -> None:
    text = findings.format_finding(race(file))
    assert "x[0] = y;" in text
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (Unsupported("tex.1d", "a.cu", 2), "unsupported"),
        (Unavailable("there is no compiler"), "unavailable"),
        (NotSimulated("warpcheck does not simulate CUDA graphs"), "not simulated"),
        (Rejected("Feature 'x' requires .target sm_90 or higher", "a.cu", 2), "rejected"),
        (TimedOut("still running", "shift", "a.cu", 2), "timed out"),
        (Deadlock("a deadlock", "shift", "a.cu", 2), "deadlock"),
    ],
)
def test_each_exception_of_the_machine_is_a_finding(error: Exception, kind: str) -> None:
    assert isinstance(error, findings.KERNEL_ERRORS)
    finding = KernelFinding.of(error, kernel="shift")
    assert (finding.kind, finding.kernel) == (kind, "shift")
    assert finding.is_fault == (kind not in ("unsupported", "unavailable", "not simulated"))
    log = findings.sarif_log([finding], Path("/root"), version="1.0", successful=True, properties={})
    (rule,) = log["runs"][0]["tool"]["driver"]["rules"]
    assert rule["shortDescription"]["text"].endswith(".")


def test_a_finding_is_restored_from_its_json() -> None:
    assert KernelFinding(**race().to_json()) == race()


def test_an_annotation_escapes_special_characters() -> None:
    """GitHub's toolkit escapes %, CR, and LF, and in properties also : and the comma."""
    finding = KernelFinding("Race", "race", "100% wrong:\na, b", "shift", "a,b:c.cu", 3)
    annotation = findings.format_annotation(finding, Path.cwd())
    assert annotation == "::error file=a%2Cb%3Ac.cu,line=3,title=warpcheck%3A race::shift: 100%25 wrong:%0Aa, b"


def test_json_lines_have_the_run_and_then_each_finding(tmp_path: Path) -> None:
    race_findings = [race(str(tmp_path / "a" / "shift.cu")).for_test("test_a", expected=True), race("/elsewhere/b.cu")]
    text = findings.format_json_lines(race_findings, tmp_path, version="1.0", properties={"launches": 2})
    assert text.endswith("}\n")
    run, first, second = map(json.loads, text.splitlines())
    assert run == {"type": "run", "version": "1.0", "launches": 2}
    assert (first["type"], first["rule"], first["file"], first["line"]) == ("finding", "Race", "a/shift.cu", 3)
    assert (first["conflict_line"], first["test"], first["expected"]) == (2, "test_a", True)
    assert (second["file"], second["expected"]) == ("/elsewhere/b.cu", False)


def test_json_lines_of_a_run_without_findings_have_one_line() -> None:
    text = findings.format_json_lines([], Path("/root"), version="1.0", properties={"launches": 0})
    assert text == '{"type": "run", "version": "1.0", "launches": 0}\n'


def test_sarif_names_files_below_the_root_relative_to_it(tmp_path: Path) -> None:
    inside, outside = race(str(tmp_path / "a folder" / "shift.cu")), race("/elsewhere/shift.cu")
    log = findings.sarif_log([inside, outside], tmp_path, version="1.0", successful=True, properties={})
    places = [result["locations"][0]["physicalLocation"] for result in log["runs"][0]["results"]]
    assert places[0]["artifactLocation"] == {"uri": "a%20folder/shift.cu", "uriBaseId": "SRCROOT"}
    assert places[1]["artifactLocation"] == {"uri": "file:///elsewhere/shift.cu"}
    assert places[0]["region"] == {"startLine": 3, "snippet": {"text": "x[0] = y;"}}
    assert log["runs"][0]["originalUriBaseIds"]["SRCROOT"]["uri"].endswith("/")


def test_kinds_are_counted_in_descending_order() -> None:
    kinds = ["race", "trap", "race", "assertion"]
    counts = findings.count_by_kind(KernelFinding("Race", kind, "") for kind in kinds)
    assert list(counts.items()) == [("race", 2), ("assertion", 1), ("trap", 1)]
