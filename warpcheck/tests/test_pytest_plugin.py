"""Test the pytest plugin on a suite as its users write them, run by pytest in a process of its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

KERNELS = '''
import torch
import warpcheck

assert torch.cuda.get_device_name()  # as libraries do that choose a configuration when they are imported

SOURCE = """
__global__ void fill(int* x, int n) {
    x[threadIdx.x] = 1;
}
__global__ void count(int* x, int n) {
    x[0] =
        x[0] + 1;
}
__global__ void fetch(cudaTextureObject_t texture, int* x) {
    x[0] = tex1D<int>(texture, 0.0f);
}
"""


def fill(length=64, view=64):
    x = torch.zeros(64, dtype=torch.int32)[:view]
    warpcheck.cuda.kernel(SOURCE, "fill")[1, length](x, length)
    return x


def race():
    x = torch.zeros(64, dtype=torch.int32)
    warpcheck.cuda.kernel(SOURCE, "count")[1, 64](x, 64)


def texture():
    warpcheck.cuda.kernel(SOURCE, "fetch")[1, 1](1, torch.zeros(64, dtype=torch.int32))
'''

SUITE = """
import unittest
import pytest, torch, triton, triton.language as tl
import warpcheck
from kernels import fill, race, texture


@triton.jit
def double_kernel(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, 2 * tl.load(x + i, mask=i < n), mask=i < n)


@pytest.mark.parametrize("length", [32, 64])
def test_right(length):
    assert fill(length)[:length].eq(1).all()


def test_counters(warpcheck_gpu):
    x = torch.arange(1000.0)
    out = torch.empty_like(x)
    double_kernel[(4,)](x, out, 1000, BLOCK=256)
    (launch,) = warpcheck_gpu.launches
    assert launch.line("tl.load(x").sectors_per_request <= 8
    assert launch.line("tl.load(x").global_load_bytes == 4000


def test_out_of_bounds():
    fill(65)


class TestClass:
    def test_race(self):
        race()

    def test_swallowed(self):
        try:
            race()
        except Exception:
            pass

    def test_swallowed_by_raises(self):
        with pytest.raises(Exception):
            race()

    def test_swallowed_before_a_skip(self):
        try:
            race()
        except Exception:
            pytest.skip("no GPU")

    def test_expected(self):
        with pytest.raises(warpcheck.Race):
            race()

    def test_expected_among_others(self):
        with pytest.raises((ValueError, warpcheck.Race)):
            race()

    @pytest.mark.warpcheck(raises=warpcheck.Race)
    def test_expected_by_the_marker(self):
        try:
            race()
        except warpcheck.Race:
            pass

    @pytest.mark.warpcheck(raises=warpcheck.OutOfBounds)
    def test_another_kind_is_expected(self):
        try:
            race()
        except warpcheck.Race:
            pass

    @pytest.mark.xfail(raises=warpcheck.Race)
    def test_xfail(self):
        race()


class TestUnittest(unittest.TestCase):
    def test_race(self):
        race()

    def test_right(self):
        fill()


@pytest.mark.warpcheck(arch="sm_90a")
def test_hopper(warpcheck_gpu):
    assert torch.cuda.get_device_properties().major == 9
    fill()
    assert (warpcheck_gpu.arch, len(warpcheck_gpu.launches)) == ("sm_90a", 1)


@pytest.mark.warpcheck(bounds="allocation")
def test_padding_behind_a_view():
    fill(view=60)


def test_ampere_again(warpcheck_gpu):
    assert torch.cuda.get_device_properties().major == 8
    assert not warpcheck_gpu.launches


@pytest.mark.warpcheck(schedules="reverse")
def test_reverse():
    fill(65)


@pytest.mark.warpcheck(skip="too long for the CPU")
def test_skipped():
    raise AssertionError


@pytest.mark.warpcheck(scope=False)
def test_own_scope():
    assert warpcheck.run(fill, arch="sm_90a").launches


def test_unsupported():
    texture()


def test_swallowed_unsupported():
    try:
        texture()
    except Exception:
        pass


@pytest.fixture
def broken():
    return fill(65)


def test_broken_fixture(broken):
    pass
