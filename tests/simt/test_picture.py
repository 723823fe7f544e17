"""The picture of a launch: what stands in it."""

from __future__ import annotations

import numpy as np
from conftest import aligned

from kernelpath.simt.picture import draw, worst

SOURCE = """__global__ void kernel(const float* a, float* b, int n) {
    __shared__ float tile[32][32];
    tile[threadIdx.y][threadIdx.x] = a[n * threadIdx.y + threadIdx.x];
    __syncthreads();
    b[n * threadIdx.x + threadIdx.y] = tile[threadIdx.x][threadIdx.y];
}"""


def test_samples_show_one_warp(run):
    launch = run(SOURCE, 1, (32, 32), aligned((32, 32)), aligned((32, 32)), 32)
    store = worst(launch.accesses, shared=False)
    assert (store.line, store.buffer, store.requests, store.sectors) == (5, "b", 32, 32 * 32)
    assert store.offsets == {lane: 128 * lane for lane in range(32)}
    load = worst(launch.accesses, shared=True)
    assert (load.line, load.buffer, load.wavefronts, load.least_wavefronts) == (5, "", 32 * 32, 32)
    assert [load.offsets[lane] - load.offsets[0] for lane in range(32)] == [128 * lane for lane in range(32)]


def test_picture_names_the_lines_and_draws_to_a_file(run, tmp_path):
    launch = run(SOURCE, 1, (32, 32), aligned((32, 32)), aligned((32, 32)), 32)
    figure = draw(launch, SOURCE, "transpose")
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert any("tile[threadIdx.x][threadIdx.y]" in text for text in texts)
    assert texts.count("32.0") == 1  # sectors a request, of the store
    assert texts.count("31.0") == 1  # bank conflicts a request, of the load
    assert "32 sectors (1024 bytes)" in figure.axes[1].get_title()
    assert "32.0 wavefronts a request, 1.0 would do" in figure.axes[2].get_title()
    figure.savefig(tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 10_000


def test_picture_without_shared_memory(run):
    source = "__global__ void kernel(const float* a, float* b) { b[threadIdx.x] = a[2 * threadIdx.x]; }"
    launch = run(source, 1, 32, aligned(64), aligned(32))
    assert worst(launch.accesses, shared=True) is None
    figure = draw(launch, source)
    assert len(figure.axes) == 2
    bars = figure.axes[1].patches
    assert np.unique([bar.get_height() for bar in bars]).size <= 2
    assert "8 sectors (256 bytes)" in figure.axes[1].get_title()
