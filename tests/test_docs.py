"""Test the generated tables of the documents, and their links."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from kernelpath.course import registry
from kernelpath.show import docs, provenance, results
from kernelpath.verdict import Interval, Measurement, Report, Verdict, encode


def test_tables_of_this_checkout_are_current() -> None:
    assert list(docs.stale(registry.root())) == []


def test_a_table_is_replaced_between_its_markers(tmp_path: Path) -> None:
    for folder in ("checks/1_architecture", "phases", "solutions/1_architecture"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "checks/1_architecture/w01b_vector_add.py").write_text('"""Adding: two vectors."""\n')
    (tmp_path / "solutions/1_architecture/w01b_vector_add.cu").write_text("")
    text = "before\n<!-- table: syllabus -->\nold\n<!-- end -->\nafter\n"
    assert docs.regenerate(text, tmp_path) == (
        "before\n<!-- table: syllabus -->\n"
        "| week | exercise | language | topic |\n| --- | --- | --- | --- |\n"
        "| 1 | `vector_add` | CUDA C++ | Adding: two vectors |\n<!-- end -->\nafter\n"
    )


def test_tables_of_results_contain_the_measurements(tmp_path: Path) -> None:
    ceilings = {"copy": 4e12, "read": 4.4e12}
    speedup = Interval(3.67, 3.61, 3.72)
    measurement = Measurement(
        {"n": 4096}, 1.28e-4, 4.7e-4, None, speedup, None, 528_000_000, 0, 1.2e-4, ceilings, 9, "paired rounds"
    )
    timed = Report("1_architecture/w03c_transpose", "", "", "GPU", 1, Verdict.PASSED, measurement=measurement)
    ratios = {"copy": (0.98, 0.97, 0.99), "Liger": (1.456, 1.4, 1.5)}
    race = results.PeerComparison("softmax", "16 rows", 1e-3, 8, 4.2e12, ratios, "1.2 times Liger", True)
    ratios_of_loss = {"Liger": (1.2, 1.1, 1.3), "quack": (0.9, 0.8, 0.95)}
    loss = results.PeerComparison(
        "softmax",
        "8 rows",
        1e-3,
        8,
        4.2e12,
        ratios_of_loss,
        flops=2 * 10**9,
        host_seconds=1.2e-5,
        elapsed_ratios={"copy": 0.5, "Liger": 0.92, "quack": 0.97},
    )
    access_kinds = dict.fromkeys(f"{space}_{way}" for space in ("global", "shared") for way in ("load", "store"))
    zero_counters = {f"{key}_{unit}": 0 for key in access_kinds for unit in ("requests", "sectors", "wavefronts")}
    ncu = {**zero_counters, "global_load_requests": 8, "global_load_sectors": 36}
    counter_pairs = {"strided": results.CounterPair(ncu, {**ncu, "global_load_sectors": 1040})}
    eager_comparison = results.PeerComparison("gelu", "1 row", 1e-3, 8, 4.2e12, {"eager": (1.25, 1.2, 1.3)})
    absent_peers = {"quack: softmax 16 rows": "ValueError: a | b\nc"}
    dates = {timed.exercise: "2026-11-30"}
    machine = results.Machine(
        "GPU",
        reports=(timed,),
        report_dates=dates,
        peers=(race, eager_comparison, loss),
        counters=counter_pairs,
        absent=absent_peers,
    )
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "gpu.json").write_text(encode(machine))
    (tmp_path / "results" / "notebooks.json").write_text("{}")
    peaks = {"GPU": results.Datasheet("a data sheet", {"memory": 5e12})}
    (tmp_path / "results" / "datasheets.json").write_text(encode(peaks))
    unknown = ["", "Measured on GPU. The versions were not recorded."]
    assert list(docs.results(tmp_path))[2:] == [
        "| GPU | `transpose` | n=4096 | 128 µs | 3.670 (3.610 to 3.720) | 93.8% | 103.1% | 82.5% | 2026-11-30 |",
        *unknown,
    ]
    assert list(docs.peers(tmp_path))[2:] == [
        "| GPU | `softmax` | 16 rows | 1 ms | 4,200 GB/s | 0.98 | Liger 1.46 |  |  |  |",
        "| GPU | `softmax` | 8 rows | 1 ms | 2.0 TFLOP/s |  | quack **0.90** | Liger 1.20 | Liger **0.92** | 12 µs |",
        "| GPU | `gelu` | 1 row | 1 ms | 4,200 GB/s |  | eager 1.25 |  |  |  |",
        *unknown,
    ]
    assert list(docs.peer_summary(tmp_path))[2:] == [
        "| GPU | `softmax` | 2 | Liger, quack | 1.14 | **0.90** (8 rows) |",
        "| GPU | `gelu` | 1 | eager | 1.25 | 1.25 (1 row) |",
        "| GPU | all | 3 | Liger, eager, quack | 1.18 | **0.90** (`softmax`, 8 rows) |",
        *unknown,
    ]
    assert list(docs.absent_peers(tmp_path))[2] == "| GPU | quack: softmax 16 rows | ValueError: a / b c |"
    assert list(docs.counters(tmp_path))[2:] == [
        "| GPU | `strided` | 4.5 and 0 | 0 and 0 | global load sectors 1,040, not 36 |",
        *unknown,
    ]


VERSIONS = {"python": "3.12.3", "torch": "2.11.0", "triton": "3.6.0", "nvidia-cuda-nvrtc": "13.0.88"}


@pytest.mark.parametrize(
    ("records", "needs", "sentence"),
    [
        ([VERSIONS], (), "with torch 2.11.0, Triton 3.6.0, NVRTC 13.0.88."),
        (
            [VERSIONS, {**VERSIONS, "triton": "3.9.0", "nvidia-cutlass-dsl": "4.8.1"}],
            (),
            "with torch 2.11.0, Triton 3.6.0 and 3.9.0, NVRTC 13.0.88, CuTe DSL 4.8.1.",
        ),
        (
            [{"torch": "2.11.0", "triton": "3.6.0"}],
            ("liger-kernel",),
            "with torch 2.11.0, Triton 3.6.0. The version of NVRTC and Liger was not recorded.",
        ),
        (
            [VERSIONS, {}, {"python": "3.12.3"}],
            (),
            "with torch 2.11.0, Triton 3.6.0, NVRTC 13.0.88. The versions of 2 of 3 rows were not recorded.",
        ),
    ],
)
def test_a_table_names_the_versions_that_were_recorded(
    records: list[dict[str, str]], needs: tuple[str, ...], sentence: str
) -> None:
    machine = results.Machine("NVIDIA H200", driver="580.159.04")
    lines = list(provenance.measured_lines(machine, records, needs))
    assert lines == ["", f"Measured on NVIDIA H200 (driver 580.159.04) {sentence}"]
    if len(records) == 1:
        assert list(provenance.measured_lines(replace(machine, versions=records[0]), needs=needs)) == lines


def test_every_published_table_of_measurements_names_its_versions() -> None:
    """A table of measurements on a GPU, and the table of compiled kernels, must name the compilers' versions."""
    for path in ("docs/results.md", "docs/platforms.md", "warpcheck/docs/ptx-machine.md"):
        tables = re.findall(
            r"<!-- table: (\w+) -->\n(.*?)<!-- end -->", (registry.root() / path).read_text(), re.DOTALL
        )
        for name, body in tables:
            if "| NVIDIA H200 |" in body or name == "cards":
                last = body.splitlines()[-1]
                assert re.match(
                    r"(Measured on NVIDIA H200 \(driver [\d.]+(, SM clock up to [\d,]+ MHz)?\)|Compiled) with torch \d",
                    last,
                ), name
                assert "Triton 3." in last, name
                assert "NVRTC 13." in last, name


LINK = re.compile(r"\]\(([^)#\s]*)(?:#([\w-]+))?\)")


def test_links_between_documents_are_valid() -> None:
    root = registry.root()
    documents = [path for pattern in docs.PAGES for path in root.glob(pattern)]
    assert {"README.md", "attacks.md", "ptx-machine.md", "glossary.md"} <= {path.name for path in documents}
    broken = []
    for path in documents:
        text = re.sub(r"```.*?```|`[^`]*`", "", path.read_text(), flags=re.DOTALL)
        for target, anchor in LINK.findall(text):
            if target.startswith("https://"):
                continue
            file = path.parent / target if target else path
            if not file.exists():
                broken.append(f"{path.relative_to(root)}: {target}")
            elif anchor and file.suffix == ".md" and anchor not in _anchors(file):
                broken.append(f"{path.relative_to(root)}: {target}#{anchor}")
    assert broken == []


def _anchors(document: Path) -> set[str]:
    """Return the anchors that GitHub gives to the headings of a document."""
    headings = re.findall(r"^#+ (.+)$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