"""

OUTCOMES = {
    "test_right[32]": "PASSED",
    "test_right[64]": "PASSED",
    "test_counters": "PASSED",
    "test_out_of_bounds": "FAILED",
    "TestClass::test_race": "FAILED",
    "TestClass::test_swallowed": "FAILED",
    "TestClass::test_swallowed_by_raises": "FAILED",
    "TestClass::test_swallowed_before_a_skip": "FAILED",
    "TestClass::test_expected": "PASSED",
    "TestClass::test_expected_among_others": "PASSED",
    "TestClass::test_expected_by_the_marker": "PASSED",
    "TestClass::test_another_kind_is_expected": "FAILED",
    "TestClass::test_xfail": "XFAIL",
    "TestUnittest::test_race": "FAILED",
    "TestUnittest::test_right": "PASSED",
    "test_hopper": "PASSED",
    "test_padding_behind_a_view": "PASSED",
    "test_ampere_again": "PASSED",
    "test_reverse": "FAILED",
    "test_skipped": "SKIPPED",
    "test_own_scope": "PASSED",
    "test_unsupported": "UNSUPPORTED",
    "test_swallowed_unsupported": "UNSUPPORTED",
    "test_broken_fixture": "ERROR",
}

CHECKED = r"checked      20 launches of 3 kernels in 22 of 23 tests \(sm_80, forward\)"


@dataclass
class Run:
    """The status and the output of a finished run of pytest."""

    status: int
    output: str

    @property
    def outcomes(self) -> dict[str, str]:
        """Return the outcome of each test, as shown by the option -v."""
        with_xdist = r"^\[gw\d\] \[ *\d+%\] (?P<outcome>[A-Z]+) test_suite\.py::(?P<name>\S+)"
        without_xdist = r"^test_suite\.py::(?P<name>\S+) (?P<outcome>[A-Z]+)"
        outcomes: dict[str, str] = {}
        for pattern in (with_xdist, without_xdist):
            outcomes |= {match["name"]: match["outcome"] for match in re.finditer(pattern, self.output, re.MULTILINE)}
        return outcomes

    def section(self, test: str) -> str:
        """Return the section of the output about a test that failed."""
        match = re.search(
            rf"^_+ {re.escape(test)} _+$(.*?)^(?:_{{5,}}|-{{5,}} warpcheck -|={{5,}})", self.output, re.M | re.S
        )
        assert match is not None, f"{test} has not failed"
        return match[1]


def run_pytest(folder: Path, *arguments: str, environment: Mapping[str, str] = os.environ) -> Run:
    # A checkout that was installed before the plugin existed has no entry point for it.
    is_installed = any(point.value == "warpcheck.pytest_plugin" for point in entry_points(group="pytest11"))
    load = [] if is_installed else ["-p", "warpcheck.pytest_plugin"]
    command = [sys.executable, "-m", "pytest", *load, "-p", "no:cacheprovider", "--color=no", *arguments]
    environment = {name: value for name, value in environment.items() if not name.startswith(("PYTEST", "GITHUB"))}
    process = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment)
    return Run(process.returncode, process.stdout + process.stderr)


def write_suite(folder: Path, suite: str = SUITE) -> Path:
    (folder / "kernels.py").write_text(KERNELS)
    (folder / "test_suite.py").write_text(suite)
    (folder / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers\n")
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_suite(tmp_path_factory.mktemp("suite"))


@pytest.fixture(scope="module")
def checked(folder: Path) -> Run:
    """Run the suite with --warpcheck, a report, and annotations."""
    # pytest must not take the path after the option as its architecture.
    return run_pytest(folder, "-v", "--warpcheck-report=out/log.sarif", "--warpcheck-annotations", "--warpcheck", ".")


@pytest.fixture(scope="module")
def log(folder: Path, checked: Run) -> dict[str, Any]:
    assert checked.status
    parsed: dict[str, Any] = json.loads((folder / "out" / "log.sarif").read_text())
    return parsed


@pytest.mark.parametrize(
    ("arguments", "arch"),
    [
        (["--warpcheck"], "sm_90a"),
        (["--warpcheck="], "sm_90a"),
        (["--warpcheck", "."], "sm_90a"),
        (["--warpcheck=sm_80"], "sm_80"),
        ([], "sm_90a"),
    ],
)
def test_addopts_choose_the_architecture(tmp_path: Path, arguments: list[str], arch: str) -> None:
    write_suite(tmp_path, "import warpcheck\n\n\ndef test_arch(warpcheck_gpu):\n    print(warpcheck_gpu.arch)\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --warpcheck=sm_90a\n")
    run = run_pytest(tmp_path, "-s", *arguments)
    assert run.status == pytest.ExitCode.OK, run.output
    assert f"\n{arch}\n" in run.output.replace("test_suite.py ", "\n")


def test_each_test_has_its_outcome(checked: Run) -> None:
    assert checked.outcomes == OUTCOMES
    assert checked.status == pytest.ExitCode.TESTS_FAILED


@pytest.mark.parametrize(
    ("test", "kind"),
    [
        ("test_out_of_bounds", "OutOfBounds"),
        ("TestClass.test_race", "Race"),
        ("TestUnittest.test_race", "Race"),
        ("ERROR at setup of test_broken_fixture", "OutOfBounds"),
    ],
)
def test_a_traceback_has_only_frames_of_the_suite(checked: Run, test: str, kind: str) -> None:
    section = checked.section(test)
    assert f"E       warpcheck.errors.{kind}" in section
    assert "site-packages" not in section
    assert "monitor.py" not in section
    assert len(section.splitlines()) < 40


def test_a_race_is_shown_with_both_lines_and_the_launch(checked: Run) -> None:
    section = checked.section("TestClass.test_race")
    assert "race in count (sm_80, forward schedule)" in section
    assert re.search(r"count\.cu:\d+: x\[0\] =$", section, re.MULTILINE)
    assert "launch: grid (1, 1, 1), block (64, 1, 1)" in section
    assert "caught this exception" not in section


@pytest.mark.parametrize("test", ["test_swallowed", "test_swallowed_by_raises", "test_swallowed_before_a_skip"])
def test_a_swallowed_fault_is_reported_as_caught(checked: Run, test: str) -> None:
    assert "The code caught this exception." in checked.section(f"TestClass.{test}")


def test_the_schedule_of_a_fault_is_shown(checked: Run) -> None:
    section = checked.section("test_reverse")
    assert "out of bounds in fill (sm_80, reverse schedule)" in section
    assert "replay: pytest --warpcheck=sm_80 --warpcheck-schedules=reverse 'test_suite.py::test_reverse'" in section


def test_the_summary_counts_launches_and_findings(checked: Run) -> None:
    assert re.search(CHECKED, checked.output)
    assert re.search(
        r"^time         \d+\.\d s in kernels, \d+\.\d s in compilers, \d+\.\d s in all$", checked.output, re.M
    )
    assert "faults       13: 10 race, 3 out of bounds; 4 expected by tests" in checked.output
    assert "unsupported  test_suite.py::test_unsupported\n" in checked.output
    assert "2 unsupported" in checked.output.splitlines()[-1]


def test_annotations_name_each_line_once(checked: Run) -> None:
    annotations = [line for line in checked.output.splitlines() if line.startswith("::")]
    kinds = sorted(re.match(r"::(\w+) .*title=warpcheck%3A ([\w ]+)::", line).groups() for line in annotations)  # type: ignore[union-attr]
    assert kinds == [("error", "out of bounds"), ("error", "race"), ("warning", "unsupported")]


def test_the_report_has_the_members_that_sarif_requires(log: dict[str, Any]) -> None:
    """The schema of SARIF 2.1.0 lists the required members, and its prose has further rules."""
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert run["tool"]["driver"]["name"] == "warpcheck"
    assert all(rule["id"] and rule["shortDescription"]["text"] for rule in rules)
    assert [invocation["executionSuccessful"] for invocation in run["invocations"]] == [False]
    for result in run["results"]:
        assert result["message"]["text"]
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert (result["kind"], result["level"]) in {("fail", "error"), ("open", "none")}
        for location in [*result["locations"], *result.get("relatedLocations", ())]:
            place = location["physicalLocation"]
            assert place["artifactLocation"]["uri"]
            assert place["region"]["startLine"] >= 1
        assert all(suppression["kind"] == "inSource" for suppression in result.get("suppressions", ()))


def test_the_report_has_each_finding(log: dict[str, Any]) -> None:
    (run,) = log["runs"]
    results = {result["properties"]["test"].removeprefix("test_suite.py::"): result for result in run["results"]}
    assert results["test_out_of_bounds"]["ruleId"] == "OutOfBounds"
    assert results["TestClass::test_race"]["relatedLocations"]
    assert results["test_unsupported"]["kind"] == "open"
    suppressed = {test for test, result in results.items() if "suppressions" in result}
    names = ("test_expected", "test_expected_among_others", "test_expected_by_the_marker", "test_xfail")
    assert suppressed == {f"TestClass::{name}" for name in names}
    assert run["properties"]["launches"] == 20


def test_the_report_has_json_lines_if_its_name_ends_in_jsonl(folder: Path) -> None:
    arguments = ("--warpcheck", "--warpcheck-report=out/log.jsonl", "-k", "test_out_of_bounds")
    assert run_pytest(folder, *arguments).status == pytest.ExitCode.TESTS_FAILED
    run, finding = map(json.loads, (folder / "out" / "log.jsonl").read_text().splitlines())
    assert (run["type"], run["arch"], run["launches"]) == ("run", "sm_80", 1)
    assert (finding["type"], finding["rule"]) == ("finding", "OutOfBounds")
    assert finding["test"] == "test_suite.py::test_out_of_bounds"
    assert finding["file"] == "fill.cu"


def test_xdist_workers_report_the_same(folder: Path) -> None:
    pytest.importorskip("xdist")
    run = run_pytest(folder, "-v", "--warpcheck", "-n1")
    assert run.outcomes == OUTCOMES
    assert re.search(CHECKED, run.output)


UNCHECKED = """
import sys
import pytest


