"""Test the readers of profiler recordings: their facts, their errors for malformed files, and recorded variants."""

from __future__ import annotations

import json
import random
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from matplotlib.collections import LineCollection

from kernelpath.cli.app import _status
from kernelpath.course import registry
from kernelpath.course.problem import Tolerance
from kernelpath.course.problems import counter_facts, profile_report
from kernelpath.course.traces import Fact, Malformed, TraceFile, chrome, facts, ncu, nsys, recordings, report, rocprof
from kernelpath.course.traces.variants import OF_A_STEP, apply_changes
from kernelpath.grading import facts as grading
from kernelpath.grading import grade
from kernelpath.show import trace as picture
from kernelpath.verdict import Verdict
from kernelpath.work import recording

Event = dict[str, Any]


def kernel_events(name: str, start: float, duration: float, number: int, stream: int = 7) -> list[Event]:
    """Return the events of a kernel and of its launch by host thread 1, one microsecond earlier."""
    shape = {"grid": [4, 2, 1], "block": [128, 1, 1], "registers per thread": 32}
    arguments = {"correlation": number, "stream": stream, **shape}
    call = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": start - 1, "dur": 1, "pid": 9, "tid": 1}
    return [
        {"ph": "X", "cat": "kernel", "name": name, "ts": start, "dur": duration, "pid": 0, "tid": 7, "args": arguments},
        {**call, "args": {"correlation": number}},
    ]


def annotation(name: str, start: float, end: float, thread: int = 1) -> Event:
    where = {"pid": 9, "tid": thread}
    return {"ph": "X", "cat": "user_annotation", "name": name, "ts": start, "dur": end - start, **where}


def trace(*events: Event) -> bytes:
    return json.dumps({"traceEvents": list(events)}).encode()


# The GPU is busy from 10 to 50, from 60 to 70, and from 72 to 92 (a kernel of another stream overlaps the last span):
# it is idle for 12 of 82 µs.
STEP = trace(
    *kernel_events("product", 10, 40, 1),
    *kernel_events("scale", 60, 10, 2),
    *kernel_events("scale", 72, 20, 3, stream=8),
    *kernel_events("add", 80, 5, 4),
    annotation("step", 0, 100),
    annotation("matmul", 5, 20),
    annotation("norm", 55, 99),
    annotation("norm", 0, 99, thread=2),
)


def ncu_csv(*rows: tuple[float, float, float]) -> bytes:
    """Return the CSV of ncu with the percentages of DRAM, multiprocessors, and tensor pipe of each launch."""
    head = ["ID", ncu.NAME, ncu.GRID, ncu.BLOCK, ncu.DURATION, ncu.DRAM, ncu.SM, ncu.TENSOR]
    table = [head, ["", "", "", "", "ns", "%", "%", "%"]]
    table += [[str(place), "k", "(4, 2, 1)", "(128, 1, 1)", "1000", *map(str, row)] for place, row in enumerate(rows)]
    lines = [",".join(f'"{field}"' for field in row) for row in table]
    return "\n".join(["==PROF== Connected to process 1", *lines]).encode()


PERCENT = ncu_csv((20, 90, 90), (80, 10, 0), (50, 20, 0), (10, 70, 5))


def report_facts(events: bytes = STEP, percent: bytes = PERCENT) -> dict[str, Fact]:
    return dict(report.of(TraceFile("trace.json", events), TraceFile("ncu.csv", percent)))


def test_the_facts_of_a_step_equal_hand_computed_values() -> None:
    step_facts = report_facts()
    assert step_facts["kernels"] == ["product", "scale", "add"]
    assert step_facts["microseconds"] == [40, 30, 5]
    assert step_facts["dram_percent"] == [20, pytest.approx((10 * 80 + 20 * 50) / 30), 10]
    assert step_facts["bounds"] == ["tensor", "memory", "compute"]
    assert (step_facts["idle_microseconds"], step_facts["longest_gap"]) == (12, 10)
    assert step_facts["idle_share"] == pytest.approx(12 / 82)
    # Fusing the kernels of norm reduces 10 + 20 + 5 µs to 20. The range matmul has a GEMM, which is not fused, and no
    # kernel belongs directly to the range step.
    gains: Any = step_facts["gains"]
    assert gains == {"gaps": pytest.approx(82 / 70), "norm": pytest.approx(82 / 67)}
    assert step_facts["change"] == "norm"


