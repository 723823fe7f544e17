"""Test the formats of numbers, source locations, and cases."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelpath import words


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (65.0, "65 s"),
        (1.0, "1 s"),
        (0.9999, "1 s"),
        (1234.0, "1,230 s"),
        (0.0, "0 ns"),
        (1.28e-4, "128 µs"),
        (0.00235, "2.35 ms"),
        (3e-9, "3 ns"),
    ],
)
def test_a_duration_has_the_unit_that_fits(value: float, text: str) -> None:
    assert words.seconds(value) == text


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (32, 4, "32"),
        (605_032_704, 4, "605,032,704"),
        (32.25, 4, "32.25"),
        (32.25, 3, "32.2"),
        (12345.6, 4, "12,346"),
        (12345.6, 3, "12,346"),
        (2.7e43, 4, "2.7e+43"),
        (10**43, 4, "1e+43"),
        (0.000254, 4, "0.000254"),
        (float("inf"), 4, "inf"),
    ],
)
def test_integers_are_written_in_full_and_other_numbers_are_rounded(value: float, digits: int, text: str) -> None:
    assert words.number(value, digits) == text


def test_nouns_are_singular_or_plural() -> None:
    assert [words.count(count, "sector") for count in (0, 1, 1024)] == ["0 sectors", "1 sector", "1,024 sectors"]
    assert words.per_request(32.0, "wavefront", 1.0) == "32 wavefronts per request, its bytes fit in 1"
    assert words.per_request(1.0, "wavefront", 0.5) == "1 wavefront per request, its bytes fit in 0.5"


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (1, "wavefronts at a pitch of 33", "1 wavefront at a pitch of 33"),
        (1.0, "divergent branches", "1 divergent branch"),
        (1, "passes over x", "1 pass over x"),
        (2, "divergent branches", "2 divergent branches"),
        (0.5, "reads per multiply-add", "0.5 reads per multiply-add"),
        (1.162, "× faster", "1.162× faster"),
        (0.8, "× faster than eager", "1.25× slower than eager"),
        (0.99999, "× faster", "no difference in speed"),
        (1, "× faster than eager", "no difference in speed from eager"),
        (1, "is the stride of axis 0", "1 is the stride of axis 0"),
        (1, "trillion operations", "1 trillion operations"),
        (1, "GB/s", "1 GB/s"),
    ],
)
def test_units_are_singular_or_plural(value: float, unit: str, text: str) -> None:
    assert words.measured(value, unit) == text


def test_formats_of_rates_shares_and_ratios() -> None:
    assert (words.bandwidth(4.4e12), words.arithmetic(5.126e13)) == ("4,400 GB/s", "51.3 TFLOP/s")
    assert (words.share(0.9375), words.share(0.9375, 1)) == ("94%", "93.8%")
    assert (words.factor(3.666), words.ratio(3.67, 3.61, 3.725)) == ("3.67", "3.670 (3.610 to 3.725)")
    assert (words.stars(2), words.stars(1, 1)) == ("★★☆", "★")


def test_formats_of_cases_lines_and_paths() -> None:
    assert words.case({"rows": 33, "dtype": "bfloat16"}) == "rows=33 dtype=bfloat16"
    assert (words.line(14), words.line(14, "a/softmax.cu")) == ("line 14", "line 14 of softmax.cu")
    assert words.path("/a/b/c.cu", Path("/a")) == "b/c.cu"
    assert words.path("/d/c.cu", Path("/a")) == "/d/c.cu"