@pytest.mark.warpcheck(arch="sm_90a")
def test_modules():
    loaded = sorted(name for name in sys.modules if name.startswith(("warpcheck", "torch", "numpy", "llvmlite")))
    assert loaded == ["warpcheck", "warpcheck.pytest_plugin"]


def test_counters(warpcheck_gpu):
    raise AssertionError
"""


def test_without_the_option_nothing_is_imported(tmp_path: Path) -> None:
    run = run_pytest(write_suite(tmp_path, UNCHECKED), "-v", "-rs")
    assert run.outcomes == {"test_modules": "PASSED", "test_counters": "SKIPPED"}
    assert "needs the option --warpcheck" in run.output
    assert "warpcheck -" not in run.output


EMPTY = "def test_nothing():\n    pass\n"


def test_a_run_without_a_launch_can_be_required_to_fail(tmp_path: Path) -> None:
    write_suite(tmp_path, EMPTY)
    run = run_pytest(tmp_path, "--warpcheck", "--warpcheck-require")
    assert run.status == pytest.ExitCode.TESTS_FAILED
    assert "checked      nothing: no kernel was launched" in run.output


SWALLOWED_AT_IMPORT = """
from kernels import race
try:
    race()
except Exception:
    pass


def test_nothing():
    pass
"""


def test_a_fault_that_a_module_swallows_when_it_is_imported_fails_the_run(tmp_path: Path) -> None:
    run = run_pytest(write_suite(tmp_path, SWALLOWED_AT_IMPORT), "--warpcheck")
    assert run.status == pytest.ExitCode.TESTS_FAILED
    assert "outside of the tests:\n  race in count" in run.output


CATCHING_HOOK = """
import pytest
from kernels import race

