"""What the PTX machine records of an asynchronous kernel, and the chart of it."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import torch
from rich.console import Console

from kernelpath import lanes, simt
from kernelpath.cli.app import _status
from kernelpath.device import gpu
from kernelpath.lanes import cuda
from kernelpath.show import pipeline, pipeline_picture
from kernelpath.simt import Event
from kernelpath.simt.events import EventKind as Kind
from kernelpath.simt.target import SM_90A

KERNELS = Path(__file__).with_name("pipeline_kernels.cu")
TILES = 6


def events(monkeypatch: pytest.MonkeyPatch, stages: int, recorded: bool = True) -> list[Event]:
    """Of a sum of TILES tiles by two blocks."""
    monkeypatch.setattr(gpu, "_target", SM_90A)
    x, out = torch.arange(32.0 * TILES), torch.empty(2, 32)
    launched: list[lanes.Launched] = []
    with lanes.observe(launched.append), simt.recorded(recorded):
        cuda.kernel(KERNELS, "sum")[2, 64](x, out, TILES, stages)
    assert torch.equal(out, x.view(TILES, 32).sum(0).expand(2, 32))
    (launch,) = launched
    assert launch.counted is not None
    return launch.counted.events


def places(found: list[Event], kind: Kind, barrier: str = "") -> list[int]:
    """Where the events of a kind are, at barriers whose names begin so."""
    return [place for place, one in enumerate(found) if one.kind == kind and one.barrier.startswith(barrier)]


@pytest.mark.parametrize(("stages", "waits"), [(1, TILES - 1), (2, TILES - 2), (4, TILES - 4)])
def test_who_waits_for_whom(stages: int, waits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    found = events(monkeypatch, stages)
    loads, lands = places(found, Kind.LOAD), places(found, Kind.LAND)
    filled, freed = places(found, Kind.PASS, "full"), places(found, Kind.PASS, "empty")
    releases = places(found, Kind.ARRIVE, "empty")
    assert [len(one) for one in (loads, lands, filled, freed, releases)] == [TILES] * 5  # of one block alone
    assert {found[place].bytes for place in loads + lands} == {128}
    for tile in range(TILES):
        assert found[loads[tile]].barrier == found[lands[tile]].barrier == f"full[{tile % stages}]"
        assert found[lands[tile]].phase == tile // stages
        assert freed[tile] < loads[tile] < lands[tile] < filled[tile] < releases[tile]
        if tile >= stages:
            assert releases[tile - stages] < freed[tile]
    assert [found[place].step for place in loads] == sorted(found[place].step for place in loads)
    waiting = places(found, Kind.WAIT, "empty")
    assert len(waiting) == waits
    source = KERNELS.read_text().splitlines()
    assert {(found[place].warp, "&empty[s]" in source[found[place].line - 1]) for place in waiting} == {(1, True)}
    assert {found[place].warp for place in places(found, Kind.WAIT, "full")} == {0}


def test_a_launch_that_nobody_asks_of_has_no_events(monkeypatch: pytest.MonkeyPatch) -> None:
    assert events(monkeypatch, 2, recorded=False) == []
    with pytest.raises(ValueError, match="no events were recorded"):
        pipeline.chart([])


def test_the_chart_shows_what_a_second_stage_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = (pipeline.chart(events(monkeypatch, stages)) for stages in (1, 2))
    assert one.labels == two.labels == ["TMA", "consumer w0", "producer w1"]
    assert one.rows == [
        "      v     v     v     v     v      v   ",
        ">.>....>a....>a....>a....>a....>a.....>ax",
        " >.>aL...>aL...>aL...>aL...>aL...>aLx    ",
    ]
    assert two.rows == [  # the second copy is in flight while the first tile is read
        "        v     v     v     v      v  v   ",
        ">.>......>a....>a....>a....>a.....>a.>ax",
        " >.>aLaL...>aL...>aL...>aL...>aLx       ",
    ]
    released = [two.marks[mark.after] for mark in two.marks if mark.after is not None]
    assert {(mark.sign, mark.barrier[:-3]) for mark in released} == {("v", "full"), ("a", "empty")}
    told = Console(width=80, file=io.StringIO(), force_terminal=False)
    told.print(pipeline.text(one))
    text = told.file.getvalue()  # type: ignore[attr-defined]
    assert max(map(len, text.splitlines())) <= 80
    rows = [line.split()[2:-1] for line in text.splitlines() if line.startswith("producer w1  ")]
    assert rows[1:] == [["barrier", "0", "19", "1"], ["empty[0]", "23", "5"]]
    figure = pipeline_picture.draw(two)
    letters = "".join(part.get_text() for part in figure.axes[0].texts)
    assert letters == "".join(mark.sign for mark in two.marks)


def test_warps_that_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "_target", SM_90A)
    launched: list[lanes.Launched] = []
    with lanes.observe(launched.append), simt.recorded():
        cuda.kernel(KERNELS, "turns")[1, 64](torch.empty(6), 3)
    assert launched[0].counted is not None
    shown = pipeline.chart(launched[0].counted.events)
    assert shown.labels == ["warp 0", "warp 1"]
    ended = [
        (mark.row, shown.marks[mark.after].row, shown.marks[mark.after].barrier) for mark in shown.marks if mark.after
    ]
    assert ended == [(0, 1, "barrier 1"), (1, 0, "barrier 2")] * 3


def test_a_wait_in_a_cluster_ends_by_its_own_blocks_barrier() -> None:
    def event(kind: Kind, block: int, barrier: str = "") -> Event:
        return Event(kind, 0, block, 0, 7, "mbarrier.try_wait", barrier, 0, 0)

    found = [event(Kind.RUN, 0), event(Kind.WAIT, 0, "empty"), event(Kind.RUN, 1)]
    found += [event(Kind.ARRIVE, 1, "empty of block 0"), event(Kind.ARRIVE, 1, "empty"), event(Kind.RUN, 0)]
    shown = pipeline.chart(found)
    assert shown.labels == ["warp 0:0", "warp 1:0"]
    assert shown.rows == [">...>", " >aa "]
    assert [mark.after for mark in shown.marks] == [None, None, None, None, 2]


def test_profile_asks_for_it(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    picture = tmp_path / "pipeline.png"
    command = ["profile", "vector_add", "--tree", "solutions", "--pipeline"]
    assert _status([*command, "--picture", str(picture)]) == 0
    told = capsys.readouterr().out
    assert ">x" in told
    assert "no warp waits for anything" in told
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert _status([*command, "--sass"]) == 2
    assert "--pipeline goes with NAME and --picture" in capsys.readouterr().err
