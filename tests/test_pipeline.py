"""Test the events that the PTX machine records of an asynchronous kernel, and the pipeline chart."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import torch
from rich.console import Console

from kernelpath.cli.app import _status
from kernelpath.course import delivery, registry
from kernelpath.show import barriers, pipeline, pipeline_picture
from warpcheck import frontends, simt, simulated_gpu
from warpcheck.events import EventKind as Kind
from warpcheck.frontends import cuda
from warpcheck.simt import Event
from warpcheck.target import SM_90A

KERNELS = Path(__file__).with_name("pipeline_kernels.cu")
TILES = 6


def record_events(monkeypatch: pytest.MonkeyPatch, stages: int, recorded: bool = True) -> list[Event]:
    """Return the events of a kernel that sums TILES tiles with two blocks."""
    monkeypatch.setattr(simulated_gpu, "_target", SM_90A)
    x = torch.arange(32.0 * TILES)
    out = torch.empty(2, 32)
    launched: list[frontends.Launched] = []
    with frontends.observe(launched.append), simt.recorded(recorded):
        cuda.kernel(KERNELS, "sum")[2, 64](x, out, TILES, stages)
    assert torch.equal(out, x.view(TILES, 32).sum(0).expand(2, 32))
    (launch,) = launched
    assert launch.counted is not None
    return launch.counted.events


def event_indices(events: list[Event], kind: Kind, barrier: str = "") -> list[int]:
    """Return the indices of the events of a kind at barriers whose names start with a prefix."""
    return [index for index, event in enumerate(events) if event.kind == kind and event.barrier.startswith(barrier)]


@pytest.mark.parametrize(("stages", "waits"), [(1, TILES - 1), (2, TILES - 2), (4, TILES - 4)])
def test_events_of_the_pipeline_happen_in_order(stages: int, waits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    events = record_events(monkeypatch, stages)
    loads = event_indices(events, Kind.LOAD)
    lands = event_indices(events, Kind.LAND)
    filled = event_indices(events, Kind.PASS, "full")
    acquired = event_indices(events, Kind.PASS, "empty")
    releases = event_indices(events, Kind.ARRIVE, "empty")
    assert [len(indices) for indices in (loads, lands, filled, acquired, releases)] == [
        TILES
    ] * 5  # only one of the two blocks is recorded
    assert {events[index].bytes for index in loads + lands} == {128}
    for tile in range(TILES):
        assert events[loads[tile]].barrier == events[lands[tile]].barrier == f"full[{tile % stages}]"
        assert events[lands[tile]].phase == tile // stages
        assert acquired[tile] < loads[tile] < lands[tile] < filled[tile] < releases[tile]
        if tile >= stages:
            assert releases[tile - stages] < acquired[tile]
    assert [events[index].step for index in loads] == sorted(events[index].step for index in loads)
    waiting = event_indices(events, Kind.WAIT, "empty")
    assert len(waiting) == waits
    source = KERNELS.read_text().splitlines()
    assert {(events[index].warp, "&empty[s]" in source[events[index].line - 1]) for index in waiting} == {(1, True)}
    assert {events[index].warp for index in event_indices(events, Kind.WAIT, "full")} == {0}


def test_a_launch_without_recording_has_no_events(monkeypatch: pytest.MonkeyPatch) -> None:
    assert record_events(monkeypatch, 2, recorded=False) == []
    with pytest.raises(ValueError, match="no events were recorded"):
        pipeline.chart([])


def test_the_chart_shows_the_overlap_of_a_second_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    one_stage, two_stages = (pipeline.chart(record_events(monkeypatch, stages)) for stages in (1, 2))
    assert one_stage.labels == two_stages.labels == ["TMA", "consumer w0", "producer w1"]
    assert one_stage.rows == [
        "      v     v     v     v     v      v   ",
        ">.>....>a....>a....>a....>a....>a.....>ax",
        " >.>aL...>aL...>aL...>aL...>aL...>aLx    ",
    ]
    assert two_stages.rows == [  # the second copy is in flight while the first tile is read
        "        v     v     v     v      v  v   ",
        ">.>......>a....>a....>a....>a.....>a.>ax",
        " >.>aLaL...>aL...>aL...>aL...>aLx       ",
    ]
    released = [two_stages.marks[mark.after] for mark in two_stages.marks if mark.after is not None]
    assert {(mark.sign, mark.barrier[:-3]) for mark in released} == {("v", "full"), ("a", "empty")}
    console = Console(width=80, file=io.StringIO(), force_terminal=False)
    console.print(pipeline.text(one_stage))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert max(map(len, text.splitlines())) <= 80
    rows = [line.split()[2:-1] for line in text.splitlines() if line.startswith("producer w1  ")]
    assert rows[1:] == [["barrier", "0", "19", "1"], ["empty[0]", "23", "5"]]
    figure = pipeline_picture.draw(two_stages)
    letters = "".join(part.get_text() for part in figure.axes[0].texts)
    stages = [pipeline.stage_of(mark.barrier) if mark.sign in "Lv" else "" for mark in two_stages.marks]
    assert letters == "".join(mark.sign + stage for mark, stage in zip(two_stages.marks, stages, strict=True))


def test_the_chart_links_each_named_barrier_wait_to_its_arrival(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulated_gpu, "_target", SM_90A)
    launched: list[frontends.Launched] = []
    with frontends.observe(launched.append), simt.recorded():
        cuda.kernel(KERNELS, "turns")[1, 64](torch.empty(6), 3)
    assert launched[0].counted is not None
    chart = pipeline.chart(launched[0].counted.events)
    assert chart.labels == ["warp 0", "warp 1"]
    wake_ups = [
        (mark.row, chart.marks[mark.after].row, chart.marks[mark.after].barrier) for mark in chart.marks if mark.after
    ]
    assert wake_ups == [(0, 1, "barrier 1"), (1, 0, "barrier 2")] * 3


def test_a_wait_in_a_cluster_ends_by_its_own_blocks_barrier() -> None:
    def make_event(kind: Kind, block: int, barrier: str = "") -> Event:
        return Event(kind, 0, block, 0, 7, "mbarrier.try_wait", barrier, 0, 0)

    events = [make_event(Kind.RUN, 0), make_event(Kind.WAIT, 0, "empty"), make_event(Kind.RUN, 1)]
    events += [
        make_event(Kind.ARRIVE, 1, "empty of block 0"),
        make_event(Kind.ARRIVE, 1, "empty"),
        make_event(Kind.RUN, 0),
    ]
    chart = pipeline.chart(events)
    assert chart.labels == ["warp 0:0", "warp 1:0"]
    assert chart.rows == [">...>", " >aa "]
    assert [mark.after for mark in chart.marks] == [None, None, None, None, 2]


def test_the_profile_command_draws_the_pipeline(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    picture = tmp_path / "pipeline.png"
    command = ["profile", "vector_add", "--tree", "solutions", "--pipeline"]
    assert _status([*command, "--picture", str(picture)]) == 0
    output = capsys.readouterr().out
    assert ">x" in output
    assert "no warp waits for anything" in output
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert _status([*command, "--sass"]) == 2
    assert "--pipeline goes with NAME and --picture" in capsys.readouterr().err


def remove_release(folder: Path) -> Path:
    """Write the kernels without the arrival that releases a stage: the second use of a stage waits forever."""
    source = KERNELS.read_text()
    release = "ptx::mbarrier_arrive(&empty[s]);"
    assert source.count(release) == 1
    broken = folder / KERNELS.name
    broken.write_text(source.replace(release, ""))
    return broken


def test_the_chart_of_a_deadlock_marks_the_stuck_warps(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(simulated_gpu, "_target", SM_90A)
    x = torch.arange(32.0 * TILES)
    out = torch.empty(2, 32)
    with pytest.raises(simt.TimedOut) as timeout, simt.recorded():
        cuda.kernel(remove_release(tmp_path), "sum")[2, 64](x, out, TILES, 2)
    chart = pipeline.chart(timeout.value.launch.events, failed=True)
    assert chart.labels == ["TMA", "consumer w0", "producer w1"]
    assert chart.rows[1].endswith(">!")
    assert chart.rows[2].rstrip("!").endswith("aLaL")
    assert chart.rows[2].endswith("!!")
    assert "!" not in chart.rows[0]
    assert [(warp.role, warp.awaited) for warp in chart.stuck] == [
        ("consumer w0", "full[0]"),
        ("producer w1", "empty[0]"),
    ]
    source = KERNELS.read_text().splitlines()
    assert ["&full[s]" in source[warp.line - 1] for warp in chart.stuck] == [True, False]
    assert [warp.phase for warp in chart.stuck] == [1, 0]
    text = Console(width=80, file=io.StringIO(), force_terminal=False)
    text.print(pipeline.text(chart))
    assert "producer w1 waits in line 23 for empty[0], in phase 0" in text.file.getvalue()  # type: ignore[attr-defined]
    assert pipeline_picture.draw(chart).axes


def test_the_last_columns_of_a_failure_are_shown() -> None:
    marks = [pipeline.EventMark(0, ">", step, "") for step in range(1000)]
    long = pipeline.Chart(["warp 0"], marks, [">" * 1000], [], failed=True)
    assert pipeline.parts(long)[-1].stop == 1000
    assert pipeline.parts(long)[0].start == 960 - 3 * pipeline.COLUMNS
    text = Console(width=80, file=io.StringIO(), force_terminal=False)
    text.print(pipeline.text(long))
    assert "780 earlier columns …" in text.file.getvalue()  # type: ignore[attr-defined]


def test_the_stage_of_a_copy_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    chart = pipeline.chart(record_events(monkeypatch, 2))
    by_sign = {
        sign: [chart.stages[column] for column, mark in enumerate(chart.marks) if mark.sign == sign] for sign in "Lva>"
    }
    assert by_sign["L"] == by_sign["v"] == ["0", "1"] * (TILES // 2)
    assert set(by_sign[">"]) == {" "}
    letters = [part.get_text() for part in pipeline_picture.draw(chart).axes[0].texts]
    assert [letter for letter in letters if letter.startswith("L")] == ["L0", "L1"] * (TILES // 2)
    assert [pipeline.stage_of(name) for name in ("full[12]", "full[3] of block 1", "full", "barrier 1")] == [
        "12",
        "3",
        "",
        "",
    ]


def test_warpgroups_with_the_same_role_have_separate_rows() -> None:
    def make_event(kind: Kind, warp: int, barrier: str = "") -> Event:
        return Event(kind, 0, 0, warp, 7, "wgmma", barrier, 0, 0)

    events = [make_event(Kind.RUN, warp) for warp in range(8)]
    events += [make_event(Kind.MULTIPLY, warp) for warp in range(8)]
    assert pipeline.chart(events).labels == ["consumer w0-3", "consumer w4-7"]


SOURCE = """\
full = memory.allocate_array(cutlass.Int64, 2)
for stage in cutlass.range_constexpr(2):
    cute.arch.mbarrier_init(full + stage, 1)
    cute.arch.mbarrier_init(empty + stage, 4)
