"""The page of a learner's progress, as data and as a browser shows it."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import io
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from matplotlib.image import imread
from websocket import WebSocket, create_connection

from kernelpath import cli
from kernelpath.course.checkpoint import Criterion
from kernelpath.course.progress import NOTHING, Progress, Record
from kernelpath.course.registry import Item
from kernelpath.exam.certificate import Answered, Certificate, Written
from kernelpath.show import certificate, report, results
from kernelpath.verdict import CaseResult, Interval, LineTraffic, Measurement, Report, ValidationError, Verdict, encode

SOURCE = "int column = threadIdx.x;\n// <b>not bold</b>\nout[column * n] = in[column];\n"
TRAFFIC = (
    LineTraffic("w01a_double.cu", 3, "load from", "x", 10, sectors=40, ideal_sectors=40),
    LineTraffic("w01a_double.cu", 3, "store to", "out", 10, sectors=280, ideal_sectors=40),
    LineTraffic("w01a_double.cu", 1, "load from", "shared memory", 8, wavefronts=80, ideal_wavefronts=8),
)
EVEN = Interval(1.0, 0.9, 1.1)
CEILINGS = {"copy": 4e12, "read": 4.2e12}


def measurement(seconds: float = 2e-4, flops: int = 1 << 20, **fields: Any) -> Measurement:
    """Of 420 MB, so that the speed of light is 100 us."""
    told = {"reference_seconds": 1.25e-4, "of_reference": EVEN, "speedup": Interval(2.5, 2.4, 2.6), **fields}
    return Measurement(
        case={"n": 9},
        seconds=seconds,
        baseline_seconds=5e-4,
        bytes_moved=420_000_000,
        flops=flops,
        light_seconds=1e-4,
        ceilings=CEILINGS,
        rounds=9,
        method="paired rounds",
        **told,
    )


@pytest.fixture
def kept(doubling: Item, monkeypatch: pytest.MonkeyPatch) -> Progress:
    """A checkout with `double`, too much traffic and timed, `halve`, never tried, and `treble`, passed."""
    monkeypatch.chdir(doubling.root)
    for stem in ("w02a_halve", "w02b_treble"):
        doubling.declaration.with_name(f"{stem}.py").write_text(doubling.declaration.read_text())
        doubling.lesson.with_name(f"{stem}.md").write_text(doubling.lesson.read_text())
    progress = Progress(doubling.root)
    kernel = doubling.stub.with_suffix(".cu")
    kernel.write_text(SOURCE)
    slow = Report(
        doubling.stem,
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
    progress.keep(slow, [kernel])
    progress.keep(dataclasses.replace(slow, measurement=None, device="PTX machine"), [kernel])
    right = Report("1_architecture/w02b_treble", "Trebling", "y.py", "Fast GPU", 1, Verdict.PASSED, stars=3)
    progress.keep(dataclasses.replace(right, measurement=measurement(1.25e-4, flops=1 << 24)), [])
    progress.update(right.exercise, lambda record: Record("2026-11-21", 3))
    return progress


def page(kept: Progress) -> str:
    records = kept.records()
    items = [Item(kept.root, f"1_architecture/{stem}") for stem in ("w01a_double", "w02a_halve", "w02b_treble")]
    return report.page(kept.root, [(item, records.get(item.stem, NOTHING)) for item in items], kept)


def test_a_later_check_without_a_gpu_does_not_lose_the_time(kept: Progress) -> None:
    last, timed = kept.kept("1_architecture/w01a_double"), kept.kept("1_architecture/w01a_double", "timed")
    assert last is not None
    assert timed is not None
    assert (last.report.device, last.report.measurement) == ("PTX machine", None)
    assert timed.report.measurement == measurement()
    assert last.sources == {"w01a_double.cu": SOURCE}


def test_a_broken_report_is_passed_over_and_said(kept: Progress) -> None:
    said: list[str] = []
    (kept.root / ".kernelpath" / "reports" / "w01a_double.last.json").write_text('{"report": {}}')
    assert Progress(kept.root, said.append).kept("1_architecture/w01a_double") is None
    assert "w01a_double.last.json was not saved by this version" in said[0]
    assert "missing required field" in said[0]


def test_bars_compare_speeds_and_name_the_share_of_light() -> None:
    shown = {bar.role: (bar.rate, round(bar.length, 3), round(bar.share, 3)) for bar in report.bars(measurement())}
    assert shown == {
        "baseline": ("840 GB/s", 0.25, 0.2),
        "yours": ("2,100 GB/s", 0.625, 0.5),
        "reference": ("3,360 GB/s", 1.0, 0.8),
    }
    product = dataclasses.replace(measurement(flops=42 * 10**9), light_seconds=1.2e-4)
    assert [bar.rate for bar in report.bars(product)] == ["84.0 TFLOP/s", "210.0 TFLOP/s", "336.0 TFLOP/s"]


def test_the_roofline_shows_what_was_timed_and_names_whose_it_is(kept: Progress) -> None:
    graded = Report("1_a/w01a_x", "", "", "GPU", 1, Verdict.PASSED, measurement=measurement())
    moving = dataclasses.replace(graded, exercise="1_a/w01b_copy", measurement=measurement(flops=0))
    roofed = report.Roofed("GPU", [graded, moving], ("baseline", "reference", "yours"))
    flops, intensity = 1 << 20, (1 << 20) / 420_000_000
    assert [(mark.label, mark.intensity, mark.rate) for mark in roofed.marks] == [
        ("baseline", intensity, flops / 5e-4),
        ("reference", intensity, flops / 1.25e-4),
        ("yours", intensity, flops / 2e-4),
    ]
    assert [(mark.name, mark.link, mark.hover) for mark in roofed.marks][1:] == [
        ("", "#w01a_x", "x, reference: 80% of the speed of light"),
        ("x", "#w01a_x", "x, yours: 50% of the speed of light"),
    ]
    assert roofed.moving == ["copy"]


def test_a_failure_after_a_pass_does_not_read_as_a_pass(kept: Progress) -> None:
    assert "passed earlier" not in page(kept).lower()
    kept.update("1_architecture/w01a_double", lambda record: Record("2026-11-20", 1))
    html = page(kept)
    assert '<span class="stars">passed earlier ★</span><b>double</b>' in html
    assert "Passed earlier, on 2026-11-20." in html
    assert "Passed on 2026-11-21." in html


def test_the_page_stands_alone_and_escapes_what_learners_write(kept: Progress) -> None:
    html = page(kept)
    assert "&lt;b&gt;not bold&lt;/b&gt;" in html
    assert re.findall(r"(?:src|href)=\"(?!#)", html) == []
    assert re.findall(r"https?:|@import|url\((?!#)|<script", html) == []


def test_recorded_reference_kernels_show_where_the_machine_has_no_gpu(kept: Progress) -> None:
    (kept.root / "results").mkdir()
    graded = Report(
        "1_architecture/w02a_halve", "Halving", "", "Other GPU", 1, Verdict.PASSED, measurement=measurement()
    )
    (kept.root / "results" / "other.json").write_text(encode(results.Machine("Other GPU", reports=(graded,))))
    (kept.root / "results" / "notebooks.json").write_text("{}")
    html = page(kept)
    assert "The reference kernels on Other GPU, as recorded" in html
    assert html.count("<svg") == 2
    (kept.root / "results" / "numbers.json").write_text(json.dumps({"week01": 3}))
    with pytest.raises(ValidationError, match=r"numbers\.json does not hold results"):
        page(kept)


def test_what_was_recorded_is_read_with_its_types(tmp_path: Path) -> None:
    race = {"exercise": "softmax", "case": "n", "seconds": 1.0, "bytes_moved": 8, "bytes_per_second": 8.0}
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
    assert recorded == {"week01/race": results.Recording("GPU", "x", [1, {"a": 2}])}
    assert results.recordings(tmp_path / "absent.json") == {}


def test_the_command_writes_the_page(kept: Progress, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        cli.main(["report"])
    assert exit_.value.code == 0
    assert "next: open .kernelpath/report.html in a browser" in capsys.readouterr().out
    assert "1 of 3 exercises passed" in (kept.root / ".kernelpath" / "report.html").read_text()


class Browser:
    """A headless Chromium, driven through the Chrome DevTools Protocol."""

    def __init__(self, socket: WebSocket) -> None:
        self._socket = socket
        self._count = 0
        self.events: list[dict[str, Any]] = []
        self._session: dict[str, str] = {}
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = {"sessionId": self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]}
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._count += 1
        self._socket.send(json.dumps({"id": self._count, "method": method, "params": parameters, **self._session}))
        while (answer := json.loads(self._socket.recv())).get("id") != self._count:
            self.events.append(answer)
        assert "error" not in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    def run(self, script: str) -> Any:
        answer = self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def open(self, path: Path, width: int, scheme: str) -> None:
        self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600
        )
        self.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.send("Page.navigate", url=path.as_uri())
        self.run("new Promise(done => document.readyState == 'complete' ? done() : addEventListener('load', done))")

    def click(self, selector: str) -> None:
        """A real press of the mouse on the middle of an element."""
        place = self.run(
            f"(() => {{ const e = document.querySelector({selector!r}); e.scrollIntoView({{block: 'center'}});"
            " const r = e.getBoundingClientRect(); return {x: r.x + r.width / 2, y: r.y + r.height / 2} })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **place)

    def pages(self) -> int:
        """How many pages of A4 it prints on."""
        printed = self.send("Page.printToPDF", preferCSSPageSize=True)["data"]
        return len(re.findall(rb"/Type\s*/Page\b(?!s)", base64.b64decode(printed)))

    def screenshot(self) -> bytes:
        return base64.b64decode(self.send("Page.captureScreenshot", captureBeyondViewport=True)["data"])


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("there is no Chromium: sudo apt install chromium")
    flags = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-port=0")
    profile = f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"
    with subprocess.Popen([chromium, *flags, profile], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        address = next((line.split()[-1] for line in process.stderr if line.startswith("DevTools listening")), None)
        if address is None:
            pytest.skip("Chromium does not start here")
        with contextlib.closing(create_connection(address, suppress_origin=True, timeout=60)) as socket:
            yield Browser(socket)
        process.terminate()


@pytest.mark.parametrize("width", [390, 1100])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_in_a_browser(kept: Progress, browser: Browser, width: int, scheme: str) -> None:
    path = kept.root / "report.html"
    path.write_text(page(kept))
    browser.events.clear()
    browser.open(path, width, scheme)
    assert browser.run("document.title") == "kernelpath: progress"
    assert browser.run("[document.documentElement.scrollWidth, innerWidth]") == [width, width]
    paper = browser.run("getComputedStyle(document.body).backgroundColor")
    assert paper == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 24, 28)"}[scheme]
    opened = "[...document.querySelectorAll('details')].map(each => each.open)"
    assert browser.run(opened) == [True, False, False]
    browser.click("details:nth-of-type(2) summary")
    assert browser.run(opened) == [True, True, False]
    browser.click('svg a[*|href="#w02b_treble"] use')
    assert browser.run("location.hash") == "#w02b_treble"
    assert browser.run(opened) == [True, True, True]
    asked = [e["params"]["request"]["url"] for e in browser.events if e["method"] == "Network.requestWillBeSent"]
    assert asked == [path.as_uri()]
    assert [e for e in browser.events if e["method"] in ("Log.entryAdded", "Runtime.exceptionThrown")] == []
    pixels = imread(io.BytesIO(browser.screenshot()))
    assert pixels.shape[1] == width
    assert (pixels[..., :3].mean() > 0.5) == (scheme == "light")
    assert pixels.std() > 0.05


@pytest.mark.parametrize("width", [390, 1100])
def test_a_certificate_in_a_browser(browser: Browser, tmp_path: Path, width: int) -> None:
    text = "transactions " * 200
    written = tuple(Written(key, "Why?", text, (Criterion(2, "because"),), (2,)) for key in ("one", "two", "three"))
    timed = Report("1_a/w01a_vector_add_triton", "Adding", "", "GPU", 1, Verdict.PASSED, measurement=measurement())
    told = Certificate(
        *(1, "1_a", "Ada Lovelace", "2026-11-21", "GPU", {"device": "GPU"}, {}, 5, "wide", 100, ()),
        *(
            (timed,),
            timed,
            (Answered("reading", "fault_1", "race 9 12", True),),
            written,
            "teacher",
            {"a.py": "ab" * 32},
        ),
    )
    path = tmp_path / "certificate.html"
    path.write_text(certificate.page(told))
    browser.open(path, width, "light")
    assert browser.run("document.querySelector('h1').textContent") == ("Ada Lovelace: passed with 100 of 100 points")
    assert browser.run("document.documentElement.scrollWidth") == width
    assert browser.run("document.querySelector('td.number + td.number').innerText") == "2.500 2.400 to 2.600"
    assert browser.pages() == 1
