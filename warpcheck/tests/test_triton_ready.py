"""What is computed once for an installation of Triton, not once for each process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

triton = pytest.importorskip("triton")

from warpcheck.frontends import triton_ready  # noqa: E402
from warpcheck.hooks import triton as hooks  # noqa: E402


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Triton's digests that were computed, with a cache that nothing has written to."""
    monkeypatch.setenv("WARPCHECK_CACHE", str(tmp_path))
    monkeypatch.setattr(hooks.DIGEST.owner(), "triton_key", hooks.DIGEST.get())  # to be put back
    return []


def start_process(computed: list[str]) -> str:
    """Return Triton's digest as a process sees it that starts now."""
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


def test_another_installation_has_another_digest(computed: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    before = start_process(computed)
    files = triton_ready._dated_files(Path(triton.__file__).parent)
    assert any(name.endswith((".so", ".pyd")) for name, _, _ in files)
    path, size, date = files[-1]
    monkeypatch.setattr(triton_ready, "_dated_files", lambda folder: [*files[:-1], (path, size, date + 1)])
    assert start_process(computed) != before


def test_a_damaged_digest_is_computed_again(computed: list[str], tmp_path: Path) -> None:
    before = start_process(computed)
    (kept,) = (tmp_path / "triton").glob("*/*")
    for damage in (b"", b"\xff" * 40, b"0.0.0-of another version"):
        kept.write_bytes(damage)
        assert start_process(computed) == computed[-1] != before
        assert kept.read_bytes().decode() == computed[-1]