def test_a_kernel_belongs_to_a_range_of_the_launching_thread() -> None:
    timeline = chrome.read(STEP)
    enclosing_ranges = [timeline.range_of(kernel) for kernel in timeline.kernels]
    assert [(enclosing.name, enclosing.thread) for enclosing in enclosing_ranges if enclosing] == [
        ("matmul", ("9", "1")),
        *[("norm", ("9", "1"))] * 3,
    ]


def test_a_kernel_below_sixty_percent_of_all_limits_is_latency_bound() -> None:
    assert report.Counters(59.9, 59.9, 59.9).bound == "latency"
    assert report.Counters(60, 59.9, 0).bound == "memory"
    assert report.Counters(60, 70, 60).bound == "tensor"
    assert report.Counters(60, 70, 59).bound == "compute"


@pytest.mark.parametrize(
    ("events", "percent", "message"),
    [
        (b"", PERCENT, "the trace cannot be read: it is empty"),
        (STEP[:-40], PERCENT, "the trace cannot be read: it is cut off or no JSON"),
        (b"[" * 100_000, PERCENT, "the trace cannot be read: it is cut off or no JSON"),
        (b'{"events": []}', PERCENT, "has no list traceEvents"),
        (b'{"traceEvents": [1]}', PERCENT, "has no list traceEvents"),
        (trace(annotation("step", 0, 1)), PERCENT, "the trace holds no kernel"),
        (trace({"ph": "X", "cat": "kernel", "name": "k", "ts": 1}), PERCENT, "an event of the trace has no usable"),
        (STEP, b"", "it has no column Kernel Name"),
        (STEP, b"\xff\xfe", "the CSV of ncu cannot be read"),
        (STEP, PERCENT[: PERCENT.index(b'"0"')], "has a header and no launch"),
        (STEP, PERCENT[:-9], "has 6 fields, its header has 8; is it cut off?"),
        (STEP, PERCENT.replace(ncu.DRAM.encode(), b"dram"), f"has no {ncu.DRAM} for some launch"),
        (STEP, ncu_csv((1, 2, 3)), "the trace has 4 kernels and ncu's CSV 1; record the same step"),
        (STEP, PERCENT.replace(b"(4, 2, 1)", b"(5, 2, 1)"), "kernel 0 has another grid or block in ncu's CSV"),
    ],
)
def test_a_malformed_recording_is_reported_in_one_sentence(events: bytes, percent: bytes, message: str) -> None:
    with pytest.raises(Malformed) as raised:
        report_facts(events, percent)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("tool", "content", "message"),
    [
        ("nsys", b"", "cannot be read: no such table"),
        ("nsys", b"SQLite format 3\0" + bytes(100), "the SQLite export of nsys cannot be read"),
        ("nsys", nsys.export(chrome.ChromeTrace([], [], {})), "holds no kernel"),
        ("rocprof", b"", "contains no dispatch"),
        ("rocprof", b'"Kernel_Name","Grid_Size"\n"k","64"\n', "the CSV has no column Correlation_Id"),
        ("perfetto", b"null", "has no list traceEvents"),
        ("ncu", PERCENT, "has no launch__registers_per_thread for some launch"),
    ],
)
def test_a_file_of_another_format_is_reported_in_one_sentence(tool: str, content: bytes, message: str) -> None:
    with pytest.raises(Malformed, match=message):
        facts.of(TraceFile("file", content), tool)


def test_ncu_numbers_are_parsed_with_units_and_commas() -> None:
    assert ncu.number("1,234.5", "us") == 1_234_500
    assert ncu.number("2", "Kbyte") == 2_000
    assert ncu.number("99.5", "%") == 99.5
    assert (ncu.number("PolicySpread"), ncu.number("nan")) == (None, None)


def test_the_nsys_export_has_the_facts_of_the_trace() -> None:
    (export,) = [TraceFile("trace.sqlite", nsys.export(chrome.read(STEP)))]
    assert facts.of(export, "nsys") == facts.of(TraceFile("trace.json", STEP), "perfetto")
    assert facts.of(export, "nsys")["nanoseconds"] == 40_000


