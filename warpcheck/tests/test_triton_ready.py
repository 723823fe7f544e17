"""Test that the digest of a Triton installation is computed once and not in each process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

triton = pytest.importorskip("triton")

from warpcheck.frontends import triton_ready  # noqa: E402
from warpcheck.hooks import triton as hooks  # noqa: E402


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Return the list of the digests that Triton has computed, and start with an empty cache."""
    monkeypatch.setenv("WARPCHECK_CACHE", str(tmp_path))
    monkeypatch.setattr(hooks.DIGEST.owner(), "triton_key", hooks.DIGEST.get())  # monkeypatch restores it
    return []


def start_process(computed: list[str]) -> str:
    """Return the digest of Triton as a newly started process would get it."""
    version = triton.__version__

    def compute() -> str:
        computed.append(f"{version}-{len(computed)}")
        return computed[-1]

    hooks.DIGEST.replace(compute)
    triton_ready.read_digest_once()
    digest: Callable[[], str] = hooks.DIGEST.get()
    return digest()


def test_the_digest_of_an_installation_is_computed_once(computed: list[str]) -> None:
    assert start_process(computed) == start_process(computed) == computed[0]
    assert len(computed) == 1


def test_a_changed_installation_gets_a_new_digest(computed: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    before = start_process(computed)
    files = triton_ready._dated_files(Path(triton.__file__).parent)
    assert any(name.endswith((".so", ".pyd")) for name, _, _ in files)
    # A reinstallation with equal sizes changes at least the modification time of a file.
    path, size, mtime = files[-1]
    monkeypatch.setattr(triton_ready, "_dated_files", lambda folder: [*files[:-1], (path, size, mtime + 1)])
    assert start_process(computed) != before


def test_a_damaged_digest_is_computed_again(computed: list[str], tmp_path: Path) -> None:
    before = start_process(computed)
    (cached,) = (tmp_path / "triton").glob("*/*")
    for damage in (b"", b"\xff" * 40, b"0.0.0-of another version"):
        cached.write_bytes(damage)
        assert start_process(computed) == computed[-1] != before
        assert cached.read_bytes().decode() == computed[-1]
