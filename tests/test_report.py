"""Test the page of a learner's progress, as data and in a browser."""

from __future__ import annotations

import dataclasses
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from matplotlib.image import imread

from kernelpath import cli
from kernelpath.course.checkpoint import Criterion
from kernelpath.course.progress import EMPTY_RECORD, Progress, Record
from kernelpath.course.registry import ExerciseRef
from kernelpath.exam.certificate import Certificate, GradedAnswer, WrittenAnswer
from kernelpath.line_counters import LineTraffic
from kernelpath.show import certificate, report, results
from kernelpath.verdict import CaseResult, Interval, Measurement, Report, ValidationError, Verdict, encode
from tests.browser import Browser

SOURCE = "int column = threadIdx.x;\n// <b>not bold</b>\nout[column * n] = in[column];\n"
TRAFFIC = (
    LineTraffic("w01a_double.cu", 3, "load from", "x", 10, sectors=40, ideal_sectors=40),
    LineTraffic("w01a_double.cu", 3, "store to", "out", 10, sectors=280, ideal_sectors=40),
    LineTraffic("w01a_double.cu", 1, "load from", "shared memory", 8, wavefronts=80, ideal_wavefronts=8),
)
EVEN = Interval(1.0, 0.9, 1.1)
CEILINGS = {"copy": 4e12, "read": 4.2e12}


def measurement(seconds: float = 2e-4, flops: int = 1 << 20, **fields: Any) -> Measurement:
    """Return a measurement of 420 MB, which take 100 us at the read ceiling."""
    optional_fields = {"reference_seconds": 1.25e-4, "of_reference": EVEN, "speedup": Interval(2.5, 2.4, 2.6), **fields}
    return Measurement(
        case={"n": 9},
        seconds=seconds,
        baseline_seconds=5e-4,
        compulsory_bytes=420_000_000,
        flops=flops,
        light_seconds=1e-4,
        ceilings=CEILINGS,
        rounds=9,
        method="paired rounds",
        **optional_fields,
    )


@pytest.fixture
def progress(doubling: ExerciseRef, monkeypatch: pytest.MonkeyPatch) -> Progress:
    """Return the progress in a checkout with three exercises.

    `double` was timed and has too much traffic, `halve` was never checked, and `treble` passed.
    """
    monkeypatch.chdir(doubling.root)
    for stem in ("w02a_halve", "w02b_treble"):
        doubling.declaration.with_name(f"{stem}.py").write_text(doubling.declaration.read_text())
        doubling.lesson.with_name(f"{stem}.md").write_text(doubling.lesson.read_text())
    progress = Progress(doubling.root)
    kernel = doubling.stub.with_suffix(".cu")
    kernel.write_text(SOURCE)
    slow = Report(
        doubling.path_id,
        "Doubling",
        "x.py",
        "Fast GPU",
        1,
        Verdict.TOO_MUCH_TRAFFIC,
        "line 3: 32 sectors",
        "x.cu",
        3,
        cases=(CaseResult({"n": 9}, Verdict.PASSED),),
        traffic=TRAFFIC,
        measurement=measurement(),
    )
    progress.save_report(slow, [kernel])
    progress.save_report(dataclasses.replace(slow, measurement=None, device="PTX machine"), [kernel])
    right = Report("1_architecture/w02b_treble", "Trebling", "y.py", "Fast GPU", 1, Verdict.PASSED, stars=3)
    progress.save_report(dataclasses.replace(right, measurement=measurement(1.25e-4, flops=1 << 24)), [])
    progress.update(right.exercise, lambda record: Record("2026-11-21", 3))
    return progress


def render_page(progress: Progress) -> str:
    records = progress.records()
    items = [
        ExerciseRef(progress.root, f"1_architecture/{stem}") for stem in ("w01a_double", "w02a_halve", "w02b_treble")
    ]
    return report.page(progress.root, [(item, records.get(item.path_id, EMPTY_RECORD)) for item in items], progress)


def test_a_later_check_without_a_gpu_keeps_the_timed_report(progress: Progress) -> None:
    last = progress.load_report("1_architecture/w01a_double")
    timed = progress.load_report("1_architecture/w01a_double", "timed")
    assert last is not None
    assert timed is not None
    assert (last.report.device, last.report.measurement) == ("PTX machine", None)
    assert timed.report.measurement == measurement()
    assert last.sources == {"w01a_double.cu": SOURCE}


