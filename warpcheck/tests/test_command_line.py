"""Test the command line: its output and its exit statuses."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path

import pytest

import warpcheck
from warpcheck import cli, selftest

SCRIPT = """
import sys
import torch
import warpcheck

SOURCE = '''
__global__ void fill(int* x, int n) {
    x[threadIdx.x] = n;
}
__global__ void fetch(cudaTextureObject_t texture, int* x) {
    x[0] = tex1D<int>(texture, 0.0f);
}
'''
action = sys.argv[1]
x = torch.zeros(64, dtype=torch.int32)
fill = warpcheck.cuda.kernel(SOURCE, "fill")
print("the script says", __name__, sys.argv[1:], torch.cuda.get_device_properties().major)
if action != "nothing":
    fill[1, 64](x, 1)
    fill[1, 32](x, 2)
if action == "fault":
    fill[1, 65](x, 3)
if action == "swallow":
    try:
        fill[1, 65](x, 3)
    except Exception:
        pass
if action == "unsupported":
    warpcheck.cuda.kernel(SOURCE, "fetch")[1, 1](1, x)
if action == "error":
    raise ZeroDivisionError("of the script")
if action == "cause":
    try:
        fill[1, 65](x, 3)
    except warpcheck.OutOfBounds as error:
        raise RuntimeError("the script failed") from error
if action == "exit":
    sys.exit(7)