def test_the_nsys_export_has_the_ranges(tmp_path: Path) -> None:
    (tmp_path / "a.sqlite").write_bytes(nsys.export(chrome.read(STEP)))
    with sqlite3.connect(tmp_path / "a.sqlite") as database:
        rows = database.execute("SELECT text, end - start FROM NVTX_EVENTS ORDER BY text, end - start").fetchall()
    database.close()
    assert rows == [("matmul", 15_000), ("norm", 44_000), ("norm", 99_000), ("step", 100_000)]


def test_a_rocprof_file_has_only_the_collected_counters() -> None:
    timeline = chrome.read(STEP)
    rng = random.Random(0)
    dispatches = rocprof.read(rocprof.export(rng, timeline, (*rocprof.SIZES, *rocprof.PERCENT)))
    assert [(dispatch.blocks, dispatch.threads) for dispatch in dispatches] == [(8, 128)] * 4
    assert all(dispatch.counters.keys() == {*rocprof.SIZES, *rocprof.PERCENT} for dispatch in dispatches)
    content = rocprof.export(rng, timeline, rocprof.PERCENT)
    assert facts.of(TraceFile("a.csv", content), "rocprof")["dram_bytes"] is None


RECORDED = [recordings.read(profile_report.RECORDING, name) for name in (recordings.TRACE, recordings.COUNTERS)]


def test_shuffled_ncu_columns_keep_the_id_first() -> None:
    """Readers recognize the header below the progress lines of ncu by its first column, ID."""
    heads = []
    for seed in range(4):
        _, table = apply_changes(random.Random(seed), OF_A_STEP["another order"], 8, *RECORDED)
        header = next(line for line in table.decode().splitlines() if line.startswith('"ID",'))
        heads.append(header)
    assert len(set(heads)) > 1


@pytest.mark.parametrize("variant", OF_A_STEP)
def test_a_variant_keeps_each_kernel_in_its_range(variant: str) -> None:
    def owners(content: bytes) -> list[int]:
        """Return the index of the range of each kernel, in launch order."""
        timeline = chrome.read(content)
        ordered = sorted(timeline.kernels, key=lambda kernel: kernel.correlation)
        return [timeline.ranges.index(around) if (around := timeline.range_of(kernel)) else -1 for kernel in ordered]

    changed, _ = apply_changes(
        random.Random(1), OF_A_STEP[variant], profile_report.max_kernels(profile_report.ALL), *RECORDED
    )
    assert owners(changed) == owners(RECORDED[0])
    assert len(set(owners(changed))) > 10


def test_applying_no_changes_keeps_the_recording() -> None:
    unchanged, table = apply_changes(random.Random(1), (), profile_report.max_kernels(profile_report.ALL), *RECORDED)
    assert chrome.read(unchanged) == chrome.read(RECORDED[0])
    assert ncu.read(table) == ncu.read(RECORDED[1])


@pytest.mark.parametrize("problem", [profile_report.PROBLEM, counter_facts.PROBLEM])
def test_the_same_seed_generates_the_same_files(problem: Any) -> None:
    case = problem.cases[-1]
    first, repeated, different = (problem.inputs(torch.Generator().manual_seed(seed), **case) for seed in (3, 3, 4))
    assert first == repeated
    assert problem.reference(*first) != problem.reference(*different)


@pytest.mark.parametrize("seed", range(4))
def test_the_selected_warps_exceed_every_stall_reason(seed: int) -> None:
    """A submission that counts "selected" as a stall reason must fail with every seed of this variant."""
    rng = torch.Generator().manual_seed(seed)
    file, tool = counter_facts.inputs(rng, "ncu", "other launches", profile_report.ALL)
    for launch in ncu.read(file.content):
        stalls = {name: value for name, value in launch.metrics.items() if ncu.STALL.fullmatch(name)}
        assert "stalled_selected_" in max(stalls, key=lambda name: stalls[name])
    assert facts.of(file, tool)["stall"] != "selected"


def test_the_timeline_has_rows_for_ranges_launches_and_streams() -> None:
    events = [event for event in json.loads(STEP)["traceEvents"] if event["tid"] != 2]
    (axes,) = picture.draw(chrome.read(trace(*events))).axes
    rows = [label.get_text() for label in axes.get_yticklabels()]
    assert rows == ["ranges 1", "ranges 2", "launches", "GPU, stream 7", "GPU, stream 8"]
    assert [text.get_text() for text in axes.texts] == ["step", "matmul", "norm"]
    (launches,) = (collection for collection in axes.collections if isinstance(collection, LineCollection))
    assert [segment[0][0] for segment in launches.get_segments()] == [9, 59, 71, 79]
    spans = [path.get_extents().intervalx.tolist() for bars in axes.collections[-4:] for path in bars.get_paths()]
    assert spans == [[10, 50], [60, 70], [72, 92], [80, 85]]


