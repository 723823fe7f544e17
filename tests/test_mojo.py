"""Test that compiled Mojo kernels run on the PTX machine and have the reduction steps of each GPU's warp size."""

from __future__ import annotations

import re

import pytest
import torch

from kernelpath.show import mojo


def inputs(rows: int, columns: int) -> torch.Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(rows)) + 2


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (5, 33), (3, 1000)])
def test_row_sums_are_right(rows: int, columns: int) -> None:
    x = inputs(rows, columns)
    out = torch.empty(rows)
    mojo.launch(mojo.recorded("row_sums", "sm_80"), rows, 32, x, out, columns)
    torch.testing.assert_close(out.double(), x.double().sum(1), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (5, 33), (3, 1000)])
def test_softmax_is_right(rows: int, columns: int) -> None:
    x = inputs(rows, columns)
    out = torch.empty_like(x)
    mojo.launch(mojo.recorded("softmax_rows", "sm_80"), rows, 32, x, out, columns)
    torch.testing.assert_close(out.double(), x.double().softmax(1), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(("kernel", "reductions"), [("row_sums", 1), ("softmax_rows", 2)])
def test_a_reduction_has_five_steps_in_a_warp_and_six_in_a_wave(kernel: str, reductions: int) -> None:
    assert mojo.recorded(kernel, "sm_80").count("shfl.sync") == 5 * reductions
    assembly = mojo.recorded(kernel, "gfx942")
    assert len(re.findall(r"_dpp |ds_bpermute_b32", assembly)) == 6 * reductions


@pytest.mark.skipif(mojo.compiler() is None, reason="needs Mojo's compiler")
@pytest.mark.parametrize("target", mojo.GPU_MODELS.values())
def test_the_installed_compiler_compiles_the_sources(target: str) -> None:
    steps = r"shfl\.sync|_dpp |ds_bpermute_b32"
    assembly = mojo.compile_kernel(mojo.source("softmax_rows"), "softmax_rows", target)
    assert re.findall(steps, assembly) == re.findall(steps, mojo.recorded("softmax_rows", target))


@pytest.mark.skipif(mojo.compiler() is None, reason="needs Mojo's compiler")
def test_a_compile_error_names_its_line() -> None:
    with pytest.raises(mojo.CompileError, match=r"softmax_rows\.mojo:\d+:\d+: error: "):
        mojo.compile_kernel(mojo.source("softmax_rows").replace("warp.max", "warp.most"), "softmax_rows", "sm_80")


def test_without_a_compiler_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mojo, "compiler", lambda: None)
    with pytest.raises(FileNotFoundError, match="max-core"):
        mojo.compile_kernel("", "row_sums", "sm_80")