"""


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    return str(path)


@pytest.mark.parametrize(
    ("action", "status", "summary"),
    [
        ("right", 0, "2 launches of 1 kernel (sm_80, forward): no faults"),
        ("fault", 1, "3 launches of 1 kernel (sm_80, forward): 1 out of bounds"),
        ("swallow", 1, "3 launches of 1 kernel (sm_80, forward): 1 out of bounds"),
        ("error", 1, "2 launches of 1 kernel (sm_80, forward): no faults"),
        ("exit", 7, "2 launches of 1 kernel (sm_80, forward): no faults"),
        ("unsupported", 3, "2 launches of 1 kernel (sm_80, forward): 1 unsupported"),
        ("nothing", 3, "No kernel was launched: nothing was checked."),
    ],
)
def test_run_exits_with_the_status_of_the_script_or_of_its_findings(
    script: str, capsys: pytest.CaptureFixture[str], action: str, status: int, summary: str
) -> None:
    assert cli.main(["run", script, action]) == status
    output = capsys.readouterr().out.splitlines()
    assert output[0] == f"the script says __main__ ['{action}'] 8"
    assert summary in output
    assert max(map(len, output)) <= 80


def test_run_prints_faults_and_counters_by_line(script: str, capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["run", "--arch=sm_90a", "--schedules=reverse", script, "fault"])
    captured = capsys.readouterr()
    assert "out of bounds in fill (sm_90a, reverse schedule)\n  thread 64 of block 0 writes" in captured.out
    assert "  fill.cu:3: x[threadIdx.x] = n;\n  launch: grid (1, 1, 1), block (65, 1, 1)" in captured.out
    table = captured.out[captured.out.index("fill (cuda), fill.cu: 2 launches") :]
    (row,) = (line for line in table.splitlines() if "x[threadIdx.x] = n;" in line)
    assert row.split()[0] == "3"
    assert "   4.0 " in row  # sectors per request: whole warps store 4 bytes per lane
    frames = captured.err.split("Traceback (most recent call last):")[1]
    assert frames.count("  File ") == 1
    assert "script.py" in frames
    assert "warpcheck.errors.OutOfBounds: fill, line 3" in frames


def test_run_prints_the_cause_of_an_exception(script: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", script, "cause"]) == 1
    cause, error = capsys.readouterr().err.split("The above exception was the direct cause of the following exception:")
    assert "warpcheck.errors.OutOfBounds: fill, line 3" in cause
    assert error.endswith("RuntimeError: the script failed\n")


BARRIER_KERNEL = """__global__ void shift(float* x) {
    __shared__ float tile[64];
    tile[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = tile[63 - threadIdx.x];
}
"""


def test_run_writes_a_timeline(tmp_path: Path) -> None:
    (tmp_path / "kernel.cu").write_text(BARRIER_KERNEL)
    script = tmp_path / "script.py"
    script.write_text(
        "import torch, warpcheck\n"
        f"kernel = warpcheck.cuda.kernel({str(tmp_path / 'kernel.cu')!r}, 'shift')\n"
        "kernel[1, 64](torch.zeros(64))\n"
    )
    assert cli.main(["run", "--timeline", str(tmp_path / "out" / "trace.json"), str(script)]) == 0
    events = json.loads((tmp_path / "out" / "trace.json").read_text())["traceEvents"]
    threads = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert list(threads.values()) == ["block 0, warp 0", "block 0, warp 1"]
    states = [event for event in events if event["ph"] == "X"]
    assert {state["tid"] for state in states if state["name"].startswith("run")} == set(threads)
    waits = [state["args"]["source"] for state in states if state["name"].startswith("wait")]
    assert set(waits) == {"__syncthreads();"}
    for thread in threads:  # each state of a warp begins when the previous one ends
        thread_states = [state for state in states if state["tid"] == thread]
        assert all(state["ts"] + state["dur"] == after["ts"] for state, after in itertools.pairwise(thread_states))


def test_run_writes_only_json_to_stdout(script: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", "--json", "-", script, "fault"]) == 1
    captured = capsys.readouterr()
    document = json.loads(captured.out)
    assert "the script says" in captured.err
    assert (document["launches"], document["status"], document["arch"]) == (3, 1, "sm_80")
    assert [finding["rule"] for finding in document["findings"]] == ["OutOfBounds"]
    (kernel,) = document["counters"]
    store = next(line for line in kernel["lines"] if line["line"] == 3)
    assert (kernel["launches"], store["global_store_bytes"], store["sectors_per_request"]) == (2, 4 * (64 + 32), 4.0)


def test_run_restores_the_process(script: str, tmp_path: Path) -> None:
    import sys

    before = list(sys.argv), list(sys.path)
    file = tmp_path / "a new folder" / "out.json"
    cli.main(["run", "--json", str(file), script, "fault"])
    assert json.loads(file.read_text())["status"] == 1
    assert (sys.argv, sys.path) == before
    with warpcheck.gpu():  # a new scope can begin
        pass


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "missing.py"], "there is no file missing.py"),
        (["run", "--arch", "sm_60", __file__], "there is no architecture 'sm_60'"),
        (["ptx", "missing.ptx"], "No such file"),
        (["ptx", "--arch", "sm_60", "missing.ptx"], "there is no architecture 'sm_60'"),
        (["ptx", __file__], "cannot read"),
    ],
)
def test_a_mistake_is_explained_in_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.startswith("warpcheck: ")
    assert len(error.splitlines()) == 1


def test_ptx_describes_kernels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = """
template <typename T> __global__ void scale(T* x, int n) {
    __shared__ T tile[64];
    tile[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = tile[63 - threadIdx.x];
}
__global__ void fetch(cudaTextureObject_t texture, float* x) {
    x[0] = tex1D<float>(texture, 0.0f);
    x[1] = tex2D<float>(texture, 0.0f, 1.0f);
}
"""
    file = tmp_path / "kernels.ptx"
    file.write_text(warpcheck.cuda.kernel(source, "scale<float>").binary("compute_80").ptx)
    assert cli.main(["ptx", str(file)]) == 3
    head, fetch, scale = capsys.readouterr().out.rstrip().split("\n\n")
    assert head == f"{file}: PTX for sm_80, 2 kernels"
    assert "unsupported    2 instructions" in fetch
    assert "tex.1d.v4.f32.f32 (line 9 of the source)" in fetch
    assert "tex.2d.v4.f32.f32 (line 10 of the source)" in fetch
    assert scale.splitlines()[0].startswith("scale (")
    assert "shared memory  256 bytes" in scale
    assert "parameters     12 bytes" in scale
    assert "unsupported    nothing" in scale


def test_selftest_prints_a_table(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    planted = selftest.CUDA[0]
    monkeypatch.setattr(selftest, "languages", lambda: {"CUDA C++": [planted]})
    assert cli.main(["selftest"]) == 0
    output = capsys.readouterr().out
    assert "OutOfBounds        CUDA C++  a bound that is one too large                 line 3\n" in output
    assert "1 of 1 planted faults found, and none in the corrected kernels" in output
    monkeypatch.setattr(selftest, "languages", lambda: {"CUDA C++": [planted, replace(planted, wrong=planted.right)]})
    assert cli.main(["selftest"]) == 1
    output = capsys.readouterr().out
    assert "    the fault was not found\n" in output
    assert "1 of 2 planted faults found\n" in output


def test_selftest_without_a_compiler_reports_that_it_checked_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(selftest, "languages", dict)
    assert cli.main(["selftest"]) == 3
    assert "no compiler is installed" in capsys.readouterr().err


def test_pytest_gets_all_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    received: list[list[str]] = []

    def record_arguments(arguments: list[str]) -> int:
        received.append(arguments)
        return 5

    monkeypatch.setattr(pytest, "main", record_arguments)
    assert cli.main(["pytest", "-k", "attention", "--help"]) == 5
    assert cli.main(["pytest", "--warpcheck=sm_90a", "tests"]) == 5
    assert cli.main(["pytest", "--arch", "sm_90a", "tests"]) == 5
    assert received == [
        ["--warpcheck=", "-k", "attention", "--help"],
        ["--warpcheck=sm_90a", "tests"],
        ["--warpcheck=sm_90a", "tests"],
    ]


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["--version"])
    assert capsys.readouterr().out == f"warpcheck {warpcheck.__version__}\n"
