"""Test the plots: rooflines, bank conflicts, and sources annotated with costs."""

from __future__ import annotations

import dataclasses
import io
import re
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.text import Annotation, Text
from matplotlib.transforms import Bbox
from rich.console import Console

from kernelpath.course import registry
from kernelpath.line_counters import LineInstructions, LineTraffic
from kernelpath.show import assembly, plots, roofline, source, templates, warp
from kernelpath.show.palette import ROLES, WASTED
from kernelpath.show.roofline import Mark, Roof
from kernelpath.verdict import Interval, Measurement

CEILINGS = {"copy": 4.0e12, "read": 4.4e12, "fill": 4.5e12}
PRODUCT = {**CEILINGS, "matmul_bfloat16": 800e12}
ROOF = Roof.measured(CEILINGS)


def measurement(flops: int, seconds: float, ceilings: dict[str, float] = CEILINGS, **fields: Any) -> Measurement:
    """Return a measurement of a kernel that moves 4.4 GB, which take 1 ms at the measured ceiling."""
    fields_with_defaults = {"reference_seconds": 1.25e-3, "light_seconds": 1e-3, **fields}
    return Measurement(
        case={},
        seconds=seconds,
        baseline_seconds=4e-3,
        speedup=Interval(1.0, 0.9, 1.1),
        of_reference=None,
        compulsory_bytes=4_400_000_000,
        flops=flops,
        ceilings=ceilings,
        rounds=24,
        method="",
        **fields_with_defaults,
    )


def axes_of(figure: Figure) -> Axes:
    figure.draw_without_rendering()
    (axes,) = figure.axes
    return axes


def corners(line: Line2D) -> list[list[float]]:
    vertices: list[list[float]] = np.asarray(line.get_xydata()).tolist()
    return vertices


def points(axes: Axes) -> dict[str, list[list[float]]]:
    return {str(line.get_label()): corners(line) for line in axes.get_lines()}


def legend(axes: Axes) -> list[str]:
    legend_box = axes.get_legend()
    assert legend_box is not None
    return [text.get_text() for text in legend_box.get_texts()]


def texts(axes: Axes) -> list[str]:
    return [text.get_text() for text in axes.texts]


def test_a_measurement_is_plotted_at_its_intensity_and_rate() -> None:
    axes = axes_of(plots.draw_measurement(measurement(2_200_000_000, 2e-3)))
    points_of_labels = points(axes)
    assert legend(axes) == [
        "yours: 50% of the measured ceiling",
        "reference: 80% of the measured ceiling",
        "baseline: 25% of the measured ceiling",
    ]
    # 2.2 GFLOP over 4.4 GB is an intensity of 0.5; 2.2 GFLOP in 2, 1.25 and 4 ms are 1.1, 1.76 and 0.55 TFLOP/s.
    marks = [points_of_labels[label][0] for label in legend(axes)]
    assert marks == [pytest.approx([0.5, rate]) for rate in (1.1, 1.76, 0.55)]
    (gap,) = axes.collections  # from the slowest to the measured ceiling
    assert np.asarray(gap.get_paths()[0].vertices).tolist() == [pytest.approx([0.5, 0.55]), pytest.approx([0.5, 2.2])]
    low, high = axes.get_ylim()
    assert low < 0.55
    assert high > 2.2
    assert "memory, 4,400 GB/s" in texts(axes)


def test_a_kernel_that_computes_nothing_becomes_bars_of_bandwidth() -> None:
    axes = axes_of(plots.draw_measurement(measurement(0, 2e-3)))
    widths = [patch.get_width() for patch in axes.patches if isinstance(patch, Rectangle)]
    assert widths == [pytest.approx(rate) for rate in (2200, 3520, 1100)]
    assert axes.get_yticklabels()[0].get_text() == "yours: 50% of the measured ceiling"
    assert corners(axes.get_lines()[0])[0][0] == pytest.approx(4400)
    assert plots.png(plots.draw_measurement(measurement(0, 2e-3)))[:4] == b"\x89PNG"


def test_the_ridge_is_where_memory_and_the_fastest_gemm_meet() -> None:
    roof = Roof.measured({**PRODUCT, "matmul_float32": 40e12})
    axes = axes_of(roofline.draw([Mark("yours", 100.0, 1e13)], roof))
    bent, slower = map(corners, axes.get_lines()[:2])
    # The ridge is where the peak rate divided by the bandwidth equals the intensity.
    ridge = 800e12 / 4.4e12
    assert bent[1] == pytest.approx([ridge, 800.0])
    assert bent[2] == pytest.approx([4 * ridge, 800.0])
    assert slower == [pytest.approx([40 / 4.4, 40.0]), pytest.approx([4 * ridge, 40.0])]
    assert {"bfloat16 product, 800.0 TFLOP/s", "float32 product, 40.0 TFLOP/s"} <= set(texts(axes))


