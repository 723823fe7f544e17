"""Test how messages of faults name arrays in shared memory."""

from __future__ import annotations

import pytest

from warpcheck.layout import Access, Space
from warpcheck.lowered_kernel import AccessSite
from warpcheck.runtime import fault_messages


@pytest.mark.parametrize(
    ("symbol", "place"),
    [
        ("__dynamic_shmem__0", "byte 128 of 1152 of shared memory"),
        ("global_smem", "byte 128 of 1152 of shared memory"),
        ("_ZZ4copyE5tiles", "tiles[32] (byte 128 of 1152)"),
    ],
)
def test_messages_omit_array_names_that_a_compiler_invented(symbol: str, place: str) -> None:
    site = AccessSite(Space.SHARED, Access.LOAD, 4, 1, 0, 0, "ld.shared.b32")
    assert fault_messages.describe_shared_offset(128, site, 1152, {symbol: range(0)}) == place
    owner = "tiles" if "tiles" in symbol else "shared memory"
    assert (
        fault_messages.describe_shared_offset(-4, site, 1152, {symbol: range(0)})
        == f"4 bytes before the beginning of {owner}"
    )
