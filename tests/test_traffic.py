"""Test the limits on traffic, and the line that a finding names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from kernelpath.course import registry
from kernelpath.course.spec import Traffic
from kernelpath.grading import traffic
from kernelpath.grading.traffic import (
    SPARE,
    check_asynchronous_copies,
    check_bulk_copies,
    check_contention,
    check_edge_case,
    check_global_memory,
    check_shared_memory,
    lines_beyond_limits,
)
from kernelpath.line_counters import LineTraffic
from kernelpath.verdict import Finding, Verdict


def create_load(number: int, memory: str = "a", **counts: int) -> LineTraffic:
    return LineTraffic("k.cu", number, "load from", memory, **counts)


def check_largest(
    lines: Sequence[LineTraffic], limits: Traffic, compulsory: int = 1, returned: int = 0
) -> Finding | None:
    return check_global_memory(lines, limits, compulsory, {"m": 8, "n": 4}, returned)


def test_the_worst_access_of_a_line_is_reported_with_the_minimum() -> None:
    lines = [
        create_load(3, requests=10, sectors=40, ideal_sectors=40),
        create_load(4, requests=10, sectors=320, ideal_sectors=40),
        create_load(4, "b", requests=10, sectors=10, ideal_sectors=40),
    ]
    finding = check_largest(lines, Traffic(sectors=1.5))
    assert finding is not None
    assert (finding.line, finding.file) == (4, "k.cu")
    assert finding.cause == "at m=8 n=4: line 4, load from a: 32 sectors per request, its bytes fit in 4"


def test_a_vector_access_that_the_compiler_split_is_explained() -> None:
    """The compiler split one of several float4 stores into four, so the average request of the line looks scattered."""
    lines = [create_load(4, requests=5, sectors=80, ideal_sectors=32, lanes=160, bytes=1024)]
    finding = check_largest(lines, Traffic(sectors=1.5))
    assert finding is not None
    assert finding.cause == (
        "at m=8 n=4: line 4, load from a: 16 sectors per request, its bytes fit in 6.4;"
        " the compiler split this vector into accesses of several widths, 6.4 bytes per lane on average:"
        " __ldg and __stwb keep it whole"
    )
    in_python = [replace(line, file="k.py") for line in lines]
    cute_finding = check_largest(in_python, Traffic(sectors=1.5))
    assert cute_finding is not None
    assert cute_finding.cause.endswith(
        "; the compiler made accesses of several widths of it, 6.4 bytes per lane on average"
    )
    assert finding.then == "kp profile {name} --sass"


@pytest.mark.parametrize(
    ("width", "sectors", "description"),
    [
        (
            16,
            320,
            "32 sectors per request, its bytes fit in 16, as many as for lanes that take 16 bytes each, 32 bytes apart",
        ),
        (
            4,
            160,
            "16 sectors per request, its bytes fit in 4, as many as for lanes that take 4 bytes each, 16 bytes apart",
        ),
        (4, 320, "32 sectors per request, its bytes fit in 4"),
        (4, 50, "5 sectors per request, its bytes fit in 4"),
    ],
    ids=["halves of sectors", "scalars of a vector", "columns", "not aligned"],
)
def test_lanes_with_a_stride_of_a_vector_are_explained(width: int, sectors: int, description: str) -> None:
    """Each thread owns neighboring elements of a contiguous block and loads them with several instructions."""
    line = create_load(4, requests=10, sectors=sectors, ideal_sectors=10 * width, lanes=320, bytes=320 * width)
    finding = check_largest([line], Traffic(sectors=1.1))
    assert finding is not None
    assert finding.cause == f"at m=8 n=4: line 4, load from a: {description}"


def create_atomic(memory: str = "out", **counts: int) -> LineTraffic:
    return LineTraffic("k.cu", 6, "atomic on", memory, **counts)


def check_atomics(line: LineTraffic, limit: float | None) -> Finding | None:
    return check_contention([create_load(3, requests=9, sectors=9), line], Traffic(same_address=limit), {"n": 8})


def test_same_address_atomics_are_reported() -> None:
    contended = create_atomic(requests=100, sectors=3200, ideal_sectors=400, same_address=3200)
    finding = check_atomics(contended, 1.5)
    assert finding is not None
    assert (finding.file, finding.line) == ("k.cu", 6)
    assert finding.cause == "at n=8: line 6, atomic on out: 32 same-address atomics per request, which take turns"
    assert check_atomics(contended, 32.0) is None
    assert check_atomics(contended, None) is None


def test_a_few_same_address_atomics_are_allowed() -> None:
    assert check_atomics(create_atomic(requests=1, sectors=32, same_address=1 + SPARE), 1.0) is None
    assert check_atomics(create_atomic(requests=1, sectors=32, same_address=2 + SPARE), 1.0) is not None
    assert (
        check_atomics(create_atomic("bins", requests=9, wavefronts=288, ideal_wavefronts=9, same_address=288), 1.0)
        is None
    )


def test_shared_memory_that_takes_longer_than_the_arithmetic_is_reported() -> None:
    reads = create_load(8, "tile_a", requests=60, wavefronts=60, ideal_wavefronts=60)
    stores = LineTraffic("k.cu", 5, "store to", "tile_a", requests=41, wavefronts=41, ideal_wavefronts=41)
    finding = check_shared_memory([stores, reads], Traffic(shared=1.0), 256 * 100, {"n": 8})
    assert finding is not None
    assert (finding.verdict, finding.line) == (Verdict.TOO_MUCH_TRAFFIC, 8)
    description = "at n=8: 101 wavefronts beside 100 cycles of multiply-adds, at most 100 are allowed; most in line 8, "
    assert finding.cause == f"{description}load from tile_a"
    assert check_shared_memory([stores, reads], Traffic(shared=1.0), 256 * 101, {"n": 8}) is None
    assert check_shared_memory([stores, reads], Traffic(bytes=1.0), 256, {"n": 8}) is None


def test_tiles_copied_through_registers_are_reported() -> None:
    copies = LineTraffic("k.cu", 5, "store to", "tile_b", 40, wavefronts=40, ideal_wavefronts=40, asynchronous=40)
    stores = LineTraffic("k.cu", 6, "store to", "tile_a", 41, wavefronts=82, ideal_wavefronts=41)
    limits = Traffic(asynchronous=0.5)
    finding = check_asynchronous_copies([copies, stores], limits, {"n": 8})
    assert finding is not None
    assert (finding.verdict, finding.line) == (Verdict.TOO_MUCH_TRAFFIC, 6)
    description = "at n=8: 49% of what is stored to shared memory are asynchronous copies, at least 50% should be; "
    assert finding.cause == f"{description}most of the rest in line 6, store to tile_a"
    assert check_asynchronous_copies([copies, replace(stores, ideal_wavefronts=40)], limits, {"n": 8}) is None
    assert check_asynchronous_copies([create_load(3, requests=1, sectors=4)], limits, {"n": 8}) is not None, (
        "no tile at all"
    )
    assert check_asynchronous_copies([stores], Traffic(), {"n": 8}) is None


def test_bytes_that_threads_move_instead_of_tma_are_reported() -> None:
    boxes = create_load(3, requests=2, sectors=94, bulk=94)
    stores = LineTraffic("k.py", 8, "store to", "out", 6, sectors=6)
    limits = Traffic(bulk=0.95)
    finding = check_bulk_copies([boxes, stores], limits, {"n": 8})
    assert finding is not None
    assert (finding.verdict, finding.line) == (Verdict.TOO_MUCH_TRAFFIC, 8)
    description = (
        "at n=8: bulk and tensor copies (TMA) move 94% of the bytes in global memory, at least 95% are theirs; "
    )
    assert finding.cause == f"{description}most of the rest in line 8, store to out"
    assert check_bulk_copies([boxes, replace(stores, sectors=4)], limits, {"n": 8}) is None
    assert check_bulk_copies([stores], Traffic(), {"n": 8}) is None


def test_wide_vector_loads_are_allowed() -> None:
    assert check_largest([create_load(3, requests=10, sectors=160, ideal_sectors=160)], Traffic(sectors=1.0)) is None


def test_an_uncoalesced_tail_is_allowed() -> None:
    body = create_load(3, requests=1000, sectors=4000, ideal_sectors=4000)
    tail = create_load(9, requests=3, sectors=3, ideal_sectors=1)
    assert check_largest([body, tail], Traffic(sectors=1.3)) is None


def test_many_small_scattered_accesses_count_together() -> None:
    lines = [create_load(n, requests=1, sectors=8, ideal_sectors=1) for n in range(60)]
    assert check_largest(lines, Traffic(sectors=1.3)) is not None


def test_bank_conflicts_are_reported() -> None:
    loads = create_load(8, requests=1, sectors=4, ideal_sectors=4)
    lines = [loads, create_load(9, "shared memory", requests=4, wavefronts=128, ideal_wavefronts=4)]
    finding = check_largest(lines, Traffic(bank_conflicts=0.5))
    assert finding is not None
    assert finding.cause == (
        "at m=8 n=4: line 9, load from shared memory: 32 wavefronts per request, its bytes fit in 1: a 32-way bank"
        " conflict"
    )
    assert finding.step == "kp profile {name}", "the hints begin with sectors"
    fewer = replace(lines[1], wavefronts=32)
    eight = check_largest([loads, fewer], Traffic(bank_conflicts=0.5))
    assert eight is not None
    assert eight.cause.endswith("an 8-way bank conflict")


def test_bytes_over_compulsory() -> None:
    lines = [
        create_load(1, requests=1, sectors=10, ideal_sectors=10),
        create_load(2, requests=1, sectors=90, ideal_sectors=90),
    ]
    assert check_largest(lines, Traffic(bytes=1.5), compulsory=3200) is None
    finding = check_largest(lines, Traffic(bytes=1.5), compulsory=1600)
    assert finding is not None
    assert finding.line == 2
    assert finding.cause == (
        "at m=8 n=4: 3,200 bytes asked for, at most 2,400 are allowed (1,600 are compulsory);"
        " most in line 2, load from a: 2,880 bytes in 1 request"
    )


def test_a_split_vector_is_explained_only_if_it_causes_the_excess_bytes() -> None:
    split = create_load(4, requests=5, sectors=80, ideal_sectors=32, lanes=160, bytes=1024)
    finding = check_largest([split], Traffic(bytes=1.5), compulsory=1024)
    assert finding is not None
    assert (
        "; most in line 4, load from a: 2,560 bytes in 5 requests; the compiler split this vector into accesses"
        in finding.cause
    )
    assert finding.then == "kp profile {name} --sass"
    # Even as whole vectors, 32 sectors exceed this limit, so the split is not the cause.
    other_cause = check_largest([split], Traffic(bytes=1.5), compulsory=600)
    assert other_cause is not None
    assert other_cause.cause.endswith("; most in line 4, load from a: 2,560 bytes in 5 requests")


def check_edges(
    lines: Sequence[LineTraffic], limits: Traffic, compulsory: int | None = 1, share: float = 0.0
) -> Finding | None:
    return check_edge_case(lines, limits, compulsory, {"m": 8, "n": 4}, 0, share)


DILUTED = create_load(4, requests=1000, sectors=4000, ideal_sectors=4000, scattered=1000)


def test_coalesced_requests_of_a_line_do_not_offset_scattered_ones() -> None:
    for finding in (check_largest([DILUTED], Traffic(sectors=1.3)), check_edges([DILUTED], Traffic(sectors=1.3))):
        assert finding is not None
        assert finding.cause == (
            "at m=8 n=4: line 4, load from a: 1,000 of its 4,000 sectors are there because requests are scattered;"
            " on average 4 sectors per request, its bytes fit in 4"
        )
    assert check_edges([DILUTED], Traffic(bytes=1e9)) is None


@pytest.mark.parametrize("name", ["profile", "counters", "read_inductor"])
def test_exercises_without_kernels_have_no_traffic_findings(name: str) -> None:
    exercise = registry.load(registry.find(name))
    assert [traffic.check_case(exercise, case, [], 0) for case in exercise.cases] == [None] * len(exercise.cases)


def test_the_declared_share_may_be_scattered_at_edges() -> None:
    assert check_edges([DILUTED], Traffic(sectors=1.3, edges=0.3)) is None
    assert check_edges([DILUTED], Traffic(sectors=1.3, edges=0.2)) is not None
    assert check_edges([DILUTED], Traffic(sectors=1.3, edges=None)) is None
    assert check_largest([DILUTED], Traffic(sectors=1.3, edges=None)) is not None


def test_a_small_case_may_use_some_additional_sectors() -> None:
    assert (
        check_edges([create_load(4, requests=9, sectors=40, ideal_sectors=9, scattered=SPARE)], Traffic(sectors=1.3))
        is None
    )
    assert check_edges(
        [create_load(4, requests=9, sectors=41, ideal_sectors=9, scattered=SPARE + 1)], Traffic(sectors=1.3)
    )


def test_misaligned_rows_are_allowed_in_edge_cases() -> None:
    lines = [create_load(4, requests=1000, sectors=8000, ideal_sectors=4000)]
    assert check_edges(lines, Traffic(sectors=1.3)) is None
    assert check_largest(lines, Traffic(sectors=1.3)) is not None


def test_the_finding_names_the_second_load_of_a_tensor() -> None:
    loads = [create_load(number, requests=1, sectors=50, ideal_sectors=50) for number in (11, 13)]
    store = LineTraffic("k.cu", 17, "store to", "out", requests=1, sectors=60, ideal_sectors=60)
    finding = check_largest([*loads, store], Traffic(bytes=1.2), compulsory=3200, returned=1600)
    assert finding is not None
    assert finding.line == 13
    assert finding.cause.endswith("; most in lines 11 and 13, load from a: 3,200 bytes together")


def test_bytes_are_limited_with_slack_in_edge_cases() -> None:
    lines = [create_load(4, requests=100, sectors=400, ideal_sectors=400)]
    assert check_edges(lines, Traffic(bytes=1.2), compulsory=3_574) is None
    finding = check_edges(lines, Traffic(bytes=1.2), compulsory=3_500)
    assert finding is not None
    assert "12,800 bytes asked for, at most 12,624 are allowed (3,500 are compulsory)" in finding.cause
    assert check_edges(lines, Traffic(bytes=1.2), compulsory=None) is None


def test_large_cases_have_the_declared_limit_of_bytes() -> None:
    """The case moves 2× the compulsory bytes. Edge cases may move 3×, large cases 1.5× plus a sector per request."""
    lines = [create_load(4, requests=100, sectors=2000, ideal_sectors=2000)]
    for edges in (0.02, None):
        limits = Traffic(bytes=1.5, large=0.25, edges=edges)
        assert check_edges(lines, limits, 32_000, share=0.24) is None
        assert check_edges(lines, limits, 32_000, share=0.25) is not None
        assert check_edges(lines, limits, 39_900, share=0.25) is None, "1.5 times 39,900 and 132 sectors are 64,074"
        assert check_edges(lines, limits, None, share=0.25) is None
    assert check_edges(lines, Traffic(bytes=1.5), 32_000, share=1.0) is None


def test_the_finding_names_the_accesses_beyond_the_compulsory_bytes() -> None:
    """Most sectors store the output once, which is compulsory; a third as many sectors load data again."""
    store = LineTraffic("k.cu", 9, "store to", "out", requests=75, sectors=300, ideal_sectors=300)
    lines = [create_load(4, requests=25, sectors=100, ideal_sectors=100), store]
    finding = check_largest(lines, Traffic(bytes=1.1), compulsory=9_760, returned=9_600)
    assert finding is not None
    assert finding.line == 4
    finding = check_largest(lines, Traffic(bytes=1.1), compulsory=8_000, returned=4_800)
    assert finding is not None
    assert finding.line == 9


def test_one_additional_wavefront_is_allowed_in_edge_cases() -> None:
    twice = create_load(9, "tile", requests=100, wavefronts=200, ideal_wavefronts=100)
    thrice = create_load(9, "tile", requests=100, wavefronts=300, ideal_wavefronts=100)
    assert check_edges([twice], Traffic(bank_conflicts=0.5)) is None
    assert check_edges([thrice], Traffic(bank_conflicts=0.5)) is not None
    assert (
        check_edges(
            [create_load(9, "tile", requests=1, wavefronts=32, ideal_wavefronts=1)], Traffic(bank_conflicts=0.5)
        )
        is None
    )
    assert check_largest([create_load(1, requests=1, sectors=1), twice], Traffic(bank_conflicts=0.5)) is not None


def test_lines_beyond_limits_excludes_lines_within_them() -> None:
    def line(sectors: int, wavefronts: int) -> LineTraffic:
        ideal = 4 * (sectors > 0)
        return create_load(
            1, requests=1, sectors=sectors, ideal_sectors=ideal, wavefronts=wavefronts, ideal_wavefronts=wavefronts > 0
        )

    lines = [line(8, 0), line(9, 0), line(0, 2), line(0, 3)]
    assert lines_beyond_limits(Traffic(sectors=2.0, bank_conflicts=1.5), lines) == (lines[1], lines[3])
    assert lines_beyond_limits(Traffic(bytes=2.0), lines) == ()


def test_bytes_are_limited_in_every_case_except_at_the_size_limits() -> None:
    exercise = registry.load(registry.find("matrix_add"))
    lines = [create_load(4, requests=10_000, sectors=320_000, ideal_sectors=320_000)]
    for case in (exercise.cases[1], exercise.largest):
        finding = traffic.check_case(exercise, case, lines, 0)
        assert finding is not None
        assert "10,240,000 bytes asked for" in finding.cause
    limit, *_ = exercise.limits
    assert traffic.check_case(exercise, limit, lines, 0) is None


def test_scattered_requests_are_allowed_if_an_output_row_is_shorter_than_a_sector() -> None:
    exercise = registry.load(registry.find("matmul_naive"))
    narrow = next(case for case in exercise.cases if case["n"] == 1 and case["m"] > 1)
    lines = [create_load(4, requests=242, sectors=7_747, ideal_sectors=1_000, scattered=6_747)]
    assert traffic.check_case(exercise, narrow, lines, 0, columns=7) is None
    assert traffic.check_case(exercise, narrow, lines, 0, columns=8) is not None
    assert traffic.check_case(exercise, exercise.largest, lines, 0, columns=1) is not None