def test_without_a_measured_gemm_the_roof_is_a_slope() -> None:
    (line, *_) = axes_of(roofline.draw([Mark("yours", 0.5, 1e12)], ROOF)).get_lines()
    assert corners(line) == [pytest.approx([0.25, 1.1]), pytest.approx([2.0, 8.8])]


def test_a_roof_without_kernels_is_drawn() -> None:
    assert "memory, 4,400 GB/s" in texts(axes_of(roofline.draw([], ROOF)))


def test_roles_have_colours_and_appear_once_in_the_legend() -> None:
    marks = [Mark(label, 1.0 + place, 1e12) for place, label in enumerate(("yours", "reference", "yours", "mine"))]
    axes = axes_of(roofline.draw(marks, ROOF))
    assert legend(axes) == ["yours", "reference", "mine"]
    mark_lines = axes.get_lines()[1:]
    assert [line.get_color() for line in mark_lines[:3]] == [ROLES["yours"], ROLES["reference"], ROLES["yours"]]
    assert mark_lines[3].get_color() not in ROLES.values()
    assert [line.get_fillstyle() for line in mark_lines[:2]] == ["full", "none"]


def find_label_boxes(axes: Axes, names: Iterable[str]) -> dict[str, Bbox]:
    boxes = {text.get_text(): Text.get_window_extent(text) for text in axes.texts}
    return {name: boxes[name] for name in names}


def test_names_do_not_cover_each_other_and_stay_in_the_picture() -> None:
    crowd = [Mark("yours", 0.5, 1e12, name=name) for name in "abcde"]
    axes = axes_of(roofline.draw([*crowd, Mark("yours", 900.0, 1e14, name="at_the_right_edge")], ROOF))
    boxes = find_label_boxes(axes, [*"abcde", "at_the_right_edge"])
    assert boxes["at_the_right_edge"].x1 < axes.bbox.x1
    heights = sorted((boxes[name] for name in "abcde"), key=lambda box: box.y0)
    assert all(lower.y1 <= upper.y0 for lower, upper in pairwise(heights))


def test_labels_of_equal_intensity_are_sorted_by_rate_and_share_one_line() -> None:
    rates = {"slow": 0.9e12, "fast": 1.1e12, "between": 1e12}
    marks = [Mark("yours", 0.5, rate, name=name) for name, rate in rates.items()]
    axes = axes_of(roofline.draw([*marks, Mark("yours", 0.05, 1e11, name="alone")], ROOF))
    boxes = find_label_boxes(axes, [*rates, "alone"])
    assert boxes["fast"].y0 >= boxes["between"].y1
    assert boxes["between"].y0 >= boxes["slow"].y1
    lines = [text for text in axes.texts if isinstance(text, Annotation) and text.arrow_patch is not None]
    assert sorted(line.xy for line in lines) == [(0.05, 0.1), (0.5, 1.0)]


def test_labels_of_all_course_kernels_do_not_overlap() -> None:
    """Plot each benchmark of the course at 0.8 of the measured ceiling, and its baseline at 0.5."""
    ceilings = {**CEILINGS, "matmul_bfloat16": 800e12, "matmul_float32": 50e12}
    marks = []
    for item in registry.exercises():
        exercise = registry.load(item)
        if exercise.bench is None or exercise.flops is None:
            continue
        flops = exercise.flops(**exercise.bench)
        moved = exercise.compulsory_bytes(**exercise.bench)
        light = min(4.4e12 * flops / moved, 800e12)
        marks += [
            Mark("baseline", flops / moved, 0.5 * light),
            Mark("yours", flops / moved, 0.8 * light, name=item.name),
        ]
    assert len(marks) > 80
    axes = axes_of(roofline.draw(marks, Roof.measured(ceilings), inches=(8, 6.75)))
    boxes = find_label_boxes(axes, [mark.name for mark in marks if mark.name])
    text_boxes = [Text.get_window_extent(text) for text in axes.texts if "product" in text.get_text()]
    legend = axes.get_legend()
    assert legend is not None
    text_boxes.append(legend.get_window_extent())
    for name, box in boxes.items():
        covered = [
            other_name for other_name, other_box in boxes.items() if other_name != name and box.overlaps(other_box)
        ]
        assert not covered, f"{name} overlaps {covered}"
        assert not [text for text in text_boxes if box.overlaps(text)], name
        assert axes.bbox.x0 <= box.x0, name
        assert box.x1 <= axes.bbox.x1, name
        assert axes.bbox.y0 <= box.y0, name
        assert box.y1 <= axes.bbox.y1, name
        places = [axes.transData.transform(mark.place) for mark in marks]
        assert not [place for place in places if box.contains(*place)], name