ring = pipeline.PipelineTmaAsync.create(
    return pipeline.PipelineTmaAsync.create(
cute.arch.mbarrier_init(done, 1)
"""


def number_barriers(lines: list[int]) -> dict[str, int]:
    return {f"mbarrier {number}": line for number, line in enumerate(lines)}


@pytest.mark.parametrize(
    ("lines", "landed", "expected"),
    [
        ([3, 3, 4, 4], {0, 1}, ["full[0]", "full[1]", "empty[0]", "empty[1]"]),
        ([3, 4, 3, 4, 7], {0, 2}, ["full[0]", "empty[0]", "full[1]", "empty[1]", "done"]),
        ([5, 5, 5, 5], {0}, ["ring.full[0]", "ring.full[1]", "ring.empty[0]", "ring.empty[1]"]),
        ([5, 5, 5, 5], {0, 2}, ["ring[0]", "ring[1]", "ring[2]", "ring[3]"]),
        ([6, 6], {0}, [".full", ".empty"]),
        (
            [6, 6, 6, 6, 6, 6],
            {0, 2, 3},
            ["0.full", "0.empty", "1.full[0]", "1.full[1]", "1.empty[0]", "1.empty[1]"],
        ),
        ([2, 99], set(), ["mbarrier 0", "mbarrier 1"]),
    ],
)
def test_barrier_names_are_inferred_from_the_source(lines: list[int], landed: set[int], expected: list[str]) -> None:
    inferred_names = barriers.infer_names(number_barriers(lines), SOURCE, {f"mbarrier {number}" for number in landed})
    assert [inferred_names.get(name, name).removeprefix("pipeline") for name in number_barriers(lines)] == expected


def test_a_renamed_barrier_of_another_block_keeps_its_block() -> None:
    event = Event(Kind.ARRIVE, 0, 0, 0, 7, "mbarrier.arrive", "mbarrier 1 of block 2", 0, 0)
    (renamed,) = barriers.rename_barriers([event], number_barriers([3, 3]), SOURCE)
    assert renamed.barrier == "full[1] of block 2"


def test_profile_draws_the_first_case_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The smallest cases of a CuTe kernel that never releases a stage pass because they use no stage twice."""
    delivery.deliver(tmp_path)
    monkeypatch.chdir(tmp_path)
    item = registry.find("tma_copy")
    solution = item.solution.read_text()
    release = "cute.arch.mbarrier_arrive(empty + (n - LAG) % STAGES)"
    assert release in solution
    item.stub.write_text(solution.replace(release, "pass"))
    picture = tmp_path / "pipeline.png"
    assert _status(["profile", "tma_copy", "--pipeline", "--picture", str(picture)]) == 1
    text = " ".join(capsys.readouterr().out.split())
    assert "w21a_tma_copy.py, kernel copy_kernel, rows=" in text
    (wait,) = (number for number, line in enumerate(solution.splitlines(), 1) if "mbarrier_wait(empty" in line)
    assert f"producer w0 waits in line {wait} for empty[" in text
    assert "! waits when the launch fails" in text
    assert "byte " not in text.partition("w21a_tma_copy.py, kernel")[2]
    assert picture.read_bytes().startswith(b"\x89PNG")