def test_a_broken_report_is_skipped_with_a_warning(progress: Progress) -> None:
    warnings: list[str] = []
    (progress.root / ".kernelpath" / "reports" / "w01a_double.last.json").write_text('{"report": {}}')
    assert Progress(progress.root, warnings.append).load_report("1_architecture/w01a_double") is None
    assert "w01a_double.last.json was not saved by this version" in warnings[0]
    assert "missing required field" in warnings[0]


def test_bars_show_rates_and_shares_of_the_speed_of_light() -> None:
    bars = {bar.role: (bar.rate, round(bar.length, 3), round(bar.share, 3)) for bar in report.bars(measurement())}
    assert bars == {
        "baseline": ("840 GB/s", 0.25, 0.2),
        "yours": ("2,100 GB/s", 0.625, 0.5),
        "reference": ("3,360 GB/s", 1.0, 0.8),
    }
    product = dataclasses.replace(measurement(flops=42 * 10**9), light_seconds=1.2e-4)
    assert [bar.rate for bar in report.bars(product)] == ["84.0 TFLOP/s", "210.0 TFLOP/s", "336.0 TFLOP/s"]


def test_the_roofline_marks_each_timed_kernel_with_its_role(progress: Progress) -> None:
    graded = Report("1_a/w01a_x", "", "", "GPU", 1, Verdict.PASSED, measurement=measurement())
    memory_only = dataclasses.replace(graded, exercise="1_a/w01b_copy", measurement=measurement(flops=0))
    roofline = report.DeviceRoofline("GPU", [graded, memory_only], ("baseline", "reference", "yours"))
    flops = 1 << 20
    intensity = (1 << 20) / 420_000_000
    assert [(mark.label, mark.intensity, mark.rate) for mark in roofline.marks] == [
        ("baseline", intensity, flops / 5e-4),
        ("reference", intensity, flops / 1.25e-4),
        ("yours", intensity, flops / 2e-4),
    ]
    assert [(mark.name, mark.link, mark.hover) for mark in roofline.marks][1:] == [
        ("", "#w01a_x", "x, reference: 80% of the measured ceiling"),
        ("x", "#w01a_x", "x, yours: 50% of the measured ceiling"),
    ]
    assert roofline.moving == ["copy"]


def test_a_failure_after_a_pass_is_shown_as_passed_earlier(progress: Progress) -> None:
    assert "passed earlier" not in render_page(progress).lower()
    progress.update("1_architecture/w01a_double", lambda record: Record("2026-11-20", 1))
    html = render_page(progress)
    assert '<span class="stars">passed earlier ★</span><b>double</b>' in html
    assert "Passed earlier, on 2026-11-20." in html
    assert "Passed on 2026-11-21." in html


def test_the_page_loads_nothing_and_escapes_the_source_of_learners(progress: Progress) -> None:
    html = render_page(progress)
    assert "&lt;b&gt;not bold&lt;/b&gt;" in html
    assert re.findall(r"(?:src|href)=\"(?!#)", html) == []
    assert re.findall(r"https?:|@import|url\((?!#)|<script", html) == []


def test_recorded_reference_kernels_are_shown_without_a_gpu(progress: Progress) -> None:
    (progress.root / "results").mkdir()
    graded = Report(
        "1_architecture/w02a_halve", "Halving", "", "Other GPU", 1, Verdict.PASSED, measurement=measurement()
    )
    (progress.root / "results" / "other.json").write_text(encode(results.Machine("Other GPU", reports=(graded,))))
    (progress.root / "results" / "notebooks.json").write_text("{}")
    html = render_page(progress)
    assert "The reference kernels on Other GPU, as recorded" in html
    assert html.count("<svg") == 2
    (progress.root / "results" / "numbers.json").write_text(json.dumps({"week01": 3}))
    with pytest.raises(ValidationError, match=r"numbers\.json does not hold results"):
        render_page(progress)