def test_numbers_on_bars_in_groups_do_not_cover_each_other() -> None:
    seven = ("copy", "by hand", "operators", "4 warps", "32 warps", "torch.compile", "reference")
    figure = plots.groups({size: dict.fromkeys(seven, 3900.0) for size in ("small", "medium", "large")}, "GB/s")
    figure.draw_without_rendering()
    boxes = [text.get_window_extent() for axes in figure.axes for text in axes.texts]
    assert len(boxes) == 21
    assert all(left.x1 < right.x0 for left, right in pairwise(sorted(boxes, key=lambda box: box.x0)))


def test_grouped_bars_have_every_label_and_their_values() -> None:
    sizes = ["1024 x 1024 x 1024", "4096 x 4096 x 4096", "8192 x 8192 x 8192", "64 x 8192 x 8192"]
    figure = plots.groups({size: {"_int_mm": 0.253, "ours": 1234.4} for size in sizes}, "share")
    figure.draw_without_rendering()
    (axes,) = figure.axes
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text().strip() for text in legend.get_texts()] == ["_int_mm", "ours"]
    assert {text.get_text() for text in axes.texts} == {"0.253", "1,234"}
    boxes = [label.get_window_extent() for label in axes.get_xticklabels()]
    assert all(left.x1 < right.x0 for left, right in pairwise(boxes))


def test_a_figure_in_a_page_has_its_colours_links_and_hovers() -> None:
    mark = Mark("yours", 0.5, 1e12, name="softmax", link="#w07a_softmax")
    html = templates.svg(roofline.draw([mark], ROOF), "Roofline of <GPU>", {"mark-0": "softmax: 50% & more"})
    assert 'aria-label="Roofline of &lt;GPU&gt;"' in html
    assert "<title>softmax: 50% &amp; more</title>" in html
    assert html.count('xlink:href="#w07a_softmax"') == 2  # the mark and its name
    assert "var(--yours)" in html
    assert not [colour for colour in ROLES.values() if colour in html]
    assert re.findall(r"https?:|<\?xml|<!DOCTYPE|<metadata", html) == []
    assert ">softmax</text>" in html


@pytest.mark.parametrize(
    ("stride", "width", "banks", "height", "ideal_height"),
    [(4, 4, 32, 1, 1), (128, 4, 1, 32, 1), (16, 16, 32, 4, 4), (32, 16, 16, 8, 4), (2, 2, 16, 1, 1), (0, 4, 1, 1, 1)],
)
def test_words_queue_in_their_banks(stride: int, width: int, banks: int, height: int, ideal_height: int) -> None:
    queues = warp.queues({lane: stride * lane for lane in range(32)}, width)
    assert [len(waiting) for waiting in queues.values()] == [height] * banks
    axes = Figure().subplots()
    warp.draw_banks(axes, queues, ideal_height)
    assert len(axes.patches) == banks * height
    lines = [corners(line)[0][1] for line in axes.get_lines()]
    assert lines == ([ideal_height] if height > ideal_height else [])


def test_a_broadcast_word_is_marked() -> None:
    (axes,) = plots.banks({"a row": [0] * 16 + [4] * 15 + [8]}).axes
    assert texts(axes) == ["0+", "16+", "31"]


TRAFFIC = (
    LineTraffic("k.cu", 3, "load from", "x", 10, sectors=40, ideal_sectors=40),
    LineTraffic("k.cu", 3, "load from", "y", 10, sectors=320, ideal_sectors=40),
    LineTraffic("k.cu", 3, "atomic on", "out", 10, sectors=40, ideal_sectors=40, same_address=25),
    LineTraffic("k.cu", 1, "load from", "tile", 10, wavefronts=100, ideal_wavefronts=10),
)
SOURCE = "int column = threadIdx.x;\n\nout[column * n] = x[column] + y[32 * column];\n"


def test_each_access_of_a_line_has_its_own_cost() -> None:
    lines_of_files = source.of_report(TRAFFIC, (), {"k.cu": SOURCE, "other.cu": ""})
    assert list(lines_of_files) == ["k.cu"]
    first, second, third = lines_of_files["k.cu"]
    sectors_load, sectors_store, wavefronts_load, wavefronts_store = source.COLUMNS
    assert source.columns(lines_of_files["k.cu"]) == [sectors_load, sectors_store, wavefronts_load, source.SAME_ADDRESS]
    assert third.cell(source.SAME_ADDRESS) == ("2.5/1", True)
    assert (third.cell(sectors_load), third.cell(sectors_store)) == (("4 + 32/4", True), ("4", False))
    assert (first.cell(wavefronts_load), first.cell(wavefronts_store)) == (("10/1", True), ("", False))
    assert [line.share for line in (first, second, third)] == [0.2, 0.0, 0.8]
    assert [line.wasteful for line in (first, second, third)] == [True, False, True]
    assert source.trim_to_executed([second, first, second, third, second]) == [first, second, third]