@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    try:
        race()
    except Exception:
        pass
    return (yield)
"""


def test_a_fault_that_a_hook_swallows_fails_the_run(tmp_path: Path) -> None:
    (write_suite(tmp_path, EMPTY) / "conftest.py").write_text(CATCHING_HOOK)
    run = run_pytest(tmp_path, "-v", "--warpcheck")
    assert run.outcomes == {"test_nothing": "PASSED"}
    assert run.status == pytest.ExitCode.TESTS_FAILED
    assert "caught in test_suite.py::test_nothing:\n  race in count" in run.output


SUBTESTS = """
import pytest, warpcheck
from kernels import race

@pytest.mark.warpcheck(raises=warpcheck.Race)
def test_expected(subtests):
    with subtests.test("part"):
        try:
            race()
        except Exception:
            pass
"""


@pytest.mark.skipif(not hasattr(pytest, "Subtests"), reason="pytest 9.0 has the fixture subtests")
@pytest.mark.parametrize("is_expected", [True, False])
def test_a_fault_that_a_subtest_swallows_fails_the_run(tmp_path: Path, is_expected: bool) -> None:
    suite = SUBTESTS if is_expected else SUBTESTS.replace("raises=warpcheck.Race", "")
    run = run_pytest(write_suite(tmp_path, suite), "--warpcheck")
    assert run.status == (pytest.ExitCode.OK if is_expected else pytest.ExitCode.TESTS_FAILED)
    assert ("caught in test_suite.py::test_expected:\n  race in count" in run.output) != is_expected


MISTAKES = {
    "arch": ("--warpcheck=sm_60", EMPTY, "there is no architecture 'sm_60': choose from sm_80, sm_90a"),
    "schedule": ("--warpcheck-schedules=random", EMPTY, "no schedule is called 'random'"),
    "bounds": (
        "-v",
        "import pytest\n@pytest.mark.warpcheck(bounds='view')\n" + EMPTY,
        "there are no bounds 'view': choose from tensor, allocation",
    ),
    "keyword": ("-v", "import pytest\n@pytest.mark.warpcheck(archs='sm_80')\n" + EMPTY, "the marker warpcheck takes"),
    "raises": ("-v", "import pytest\n@pytest.mark.warpcheck(raises='Race')\n" + EMPTY, "takes an exception class"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_wrong_option_or_marker_is_a_usage_error(tmp_path: Path, mistake: str) -> None:
    option, suite, message = MISTAKES[mistake]
    run = run_pytest(write_suite(tmp_path, suite), "--warpcheck", option)
    assert run.status == pytest.ExitCode.USAGE_ERROR
    assert message in run.output
    assert "INTERNALERROR" not in run.output