TOLERANCE = Tolerance(rtol=1e-3, atol=0.0)


@pytest.mark.parametrize(
    ("reported", "expected", "right"),
    [
        (1.0009, 1.0, True),
        (1.002, 1.0, False),
        (float("nan"), 1.0, False),
        (2, 2.0, True),
        (True, 1, False),
        ("1", 1, False),
        (None, None, True),
        (0, None, False),
        (None, 0.0, False),
        ([1, 2], [1, 2.001], True),
        ([2, 1], [1, 2], False),
        ([1], [1, 2], False),
        ("ab", ["a", "b"], False),
        ({"a": 1.0}, {"a": 1}, True),
        ({"a": 1.0, "b": 1.0}, {"a": 1.0}, False),
        ([("a", 1.0)], {"a": 1.0}, False),
    ],
)
def test_a_fact_matches_within_the_tolerance(reported: Any, expected: Any, right: bool) -> None:
    assert grading.facts_match(reported, expected, TOLERANCE) == right


def test_a_finding_counts_the_wrong_facts_and_names_the_mistake() -> None:
    expected: dict[str, Fact] = {"share": 0.25, "time": [2000.0], "name": "k"}
    reported: dict[str, Fact] = {"share": 25.0, "time": [2.0], "name": "k"}
    finding = grading.check_facts("report", reported, expected, TOLERANCE)
    assert finding is not None
    assert finding.cause == (
        "2 of 3 facts are wrong: share is 25, expected 0.25 (a percentage instead of a fraction: a factor of 100); "
        "time is [2], expected [2000] (a unit: a factor of 1,000)"
    )
    gains: dict[str, Fact] = {"gains": {"gaps": 1.25, "gelu": 1.5, "norm1": 1.1}}
    gains_finding = grading.check_facts(
        "report", {"gains": {"gaps": 1.25, "gelu": 1.2, "Step#3": 2.0}}, gains, TOLERANCE
    )
    assert gains_finding is not None
    assert gains_finding.cause == (
        "1 of 1 facts are wrong: gains has no 'norm1', has 'Step#3', which does not belong there, "
        "'gelu' is 1.2, expected 1.5"
    )
    four_facts: dict[str, Fact] = dict.fromkeys("abcd", 1)
    all_wrong = grading.check_facts("report", dict.fromkeys("abcd", 2), four_facts, TOLERANCE)
    assert all_wrong is not None
    assert all_wrong.cause.endswith("c is 2, expected 1; and d")
    missing_facts = grading.check_facts("report", {"name": "k"}, expected, TOLERANCE)
    assert missing_facts is not None
    assert missing_facts.verdict is Verdict.WRONG_TYPE
    assert missing_facts.cause == "report says nothing of share, time; None is an answer, too"