def test_recorded_results_are_parsed_with_their_types(tmp_path: Path) -> None:
    race = {"exercise": "softmax", "case": "n", "seconds": 1.0, "compulsory_bytes": 8, "bytes_per_second": 8.0}
    race |= {"ratios": {"copy": [0.98, 0.97, 0.99]}, "goal": "0.98 of the copy", "reached": True}
    (tmp_path / "results").mkdir()
    path = tmp_path / "results" / "gpu.json"
    path.write_text(json.dumps({"gpu": "GPU", "peers": [race], "counters": {"a": {"ncu": {"x": 1}, "machine": {}}}}))
    (machine,) = results.machines(tmp_path)
    assert machine.peers[0].ratio("copy") == Interval(0.98, 0.97, 0.99)
    assert machine.counters["a"].ncu == {"x": 1}
    path.write_text(json.dumps({"gpu": "GPU", "peers": [{**race, "reached": "yes"}]}))
    with pytest.raises(ValidationError, match=r"gpu\.json.*Expected `bool`, got `str` - at `\$\.peers\[0\]\.reached`"):
        results.machines(tmp_path)
    (tmp_path / "notebooks.json").write_text('{"week01/race": {"device": "GPU", "date": "x", "value": [1, {"a": 2}]}}')
    recorded = results.recordings(tmp_path / "notebooks.json")
    assert recorded == {"week01/race": results.NotebookRecording("GPU", "x", [1, {"a": 2}])}
    assert results.recordings(tmp_path / "absent.json") == {}


def test_the_command_writes_the_page(progress: Progress, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        cli.main(["report"])
    assert exit_.value.code == 0
    assert "next: open .kernelpath/report.html in a browser" in capsys.readouterr().out
    assert "1 of 3 exercises passed" in (progress.root / ".kernelpath" / "report.html").read_text()


@pytest.mark.parametrize("width", [390, 1100])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_works_in_a_browser(progress: Progress, browser: Browser, width: int, scheme: str) -> None:
    path = progress.root / "report.html"
    path.write_text(render_page(progress))
    browser.events.clear()
    browser.open(path, width, scheme)
    assert browser.run("document.title") == "kernelpath: progress"
    assert browser.run("[document.documentElement.scrollWidth, innerWidth]") == [width, width]
    background = browser.run("getComputedStyle(document.body).backgroundColor")
    assert background == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 24, 28)"}[scheme]
    script_open_details = "[...document.querySelectorAll('details')].map(each => each.open)"
    assert browser.run(script_open_details) == [True, False, False]
    browser.click("details:nth-of-type(2) summary")
    assert browser.run(script_open_details) == [True, True, False]
    browser.click('svg a[*|href="#w02b_treble"] use')
    assert browser.run("location.hash") == "#w02b_treble"
    assert browser.run(script_open_details) == [True, True, True]
    requested_urls = [
        e["params"]["request"]["url"] for e in browser.events if e["method"] == "Network.requestWillBeSent"
    ]
    assert requested_urls == [path.as_uri()]
    assert [e for e in browser.events if e["method"] in ("Log.entryAdded", "Runtime.exceptionThrown")] == []
    pixels = imread(io.BytesIO(browser.screenshot()))
    assert pixels.shape[1] == width
    assert (pixels[..., :3].mean() > 0.5) == (scheme == "light")
    assert pixels.std() > 0.05


@pytest.mark.parametrize("width", [390, 1100])
def test_a_certificate_fits_one_page_in_a_browser(browser: Browser, tmp_path: Path, width: int) -> None:
    text = "transactions " * 200
    written = tuple(
        WrittenAnswer(key, "Why?", text, (Criterion(2, "because"),), (2,)) for key in ("one", "two", "three")
    )
    timed = Report("1_a/w01a_vector_add_triton", "Adding", "", "GPU", 1, Verdict.PASSED, measurement=measurement())
    certificate_data = Certificate(
        *(1, "1_a", "Ada Lovelace", "2026-11-21", "GPU", {"device": "GPU"}, {}, 5, "wide", 100, ()),
        *(
            (timed,),
            timed,
            (GradedAnswer("reading", "fault_1", "race 9 12", True),),
            written,
            "teacher",
            {"a.py": "ab" * 32},
        ),
    )
    path = tmp_path / "certificate.html"
    path.write_text(certificate.render_certificate(certificate_data))
    browser.open(path, width, "light")
    assert browser.run("document.querySelector('h1').textContent") == ("Ada Lovelace: passed with 100 of 100 points")
    assert browser.run("document.documentElement.scrollWidth") == width
    assert browser.run("document.querySelector('td.number + td.number').innerText") == "2.500 2.400 to 2.600"
    assert browser.pages() == 1
