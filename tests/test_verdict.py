"""Test that a report round-trips through JSON, and the descriptions of accesses and verdicts."""

from __future__ import annotations

import json
from dataclasses import fields, replace

import pytest

from kernelpath.line_counters import LineTraffic
from kernelpath.verdict import CaseResult, Interval, Measurement, Report, ValidationError, Verdict

STORE = LineTraffic("w03c_transpose.cu", 14, "store to", "out", 100, sectors=3200, ideal_sectors=400)
LOAD = LineTraffic("w03c_transpose.cu", 14, "load from", "shared memory", 50, wavefronts=1600, ideal_wavefronts=50)
ATOMIC = LineTraffic("k.cu", 3, "atomic on", "out", 10, sectors=90, ideal_sectors=40, same_address=25)
MEASUREMENT = Measurement(
    case={"rows": 8192, "columns": 8192, "dtype": "float32"},
    seconds=1.28e-4,
    baseline_seconds=4.7e-4,
    reference_seconds=1.25e-4,
    speedup=Interval(3.67, 3.61, 3.72),
    of_reference=Interval(0.98, 0.97, 0.99),
    compulsory_bytes=536_870_912,
    flops=0,
    light_seconds=1.2e-4,
    ceilings={"copy": 4.28e12, "read": 4.4e12},
    rounds=48,
    method="paired rounds, cold L2, medians",
    telemetry={"clock_MHz": 1980.0},
)
REPORT = Report(
    exercise="1_architecture/w03c_transpose",
    title="Transpose",
    submission="phases/1_architecture/w03c_transpose.py",
    device="NVIDIA H200",
    seed=7,
    verdict=Verdict.TOO_SLOW,
    cause="slower",
    file="phases/1_architecture/w03c_transpose.cu",
    line=14,
    stars=1,
    next_step="kp bench transpose",
    not_measured=("nothing",),
    cases=(CaseResult({"rows": 1}, Verdict.PASSED, seconds=0.1), CaseResult({"rows": 2}, Verdict.RACE, "why", "f", 3)),
    traffic=(STORE, LOAD),
    measurement=MEASUREMENT,
    printed="line\n",
    versions={"torch": "2.13"},
    seconds=3.5,
)


def test_a_report_with_a_measurement_round_trips_through_json() -> None:
    restored = Report.from_json(REPORT.to_json())
    assert restored == REPORT
    assert restored.measurement is not None
    assert restored.measurement.bytes_per_second == pytest.approx(4.194e12, rel=1e-3)
    assert restored.measurement.share_of_light == pytest.approx(0.9375)


def test_a_report_without_a_measurement_or_reference_round_trips_through_json() -> None:
    without = replace(REPORT, measurement=replace(MEASUREMENT, of_reference=None, reference_seconds=None))
    for report in (without, replace(REPORT, measurement=None)):
        assert Report.from_json(report.to_json(indent=2)) == report


def test_the_json_holds_every_field_and_plain_verdicts() -> None:
    data = json.loads(REPORT.to_json())
    assert set(data) == {field.name for field in fields(Report)}
    assert data["verdict"] == "TOO_SLOW"
    assert data["cases"][1]["verdict"] == "RACE"


def test_nan_is_never_written() -> None:
    with pytest.raises(ValueError, match="JSON"):
        replace(REPORT, seconds=float("nan")).to_json()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "Expecting value"),
        ("{}", "missing required field `exercise`"),
        ("[]", "Expected `object`, got `array`"),
        ("[" * 100_000, "recursion"),
        (b"\xff", "decode"),
        ('{"seed": NaN}', "NaN is not JSON"),
    ],
)
def test_invalid_json_is_refused(text: str | bytes, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Report.from_json(text)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("verdict",), "GREAT", r"Invalid enum value 'GREAT' - at `\$\.verdict`"),
        (("seed",), "7", r"Expected `int`, got `str` - at `\$\.seed`"),
        (("colour",), 1, r"unknown field `\$\.colour`"),
        (("cases", 1, "colour"), 1, r"unknown field `\$\.cases\[1\]\.colour`"),
        (("measurement", "speedup", "mean"), 1.0, r"unknown field `\$\.measurement\.speedup\.mean`"),
        (("measurement", "speedup"), [3.67, 3.61, 3.72], r"`object`.*`\$\.measurement\.speedup`"),
    ],
)
def test_an_invalid_field_is_reported_with_its_path(path: tuple[str | int, ...], value: object, message: str) -> None:
    data = inner = json.loads(REPORT.to_json())
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    with pytest.raises(ValidationError, match=message):
        Report.from_json(json.dumps(data))


def test_a_missing_optional_field_takes_its_default() -> None:
    data = json.loads(REPORT.to_json())
    del data["printed"]
    assert Report.from_json(json.dumps(data)) == replace(REPORT, printed="")


def test_every_verdict_has_a_meaning_and_exactly_one_passes() -> None:
    assert all(verdict.meaning and verdict.value == verdict.name for verdict in Verdict)
    assert [verdict for verdict in Verdict if verdict.passed] == [Verdict.PASSED]
    assert Verdict("RACE") is Verdict.RACE


def test_ratios_of_an_access() -> None:
    assert (STORE.sectors_over_ideal, STORE.bank_conflicts_per_request) == (8.0, 0.0)
    assert (STORE.waste, LOAD.waste) == (8.0, 32.0)
    assert (LOAD.sectors_over_ideal, LOAD.bank_conflicts_per_request) == (1.0, 31.0)


def test_an_access_describes_its_location_and_cost() -> None:
    assert (STORE.place, STORE.cost) == ("line 14, store to out", "32 sectors per request, its bytes fit in 4")
    alone = LineTraffic("w01a_hello_grid.cu", 6, "store to", "out", 8, sectors=8, ideal_sectors=1)
    assert alone.at_the_least
    assert not STORE.at_the_least
    assert not LOAD.at_the_least
    assert alone.cost == "each request moves 32 bytes for the 4 that its lanes ask for"
    assert (LOAD.place, LOAD.cost) == (
        "line 14, load from shared memory",
        "32 wavefronts per request, its bytes fit in 1",
    )


def test_an_atomic_describes_its_largest_cost() -> None:
    assert ATOMIC.cost == "2.5 same-address atomics per request, which take turns"
    assert replace(ATOMIC, sectors=200).cost == "20 sectors per request, its bytes fit in 4"