HOSTILE = {
    "a subclass of a dict that lies": (
        "class Lies(dict):\n    def items(self):\n        return iter(())\n"
        "def facts(file, tool):\n    return Lies(a=1)\n",
        Verdict.WRONG_TYPE,
    ),
    "numbers that compare as equal": (
        "class Any(float):\n    def __eq__(self, other):\n        return True\n"
        f"def facts(file, tool):\n    return dict.fromkeys({facts.NAMES!r}, Any(1))\n",
        Verdict.WRONG_VALUES,
    ),
    "an object among the facts": ("def facts(file, tool):\n    return {'kernel': object()}\n", Verdict.WRONG_TYPE),
    "a list in itself": (
        "def facts(file, tool):\n    a = []\n    a.append(a)\n    return {'kernel': a}\n",
        Verdict.WRONG_TYPE,
    ),
    "the recording where it lies": (
        f"FILE = {str(registry.root() / 'results/traces/block/ncu.csv.gz')!r}\n"
        "def facts(file, tool):\n    return {'kernel': open(FILE, 'rb').read(1).hex()}\n",
        Verdict.ACCESS_DENIED,
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_report_may_contain_only_plain_values(name: str, tmp_path: Path) -> None:
    source, verdict = HOSTILE[name]
    (tmp_path / "own.py").write_text(source)
    graded_report = grade.grade(registry.find("counters"), tmp_path / "own.py", device="cpu", seed=1)
    assert graded_report.verdict is verdict, graded_report.cause


def test_a_learners_recording_is_graded(tmp_path: Path) -> None:
    (tmp_path / recordings.TRACE).write_bytes(STEP)
    (tmp_path / recordings.COUNTERS).write_bytes(PERCENT)
    item = registry.find("profile")
    graded_report = grade.grade(item, item.solution, device="cpu", seed=1, recording=tmp_path)
    assert graded_report.verdict is Verdict.PASSED, graded_report.cause
    assert all(case.case["recording"] == str(tmp_path) for case in graded_report.cases)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["check", "profile", "--trace", "{empty}"], "there is no trace.json in {empty}"),
        (["check", "counters", "--tree", "solutions", "--trace", "{empty}"], "--trace is for exercises that report on"),
        (["check", "--trace", "{empty}"], "--trace needs exactly one NAME"),
        (["profile"], "give either NAME or --record FILE"),
        (["profile", "vector_add", "--record", "a.py"], "give either NAME or --record FILE"),
        (["profile", "--record", "{empty}/a.py"], "there is no file {empty}/a.py"),
    ],
)
def test_the_command_reports_wrong_arguments(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = _status([argument.format(empty=tmp_path) for argument in arguments])
    error_output = " ".join(capsys.readouterr().err.split())
    assert (status, message.format(empty=tmp_path) in error_output) == (2, True), error_output


@pytest.mark.skipif(torch.cuda.is_available(), reason="tests the message on a machine without a GPU")
def test_recording_without_a_gpu_says_so(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("def step():\n    pass\n")
    with pytest.raises(recording.RecordingFailed, match="there is no GPU that torch can use"):
        recording.record_step(tmp_path / "own.py", tmp_path / "out", lambda doing: None)


NCU: dict[str, tuple[str, str]] = {
    "recorded": ('printf \'"ID","Kernel Name"\\n\' >{log}', ""),
    "not permitted": ("printf '==ERROR== ERR_NVGPUCTRPERM\\n' >{log}; exit 1", "may not read the GPU's counters"),
    "failed": ("printf '==ERROR== no device\\n' >{log}; exit 1", "ncu failed: ==ERROR== no device"),
    "nothing profiled": ("printf '==WARNING== No kernels\\n' >{log}", "ncu failed: it profiled no kernel"),
}


@pytest.mark.parametrize("name", NCU)
def test_a_failure_of_ncu_is_reported(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script, limitation = NCU[name]
    log = tmp_path / "out" / "ncu.csv"
    (tmp_path / "ncu").write_text(f"#!/bin/sh\n{script.format(log=log)}\n")
    (tmp_path / "ncu").chmod(0o755)
    replace_profiler(monkeypatch, lambda: (tmp_path / "out" / "trace.json").write_bytes(STEP))
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    reported_limitation = recording.record_step(tmp_path / "own.py", tmp_path / "out", lambda doing: None)
    assert limitation in reported_limitation
    assert bool(reported_limitation) == bool(limitation)
    assert log.exists() == (name == "recorded")


def test_without_ncu_the_trace_is_still_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace_profiler(monkeypatch, lambda: (tmp_path / "out" / "trace.json").write_bytes(STEP))
    monkeypatch.setenv("PATH", "")
    assert "there is no ncu in PATH" in recording.record_step(tmp_path / "own.py", tmp_path / "out", lambda doing: None)
    assert (tmp_path / "out" / "trace.json").read_bytes() == STEP


def replace_profiler(monkeypatch: pytest.MonkeyPatch, trace: Callable[[], object]) -> None:
    """Replace the process that runs under torch.profiler, which needs a GPU, with a function that writes the trace."""
    failure = recording._failure

    def stand_in(command: list[str]) -> str:
        if command[0] != sys.executable:
            return failure(command)
        trace()
        return ""

    monkeypatch.setattr(recording, "_failure", stand_in)


def test_cases_keep_all_kernels_or_few() -> None:
    cases = [case for problem in (profile_report.PROBLEM, counter_facts.PROBLEM) for case in problem.cases]
    assert {case["kernels"] for case in cases} == {"all", profile_report.FEW}
    assert profile_report.max_kernels(37) == 37
    assert profile_report.max_kernels("all") > 10_000
