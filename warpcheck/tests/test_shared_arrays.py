"""Test that messages name an element of a shared array by its indices in the source."""

from __future__ import annotations

import time

import pytest

from warpcheck.frontends.shared_arrays import name_shared_element

SOURCE = """constexpr int T = 32, PITCH = T + 1;
template <int N>
__global__ void kernel() {
    __shared__ float tile[T][PITCH];
    __shared__ alignas(16) float of_a[2][4][8], of_b[4 * 8];
    __shared__ float unknown[N][4];
    tile[31][33] = of_a[1][0][0];
    of_a[2][0][0] = 1;
}
"""


@pytest.mark.parametrize(
    ("place", "line", "named"),
    [
        ("tile[1023] (byte 4092 of 4224)", 7, "tile[31][0] (byte 4092 of 4224)"),
        ("of_a[42] (byte 168 of 256)", 7, "of_a[1][1][2] (byte 168 of 256)"),
        ("of_b[7] (byte 28 of 128)", 9, "of_b[7] (byte 28 of 128)"),
        ("unknown[7] (byte 28 of 128)", 9, "unknown[7] (byte 28 of 128)"),
        ("tile[7] (byte 28 of 100)", 9, "tile[7] (byte 28 of 100)"),
        ("of_b[0] (byte 0 of 128)", 8, "of_b[0] (byte 0 of 128, outside of of_a, which this line indexes)"),
        ("of_b[0] (byte 0 of 128)", 99, "of_b[0] (byte 0 of 128)"),
    ],
)
def test_an_element_is_named_by_indices_of_the_declared_shape(place: str, line: int, named: str) -> None:
    sentence = "thread 0 of block 0 writes 4 bytes at {}, which nothing has written"
    assert name_shared_element(sentence.format(place), SOURCE, line) == sentence.format(named)


def test_a_message_without_a_byte_offset_stays_unchanged() -> None:
    assert name_shared_element("thread 0 of block 0 reads 4 bytes at x[5]", SOURCE, 7) == (
        "thread 0 of block 0 reads 4 bytes at x[5]"
    )


@pytest.mark.parametrize("extent", ["0", "1 / 0", "8 ** 8", "sizeof(int)", "("])
def test_an_unknown_extent_leaves_the_message_unchanged(extent: str) -> None:
    source = f"__global__ void kernel() {{\n    __shared__ float tile[2][{extent}];\n}}"
    assert name_shared_element("at tile[7] (byte 28 of 128)", source, 1) == "at tile[7] (byte 28 of 128)"


@pytest.mark.parametrize(
    "source",
    [
        "/* " + "__shared__ " * 100_000 + "*/",
        "/* " + "const int a " * 100_000 + "*/",
        "const int a = 1 << 60, b = 1 << a, c = b << b;\n__shared__ float tile[c];\n",
        "const int a = " + "(" * 900 + "1" + ")" * 900 + ";\n",
    ],
    ids=["arrays", "constants", "shift", "depth"],
)
def test_a_hostile_source_does_not_take_quadratic_time(source: str) -> None:
    sentence = "load from tile[3] (byte 12 of 16)"
    begin = time.process_time()
    assert name_shared_element(sentence, source, 1).startswith("load from tile[3] (byte 12 of 16")
    # The limit is generous, so that only superlinear time can exceed it, even on a busy machine.
    assert time.process_time() - begin < 5.0