def test_many_idle_lanes_are_shown_where_there_is_no_branch() -> None:
    instructions = (LineInstructions("k.cu", 1, 100, 800), LineInstructions("k.cu", 3, 900, 28_600))
    first, second, third = source.of_report(TRAFFIC, instructions, {"k.cu": SOURCE})["k.cu"]
    assert first.cell(source.ACTIVE_LANES) == ("8", True)
    assert third.cell(source.ACTIVE_LANES) == ("", False), "only 200 of 32,000 lanes are idle"
    assert second.active_lanes is None


def test_a_source_looks_the_same_in_a_terminal_and_in_a_picture() -> None:
    lines = source.of_report(TRAFFIC, (), {"k.cu": SOURCE})["k.cu"]
    lines = [dataclasses.replace(lines[0], active_lanes=28.4), *lines[1:]]
    printed = [line.split() for line in print_source(lines, 120)][-len(lines) :]
    assert printed[0] == ["1", "10/1", "28.4", *lines[0].text.split()]
    assert printed[2] == ["3", "4", "+", "32/4", "4", "2.5/1", *lines[2].text.split()]
    axes = Figure().subplots()
    source.draw(axes, lines)
    red = [text.get_text() for text in axes.texts if text.get_color() == WASTED]
    assert red == ["10/1", "28.4", "4 + 32/4", "2.5/1"]
    assert axes.texts[-1].get_text() == "10/1: 10 per request, its bytes fit in 1"


def test_a_source_with_every_column_fits_into_80_characters() -> None:
    costs = {column: [source.Cost(32, 4)] for column in (*source.COLUMNS, source.SAME_ADDRESS)}
    line = source.Line(7, "    if (steps[i] > 0) one.step();  // and so on", costs, active_lanes=8.25, ran=True)
    printed = print_source([line], 80)
    assert max(map(len, printed)) <= 80
    assert printed[-1].startswith("   7 ")
    assert printed[-1].split()[:10] == ["7", *["32/4"] * 5, "8.25", "if", "(steps[i]", ">"]


def print_source(lines: list[source.Line], width: int) -> list[str]:
    file = io.StringIO()
    Console(file=file, width=width).print(source.table(lines))
    return file.getvalue().splitlines()


def test_nothing_but_show_draws_or_prints() -> None:
    """matplotlib is imported by show alone, and nothing below the command line imports show."""
    package = Path(templates.__file__).parents[1]
    allowed = {"show", "cli"}
    for path in package.rglob("*.py"):
        package_part = path.relative_to(package).parts[0].removesuffix(".py")
        text = path.read_text(encoding="utf-8")
        if package_part != "show":
            assert not re.search(r"^\s*(from|import) (matplotlib|jinja2)", text, re.MULTILINE), path
        if package_part not in {*allowed, "dev", "work"}:
            assert not re.search(r"^\s*(from|import) kernelpath\.show", text, re.MULTILINE), path


def test_the_label_of_a_roof_covers_no_mark() -> None:
    """The label of a roof is at its right end, or further left where marks would be covered."""
    name = "float8_e4m3fn product, 1,473.4 TFLOP/s"
    label_positions = []
    for rate in (5e12, 105e12):
        marks = [Mark("reference", 4000.0 / back, rate) for back in (1, 2, 3)]
        axes = axes_of(roofline.draw(marks, Roof(1e12, {name: 100e12})))
        (label,) = (text for text in axes.texts if text.get_text() == name)
        box = label.get_window_extent()
        assert not any(box.contains(*axes.transData.transform(mark.place)) for mark in marks)
        label_positions.append(label.get_position()[0])
    assert label_positions[0] == 16000.0
    assert label_positions[1] < 4000.0 / 3


def test_a_request_costs_at_least_one_sector() -> None:
    """A single lane that stores 4 bytes wastes nothing, since no access moves less than one sector."""
    alone = source.Cost(1, 0.125)
    assert (str(alone), alone.wasteful) == ("1", False)
    spread = source.Cost(32, 0.5)
    assert (str(spread), spread.wasteful) == ("32/1", True)


def test_a_mangled_name_is_shown_as_in_the_source() -> None:
    assert (
        assembly.demangled("_Z7softmaxIfLi8EEvPKT_PS0_ii") == "void softmax<float, 8>(float const*, float*, int, int)"
    )
    assert assembly.demangled("softmax_kernel") == "softmax_kernel"
