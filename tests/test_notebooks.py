"""Test the functions that the notebooks call: predictions, questions, cells, tables, and pictures."""

from __future__ import annotations

import ast
import dataclasses
import html
import itertools
import re
import symtable
from pathlib import Path
from types import EllipsisType, SimpleNamespace

import nbformat
import numpy as np
import pytest
import torch
from nbclient.exceptions import CellExecutionError

from kernelpath.course import lesson, registry
from kernelpath.course.progress import Progress
from kernelpath.grading import grade
from kernelpath.show import cells, execute, graded, magic, notebook, plots, predict, view
from kernelpath.verdict import Report, Verdict
from tests.notebooks import NOTEBOOKS, code_cells, measurement, read, text_of
from warpcheck import simulated_gpu
from warpcheck.frontends import cuda
from warpcheck.target import TARGETS

STRIDED = r"""
__global__ void gather(const float* x, float* out, int stride) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = x[i * stride];
}
"""


def test_a_saved_report_is_loaded_only_for_the_unchanged_solution(
    doubling: registry.ExerciseRef, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = Report(doubling.path_id, "title", "file", "cpu", 1, Verdict.PASSED, stars=1)
    graded.save_report(doubling, report, tmp_path)
    assert graded.load_report(doubling) is None, "the environment names no folder"
    monkeypatch.setenv(graded.REPORTS_VARIABLE, str(tmp_path))
    assert graded.load_report(doubling) == report
    for file in (doubling.solution, doubling.declaration):
        before = file.read_text()
        file.write_text(before.replace("2", "3"))
        assert graded.load_report(doubling) is None
        file.write_text(before)
    assert graded.load_report(doubling) == report


@pytest.mark.parametrize(("tree", "loads_saved"), [("phases", False), ("solutions", False), ("expert", True)])
def test_a_saved_report_is_never_used_for_a_learners_file(
    tree: str, loads_saved: bool, doubling: registry.ExerciseRef, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forged = Report(doubling.path_id, "title", "file", "cpu", 1, Verdict.PASSED, stars=3)
    honest = Report(doubling.path_id, "title", "file", "cpu", 1, Verdict.NOT_STARTED)
    graded.save_report(doubling, forged, tmp_path)
    monkeypatch.setenv(graded.REPORTS_VARIABLE, str(tmp_path))
    monkeypatch.setenv("KERNELPATH_TREE", tree)
    monkeypatch.setattr(registry, "find", lambda name: doubling)
    monkeypatch.setattr(grade, "grade", lambda item, submission: honest)
    monkeypatch.setattr(view, "report", lambda *_, **__: None)
    assert notebook.check("double") == (forged if loads_saved else honest)


@pytest.mark.parametrize("item", registry.exercises(), ids=lambda item: item.name)
def test_every_exercise_is_checked_in_the_notebook_of_its_week(item: registry.ExerciseRef) -> None:
    assert item.notebook is not None, f"week {item.week} has no notebook"
    source = "\n".join(cell.source for cell in code_cells(read(item.notebook)))
    assert f'notebook.check("{item.name}")' in source
    exercise = registry.load(item)
    if exercise.baseline is not None and exercise.kind not in ("distributed", "library"):
        assert f'notebook.contestants("{item.name}")' in source, "the learner's kernel is compared with nothing"


@pytest.mark.parametrize(
    ("unit", "measured", "message"),
    [
        (
            "is the thread that holds element 5",
            2,
            "found: the thread that holds element 5 is 2; wrong, you predicted 3\n",
        ),
        ("is the slowest", 1, "found: the slowest is 1; wrong, you predicted 3\n"),
        ("in lane 31", 2, "found 2 in lane 31; wrong, you predicted 3\n"),
        ("launches for 148 tensors", 2, "found 2 launches for 148 tensors; wrong, you predicted 3\n"),
        ("launches, fused", 1, "fused: found 1 launch; wrong, you predicted 3\n"),
        ("is the relative error", 1.5, "found: the relative error is 1.5; you predicted 3, twice that\n"),
    ],
)
def test_a_predicted_index_is_not_compared_as_a_ratio(
    unit: str, measured: float, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    notebook.hold(3, measured, unit)
    assert capsys.readouterr().out == message


@pytest.mark.parametrize(
    ("prediction", "message"),
    [
        (32, "as you predicted"),
        (64, "you predicted 64, twice that"),
        (80, "you predicted 80, too large by a factor of 2.5"),
        (24, "you predicted 24, 75% of it"),
        (16, "you predicted 16, half of it"),
        (8, "you predicted 8, a quarter of it"),
        (5, "you predicted 5, too small by a factor of 6.4"),
        (32.2, "you predicted 32.2, right within 1%"),
        (64_000, "you predicted 64,000, more than 1,000 times that"),
        (0.01, "you predicted 0.01, less than a thousandth of that"),
        (0, "off by 32"),
    ],
)
def test_a_prediction_is_compared_with_the_measurement(
    prediction: float, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    notebook.hold(prediction, 32, "sectors")
    printed = capsys.readouterr().out
    assert printed.startswith("found 32 sectors")
    assert message in printed


def test_the_measurement_is_printed_without_a_prediction(capsys: pytest.CaptureFixture[str]) -> None:
    notebook.hold(None, 32, "sectors")
    notebook.hold(None, 1, "sectors per request")
    notebook.hold(None, 1, "times the bytes")
    notebook.hold(None, 1, "sectors, blocks of (16, 2)")
    notebook.hold(None, 2, "reads of A[0, 0]")
    notebook.hold(None, 0.5, "of cuBLAS: cp.async, a ring of stages")
    notebook.hold(7, 12, "is the line that races")
    assert capsys.readouterr().out.splitlines() == [
        "found 32 sectors",
        "found 1 sector per request",
        "found 1 times the bytes",
        "blocks of (16, 2): found 1 sector",
        "found 2 reads of A[0, 0]",
        "found 0.5 of cuBLAS: cp.async, a ring of stages",
        "found: the line that races is 12; wrong, you predicted 7",
    ]


@pytest.mark.parametrize(
    ("prediction", "measured", "printed"),
    [
        (2, 1.6, "found 1.6× faster than eager; you predicted 2× faster, too large by a factor of 1.25: a good guess"),
        (1.5, 0.8, "found 1.25× slower than eager; you predicted 1.5× faster"),
        (0.5, 0.8, "found 1.25× slower than eager; you predicted 2× slower, too large by a factor of 1.6"),
        (1, 0.8, "found 1.25× slower than eager; you predicted no difference in speed"),
    ],
)
def test_a_speedup_below_one_is_a_slowdown(
    prediction: float, measured: float, printed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    notebook.hold(prediction, measured, "× faster than eager")
    assert capsys.readouterr().out == f"{printed}\n"


def test_a_string_prediction_is_rejected(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(cells.Stop, match="Put a number in place of '24'"):
        notebook.hold("24", 32, "sectors")
    assert not capsys.readouterr().out


@pytest.mark.parametrize(
    ("number", "answer", "message"),
    [
        (0, None, "answer: 12"),
        (0, "12", "Put a number in place"),
        (0, 12, "right"),
        (0, 13, "no: 12; your answer was 13, one too many: what is at the two ends?"),
        (0, 6, "no: 12; your answer was 6, half of it"),
        (0, 0.012, "no: 12; your answer was 0.012, off by a factor of 1,000, as are a unit and a thousand of it"),
        (0, 1 / 12, "which is its inverse"),
        (0, -12, "which has the wrong sign"),
        (3, 2, "Put one of the choices, in quotes, in place"),
        (3, "it halves", 'no: "it changes by less than a tenth"; your answer was "it halves"'),
    ],
)
def test_the_reply_to_an_answer_explains_the_mistake(
    number: int, answer: str | float | None, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    notebook.ask("vector_add", number, answer)
    printed = capsys.readouterr().out
    assert message in printed
    assert ("Put" in message) == ("Put" in printed.splitlines()[-1])


def test_the_measurement_is_withheld_until_there_is_a_prediction(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(predict.RUN_THROUGH, raising=False)
    with pytest.raises(cells.Stop, match="Work it out first") as stop:
        notebook.hold(..., 32, "sectors")
    assert "32" not in capsys.readouterr().out + str(stop.value)


@pytest.mark.parametrize(
    ("unit", "guess"),
    [
        ("ms, batch 1", True),
        ("× faster than eager", True),
        ("of cuBLAS: swizzle", True),
        ("of the speed of a copy", True),
        ("GB/s, 18 links", True),
        ("times as long as a copy", True),
        ("× faster, if bytes decide", False),
        ("microseconds at best", False),
        ("of the peak", False),
        ("of the blocks are visited", False),
        ("sectors per request", False),
        ("times the compulsory bytes", False),
    ],
)
def test_a_guess_is_distinguished_from_a_computable_prediction(
    unit: str, guess: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(predict.RUN_THROUGH, raising=False)
    with pytest.raises(cells.Stop, match="Guess first" if guess else "Work it out first"):
        notebook.hold(..., 32, unit)
    notebook.hold(24, 30, unit)
    assert capsys.readouterr().out.endswith(": a good guess\n") == guess


def test_running_all_cells_announces_once_that_answers_are_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(predict.RUN_THROUGH, "1")
    monkeypatch.setattr(predict, "_has_announced", False)
    notebook.hold(..., 32, "sectors")
    notebook.hold(..., 8, "requests")
    assert capsys.readouterr().out.splitlines()[1:] == ["found 32 sectors", "found 8 requests"]


LEARNERS = """
from kernelpath.show import notebook, plots
import torch
notebook.setup()
---
%%cuda gather.cu
__global__ void gather(const float* x, float* out, int stride) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = x[i * stride];
}
template <int stride> __global__ void strided(const float* x, float* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = x[i * stride];
}
---
x, out = torch.randn(2048), torch.empty(256)
notebook.annotate(notebook.count(gather[1, 256], x, out, 8), gather)
print(notebook.asked(strided(8)[1, 256], x, out).sectors_per_request, strided(8) is strided(8))
---
notebook.show({"one": {"<sectors>": 4, "a heading that no terminal has room for, however wide " * 3: 0.5}}, "&")
notebook.picture(plots.grid({"ids": [[1, 2]]}))
notebook.ask("transpose", 1, 4.5)
notebook.hold(None, 1, "divergent branches")
---
my_prediction = ...

notebook.hold(my_prediction, 987, "units")
print("the answer is 987")
---
print("below")
"""


def create_notebook(text: str) -> nbformat.NotebookNode:
    cells = [nbformat.v4.new_code_cell(source.strip()) for source in text.split("---\n")]
    book: nbformat.NotebookNode = nbformat.v4.new_notebook(cells=cells)
    return book


@pytest.fixture(scope="module")
def learners(tmp_path_factory: pytest.TempPathFactory) -> tuple[nbformat.NotebookNode, CellExecutionError]:
    """Return a notebook after a learner ran all its cells, and the error that ended the run."""
    path = tmp_path_factory.mktemp("learner") / "week99_own.ipynb"
    book = create_notebook(LEARNERS)
    nbformat.write(book, path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nbformat, "read", lambda *_, **__: book)
        with pytest.raises(CellExecutionError) as execution_error:
            execute.execute(path, tree="phases", through=False)
    return book, execution_error.value


def test_running_all_cells_stops_at_the_first_open_prediction_without_a_traceback(
    learners: tuple[nbformat.NotebookNode, CellExecutionError],
) -> None:
    book, execution_error = learners
    assert execution_error.ename == "Stop"
    *_, question, prediction, below = book.cells
    assert text_of(question).endswith("found 1 divergent branch\n")
    assert [output.output_type for output in prediction.outputs] == ["stream"]
    assert text_of(prediction).startswith("Work it out first")
    assert below.outputs == []
    assert below.execution_count is None


def test_cuda_cells_bind_their_kernels_and_templates(
    learners: tuple[nbformat.NotebookNode, CellExecutionError],
) -> None:
    table, printed = learners[0].cells[2].outputs
    assert printed.text == "18.0 True\n"  # (4 + 32) / 2
    rows = re.findall(r'<td class="at">(\d+)</td>\s*<td><pre>(.*)</pre></td>', table.data["text/html"])
    numbered = {int(number): re.sub("<.*?>", "", text) for number, text in rows}
    cell = learners[0].cells[1].source.splitlines()
    assert numbered == {number: html.escape(line) for number, line in enumerate(cell[1:], start=2)}
    assert '<td class="count bad">32/4</td>' in table.data["text/html"]
    assert "out[i] = x[i * stride];" in table.data["text/plain"]


def test_tables_and_questions_have_an_html_and_a_text_form(
    learners: tuple[nbformat.NotebookNode, CellExecutionError],
) -> None:
    table, picture, question, _ = learners[0].cells[3].outputs
    assert "&lt;sectors&gt;" in table.data["text/html"]
    assert "however wide " * 1 in table.data["text/html"]
    assert "<sectors>" in table.data["text/plain"]
    assert "image/png" in picture.data
    assert '<p class="good">right</p>' in question.data["text/html"]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("__global__ void f(int* x) {\n    y[0] = 1;\n}", 'f.cu(3): error: identifier "y" is undefined'),
        ("int x;", "no kernel"),
    ],
)
def test_a_cuda_cell_that_does_not_compile_reports_its_line(source: str, message: str) -> None:
    with pytest.raises(cells.Stop, match=re.escape(message)):
        magic.kernels("f.cu", source)


def test_a_cuda_cell_is_compiled_for_the_target_of_the_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulated_gpu, "_target", TARGETS["sm_90a"])
    source = "__global__ void f(int* x) { __cluster_barrier_arrive(); __cluster_barrier_wait(); x[0] = 3; }"
    kernel = magic.kernels("f.cu", source)["f"]
    assert isinstance(kernel, cuda.Kernel)
    x = torch.zeros(1, dtype=torch.int32)
    kernel[1, 1](x)
    assert x.item() == 3


def test_the_compiler_is_given_the_options_of_a_cuda_cell() -> None:
    source = "__global__ void f(int* x) { x[0] = SIZE; }"
    kernel = magic.kernels("f.cu define-macro=SIZE=7", source)["f"]
    assert isinstance(kernel, cuda.Kernel)
    x = torch.zeros(1, dtype=torch.int32)
    kernel[1, 1](x)
    assert (kernel.file, x.item()) == ("f.cu", 7)


@pytest.mark.parametrize(
    ("measured", "message"),
    [
        (605_032_704, "found 605,032,704 units; you predicted 2.7e+43, more than 1,000 times that"),
        (0.000254, "found 0.000254 units; you predicted 2.7e+43, more than 1,000 times that"),
        (float("inf"), "found inf units; you predicted 2.7e+43, off by inf"),
    ],
)
def test_a_prediction_is_compared_with_extreme_measurements(
    measured: float, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    notebook.hold(2.7e43, measured, "units")
    assert capsys.readouterr().out.strip() == message


@pytest.mark.parametrize(
    ("answer", "expected"),
    [(4.5, "right"), (4.0, "no: 4.5"), ("4.5", "Put a number in place of the dots"), (..., "Put a number in place")],
)
def test_the_explanation_is_printed_only_after_an_answer(
    answer: float | str | EllipsisType, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    notebook.ask("transpose", 1, answer)
    printed = capsys.readouterr().out
    assert expected in printed
    assert ("(1 + 8) / 2" in printed) == (not expected.startswith("Put"))


@pytest.mark.parametrize(
    ("answer", "occurrences"), [("yes, approximately", 1), ("no, by far less", 0), (None, 0), ("perhaps", 0), (..., 0)]
)
def test_a_wrong_choice_is_shown_with_the_reason_against_it(
    answer: str | EllipsisType | None, occurrences: int, capsys: pytest.CaptureFixture[str]
) -> None:
    notebook.ask("matmul_tiled", 4, answer)
    printed = " ".join(capsys.readouterr().out.split())
    assert printed.count("most of the naive kernel's requests") == occurrences


@pytest.mark.parametrize(("stride", "sectors"), [(1, 4), (2, 8), (8, 32), (32, 32)])
def test_pictures_show_the_sectors_that_the_ptx_machine_counts(stride: int, sectors: int) -> None:
    x = torch.randn(256 * stride)
    out = torch.empty(256)
    gather = cuda.Kernel("gather.cu", STRIDED, "gather")[1, 256]
    totals = notebook.count(gather, x, out, stride).totals
    assert totals.global_load_sectors / totals.global_load_requests == sectors
    figure = plots.sectors({"load": [4 * stride * lane for lane in range(32)]})
    assert figure.axes[0].get_title(loc="left") == f"load\n{sectors} sectors"
    assert notebook.asked(gather, x, out, stride).bytes == 32 * 8 * (sectors + 4)


@pytest.mark.parametrize(("pitch", "turns"), [(32, 32), (33, 1), (34, 2), (40, 8), (0, 1)])
def test_bank_maps_count_wavefronts(pitch: int, turns: int) -> None:
    column = [4 * pitch * lane for lane in range(32)]
    assert plots.wavefronts(column) == turns
    title = plots.banks({"column": column}).axes[0].get_title(loc="left")
    assert title == f"column: {turns} wavefront{'s' if turns > 1 else ''}"


def test_a_grid_shows_every_value_in_its_cell() -> None:
    figure = plots.grid({"ids": [[3, 1], [0, 2]]})
    labels = {text.get_position(): text.get_text() for text in figure.axes[0].texts}
    assert labels == {(0, 0): "3", (1, 0): "1", (0, 1): "0", (1, 1): "2"}


def test_a_matrix_product_is_drawn_with_b_above_c_and_a_to_its_left() -> None:
    figure = plots.product([[1, 2]], [[3], [4]], [[5]])
    figure.draw_without_rendering()
    axes_by_title = {axes.get_title(loc="left"): axes for axes in figure.axes if axes.texts}
    labels = {title: [text.get_text() for text in axes.texts] for title, axes in axes_by_title.items()}
    assert labels == {"A": ["1", "2"], "B": ["3", "4"], "C": ["5"]}
    a, b, c = (axes_by_title[title].get_position() for title in "ABC")
    assert a.x1 < c.x0
    assert b.y0 > c.y1
    assert a.y0 == pytest.approx(c.y0)
    assert b.x0 == pytest.approx(c.x0)


def test_a_roofline_shows_the_compulsory_intensity_and_the_kernels() -> None:
    kernels = {"naive": (0.5, 1e12)}
    (axes,) = plots.roofline(kernels, bandwidth=4e12, peak=48e12, compulsory=683.0, x="elements", y="rate").axes
    assert axes.get_lines()[-1].get_xdata() == [683.0, 683.0]
    assert axes.get_xlim()[1] > 683
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("elements", "rate")


def test_the_ridge_point_is_where_memory_and_arithmetic_balance() -> None:
    (axes,) = plots.roofline({"naive": (0.5, 1e12)}, bandwidth=4e12, peak=48e12).axes
    roof, kernel = (np.array(line.get_data()).T.tolist() for line in axes.get_lines())
    assert roof == [[0.25, 1.0], [12.0, 48.0], [48.0, 48.0]]
    assert kernel == [[0.5, 1.0]]


def test_the_legend_of_a_roofline_distinguishes_kernels_at_the_same_point() -> None:
    (axes,) = plots.roofline({"yours": (1.0, 2e12), "reference": (1.0, 2e12)}, bandwidth=4e12, peak=48e12).axes
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["yours: 2", "reference: 2"]
    assert len({line.get_marker() for line in axes.get_lines()[1:]}) == 2


def test_curve_labels_avoid_the_axis_and_other_curves() -> None:
    series = {"long": {1.0: 9.0, 4.0: 8.0}, "short": {1.0: 9.0, 2.0: 8.5}, "zero": {1.0: 0.0, 4.0: 0.0}}
    (axes,) = plots.lines(series, x="x", y="y").axes
    named = {text.get_text(): text.get_verticalalignment() for text in axes.texts}
    assert named == {"long": "center", "short": "bottom", "zero": "bottom"}


def test_labels_of_curves_that_end_close_together_do_not_overlap() -> None:
    series = {name: {1.0: 100.0, 4.0: height} for name, height in (("a", 12.0), ("b", 10.0), ("c\nc", 3.0), ("d", 0.0))}
    figure = plots.lines(series, x="x", y="y")
    (axes,) = figure.axes
    figure.draw_without_rendering()
    boxes = sorted((text.get_window_extent() for text in axes.texts), key=lambda box: box.y0)
    assert [text.get_text() for text in sorted(axes.texts, key=lambda text: text.get_window_extent().y0)] == [
        "d",
        "c\nc",
        "b",
        "a",
    ]
    assert all(lower.y1 <= upper.y0 for lower, upper in itertools.pairwise(boxes))


def test_a_curve_that_starts_at_zero_needs_a_linear_axis() -> None:
    with pytest.raises(ValueError, match=r"x = 0 is not on a logarithmic axis"):
        plots.lines({"curve": {0.0: 1.0, 2.0: 5.0}}, x="seconds", y="y")
    (axes,) = plots.lines({"curve": {0.0: 1.0, 2.0: 5.0}}, x="seconds", y="y", log=False).axes
    assert axes.get_xscale() == "linear"


@pytest.mark.parametrize(("first", "bottom"), [(-2.0, -2.0), (3.0, 0.0)])
def test_the_y_axis_starts_at_zero_or_at_the_lowest_value(first: float, bottom: float) -> None:
    (axes,) = plots.lines({"curve": {1.0: first, 2.0: 5.0}}, x="x", y="y").axes
    assert axes.get_ylim()[0] == bottom


def test_only_some_of_many_x_values_have_a_tick() -> None:
    (axes,) = plots.lines(
        {"curve": {2.0**k: 1.0 for k in range(18)}}, x="x", y="y", ticks=lambda place: f"{place:g}"
    ).axes
    assert [label.get_text() for label in axes.get_xticklabels()] == [f"{2.0**k:g}" for k in range(0, 18, 2)]


def test_ticks_of_close_x_values_do_not_overlap() -> None:
    sizes = {
        float(size): 1.0 for size in sorted([*(1 << power for power in range(12, 30)), 40 << 20, 48 << 20, 56 << 20])
    }
    (axes,) = plots.lines({"curve": sizes}, x="x", y="y", ticks=lambda place: f"{place / 2**20:g}M").axes
    named = np.log2(axes.get_xticks())
    assert np.diff(named).min() > 1.5
    assert axes.get_xticklabels()[-1].get_text() == "256M"


def test_a_curve_that_ends_early_is_labeled_on_its_free_side() -> None:
    series = {"short": {1.0: 1.0, 2.0: 8.0}, "long": {1.0: 0.5, 2.0: 7.9, 4.0: 9.0}, "falls": {1.0: 5.0, 2.0: 4.0}}
    (axes,) = plots.lines(series, x="x", y="y").axes
    named = {text.get_text(): text.get_horizontalalignment() for text in axes.texts}
    assert named == {"short": "right", "long": "left", "falls": "left"}


def test_sector_maps_are_drawn_in_rows_of_two_panels() -> None:
    strides = {f"stride {stride}": [4 * stride * lane for lane in range(32)] for stride in (1, 2, 8)}
    figure = plots.sectors(strides)
    first, second, third = (axes for axes in figure.axes if axes.get_title(loc="left"))
    assert first.get_position().y0 == second.get_position().y0 > third.get_position().y0
    assert [int(axes.get_ylim()[0]) for axes in (first, second, third)] == [8, 8, 32]


@pytest.mark.parametrize(("tree", "remembered"), [("phases", True), ("solutions", False), ("expert", False)])
def test_a_learners_pass_is_remembered(
    tree: str, remembered: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    item = dataclasses.replace(registry.find("vector_add"), root=tmp_path)
    passed = Report(item.path_id, "title", "file", "cpu", 1, Verdict.PASSED, stars=1)
    monkeypatch.setenv("KERNELPATH_TREE", tree)
    monkeypatch.setattr(registry, "find", lambda name: item)
    monkeypatch.setattr(lesson, "read", lambda path: SimpleNamespace(explain="why"))
    monkeypatch.setattr(grade, "grade", lambda item, submission: passed)
    monkeypatch.setattr(view, "report", lambda *_, **__: None)
    assert notebook.check("vector_add") is passed
    assert (item.path_id in Progress(tmp_path).records()) == remembered


def test_the_expert_tree_has_only_the_reference_as_contestant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELPATH_TREE", "expert")
    assert list(notebook.contestants("vector_add")) == ["reference"]
    monkeypatch.delenv("KERNELPATH_TREE")
    assert list(notebook.contestants("vector_add")) == ["yours", "reference"]


def find_hold_calls(source: str) -> list[ast.Call]:
    return [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "notebook.hold" and len(node.args) == 3
    ]


def constant_names(source: str) -> set[str]:
    """Return the names to which the cell assigns literals or arithmetic with literals."""
    names: set[str] = set()
    for statement in ast.parse(source).body:
        if isinstance(statement, ast.Assign) and not isinstance(statement.value, ast.Constant | ast.Tuple):
            if any(isinstance(node, ast.Call | ast.Subscript | ast.Attribute) for node in ast.walk(statement.value)):
                continue
            if {node.id for node in ast.walk(statement.value) if isinstance(node, ast.Name)} <= names:
                names |= {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
    return names


def python_cells(path: Path) -> list[str]:
    return [source for cell in code_cells(read(path)) if not (source := cell.source).startswith("%%")]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_no_cell_contains_the_arithmetic_of_its_prediction(path: Path) -> None:
    for source in python_cells(path):
        for call in find_hold_calls(source):
            nodes = list(ast.walk(call.args[1]))
            names = {node.id for node in nodes if isinstance(node, ast.Name)}
            computed = any(isinstance(node, ast.Call | ast.Subscript | ast.Attribute) for node in nodes)
            assert computed or not names <= constant_names(source), ast.unparse(call)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_prediction_is_explained_before_the_next_one(path: Path) -> None:
    cells_of_notebook = read(path).cells
    for number, cell in enumerate(cells_of_notebook):
        if cell.cell_type == "code" and "notebook.hold(" in cell.source:
            following = ""
            for later in cells_of_notebook[number + 1 : number + 4]:
                if later.cell_type == "code" and "notebook.hold(" in later.source:
                    break
                following += later.source
            assert "After your prediction" in following, cell.id


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_cell_has_at_most_one_prediction_above_it(path: Path) -> None:
    open_predictions = 0
    for cell in read(path).cells:
        if cell.cell_type == "markdown":
            open_predictions += cell.source.count("**Predict.**")
            assert open_predictions < 2, f"{cell.id}: another prediction is asked for before the cell of the one before"
        elif not cell.source.startswith("%%"):
            open_predictions = 0


def names_bound_by(source: str) -> set[str]:
    """Return the names that a cell binds at its top level."""
    names: set[str] = set()
    for statement in ast.parse(source).body:
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            names.add(statement.name)
        else:
            nodes = (node for node in ast.walk(statement) if isinstance(node, ast.Name))
            names |= {node.id for node in nodes if isinstance(node.ctx, ast.Store)}
    return names


def globals_read_by(table: symtable.SymbolTable) -> set[str]:
    """Return the global names that a function and its nested functions read."""
    names = {symbol.get_name() for symbol in table.get_symbols() if symbol.is_global() and symbol.is_referenced()}
    return names.union(*map(globals_read_by, table.get_children()))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_measurement_reads_no_name_that_two_cells_bind(path: Path) -> None:
    """A measurement runs only on a GPU, so no other test would notice that a name has been rebound."""
    cells_of_name: dict[str, int] = {}
    for cell in code_cells(read(path)):
        if cell.source.startswith("%%"):
            continue
        bound = names_bound_by(cell.source)
        if measurement(cell):
            for function in symtable.symtable(cell.source, path.name, "exec").get_children():
                if function.get_name() in bound:
                    twice = {name for name in globals_read_by(function) - bound if cells_of_name.get(name, 0) > 1}
                    assert not twice, f"{cell.id}: {sorted(twice)}"
        for name in bound:
            cells_of_name[name] = cells_of_name.get(name, 0) + 1
