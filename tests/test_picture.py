"""Test the contents of the picture of a launch."""

from __future__ import annotations

from pathlib import Path

from kernelpath.show.warp import draw_launch, worst_access
from machine.launching import aligned, run
from warpcheck.counters import AccessSample

SOURCE = """__global__ void kernel(const float* a, float* b, int n) {
    __shared__ float tile[32][32];
    tile[threadIdx.y][threadIdx.x] = a[n * threadIdx.y + threadIdx.x];
    __syncthreads();
    b[n * threadIdx.x + threadIdx.y] = tile[threadIdx.x][threadIdx.y];
}"""


def require_sample(sample: AccessSample | None) -> AccessSample:
    assert sample is not None
    return sample


def test_samples_show_one_warp() -> None:
    launch = run(SOURCE, 1, (32, 32), aligned((32, 32)), aligned((32, 32)), 32)
    store = require_sample(worst_access(launch.accesses, shared=False))
    assert (store.line, store.buffer, store.requests, store.sectors) == (5, "b", 32, 32 * 32)
    assert store.offsets == {lane: 128 * lane for lane in range(32)}
    load = require_sample(worst_access(launch.accesses, shared=True))
    assert (load.line, load.shared, load.buffer) == (5, True, "tile")
    assert (load.wavefronts, load.least_wavefronts) == (32 * 32, 32)
    assert [load.offsets[lane] - load.offsets[0] for lane in range(32)] == [128 * lane for lane in range(32)]


def test_picture_names_the_lines_and_draws_to_a_file(tmp_path: Path) -> None:
    launch = run(SOURCE, 1, (32, 32), aligned((32, 32)), aligned((32, 32)), 32)
    figure = draw_launch(launch, SOURCE, "transpose")
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert any("tile[threadIdx.x][threadIdx.y]" in text for text in texts)
    assert [text for text in texts if text[0].isdecimal()][:4] == [
        "4",
        "1",
        "32/4",
        "32/1",
    ]  # in the order of the lines
    assert "4 sectors (128 bytes)" in figure.axes[1].get_title()
    assert "32 sectors (1,024 bytes)" in figure.axes[2].get_title()
    assert "32 wavefronts per request, its bytes fit in 1" in figure.axes[3].get_title()
    figure.savefig(tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 10_000


def test_picture_without_shared_memory() -> None:
    source = "__global__ void kernel(const float* a, float* b) { b[threadIdx.x] = a[2 * threadIdx.x]; }"
    launch = run(source, 1, 32, aligned(64), aligned(32))
    assert worst_access(launch.accesses, shared=True) is None
    figure = draw_launch(launch, source)
    load, store = figure.axes[1:]
    assert "8 sectors (256 bytes)" in load.get_title()
    assert "4 sectors (128 bytes)" in store.get_title()


def test_each_row_of_the_picture_is_a_sector_at_any_distance() -> None:
    source = """__global__ void kernel(const float* a, float* b) {
        if (threadIdx.x > 29) b[threadIdx.x] = a[1000 * (threadIdx.x - 30)];
    }"""
    figure = draw_launch(run(source, 1, 32, aligned(1001), aligned(32)), source)
    load = figure.axes[1]
    assert [label.get_text() for label in load.get_yticklabels()] == ["0", "4,000"]
    assert [text.get_text() for text in load.texts] == ["30", "31"]
    assert len(load.patches) == 16


def test_the_worst_of_several_loads_is_shown_next_to_their_line() -> None:
    source = """__global__ void kernel(const float* a, float* b, const float* c) {
        b[threadIdx.x] = a[8 * threadIdx.x] + c[0];
    }"""
    figure = draw_launch(run(source, 1, 32, aligned(256), aligned(32), aligned(1)), source)
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert [text for text in texts if text[0].isdecimal()][:2] == ["32/4 + 1", "4"]
