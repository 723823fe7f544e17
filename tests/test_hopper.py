"""Test Hopper end to end without a GPU: a GEMM in CUDA C++, CuTe DSL and Triton, and thread block clusters."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kernelpath.course import registry
from tests import fresh_process
from warpcheck import frontends, simt, simulated_gpu
from warpcheck.frontends import cuda
from warpcheck.target import SM_80, SM_90A

from . import twisted_hopper

KERNELS = Path(__file__).parents[1] / "warpcheck" / "tests" / "machine" / "hopper_kernels.cu"
# The bytes of two stages, and the slack to align them.
DYNAMIC = 2 * 16384 + 1024


@pytest.fixture(autouse=True)
def hopper(monkeypatch: pytest.MonkeyPatch) -> list[frontends.Launched]:
    """Make sm_90a the target and return the list of launches, which grows with each launch."""
    monkeypatch.setattr(simulated_gpu, "_target", SM_90A)
    launched: list[frontends.Launched] = []
    monkeypatch.setattr(frontends, "_observers", [launched.append])
    return launched


def make_matrix(rows: int, columns: int) -> torch.Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(rows)).half()


def assert_close(c: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> None:
    torch.testing.assert_close(c.float(), a.float() @ b.float().T, rtol=2e-3, atol=2e-3)


def test_gemm_in_cuda_cpp_with_tensor_maps(hopper: list[frontends.Launched]) -> None:
    a = make_matrix(64, 168)
    b = make_matrix(128, 168)
    c = torch.empty(64, 128)
    maps = (cuda.tensor_map(tensor, (64, 64), swizzle=128) for tensor in (a, b))
    cuda.kernel(KERNELS, "gemm")[(2, 1), 160, DYNAMIC](*maps, c, 128, 168)
    assert_close(c, a, b)
    (launch,) = hopper
    assert launch.counted is not None
    assert launch.counted.totals.global_store_bytes == 4 * c.numel()


@pytest.mark.parametrize(("kernel", "cluster", "size"), [("rotate_any", 2, 2), ("rotate_four", None, 4)])
def test_blocks_of_a_cluster_read_each_others_shared_memory(kernel: str, cluster: int | None, size: int) -> None:
    x = torch.arange(8 * 32, dtype=torch.int32)
    out = torch.zeros_like(x)
    cuda.kernel(KERNELS, kernel, cluster=cluster)[8, 32, 128](x, out)
    assert torch.equal(out.view(-1, size, 32), x.view(-1, size, 32).roll(-1, 1))


@pytest.mark.parametrize(
    ("kernel", "cluster", "blocks", "message"),
    [
        ("rotate_any", 32, 32, "invalid cluster size: 32 blocks, more than the 16 that sm_90a allows"),
        ("rotate_any", 4, 6, "a grid of 6 along x is not a multiple of the cluster's 4"),
        ("rotate_four", 2, 8, r"invalid cluster size: .* is compiled for clusters of \(4, 1, 1\), not of \(2, 1, 1\)"),
    ],
)
def test_invalid_clusters_are_refused(kernel: str, cluster: int, blocks: int, message: str) -> None:
    x = torch.zeros(1024, dtype=torch.int32)
    with pytest.raises(ValueError, match=message):
        cuda.kernel(KERNELS, kernel, cluster=cluster)[blocks, 32, 128](x, x)


def test_sm_80_refuses_hopper_source_with_the_error_of_ptxas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulated_gpu, "_target", SM_80)
    a = make_matrix(64, 64)
    c = torch.empty(64, 64)
    tensor_map = cuda.tensor_map(a, (64, 64), swizzle=128)
    with pytest.raises(simt.Rejected, match=r"'\.mbarrier_init' requires \.target sm_90") as refused:
        cuda.kernel(KERNELS, "gemm")[1, 160, DYNAMIC](tensor_map, tensor_map, c, 64, 64)
    assert (refused.value.file, refused.value.line) == (str(KERNELS), 46)
    choice = 'stands for sm_80 here, and for sm_90a with warpcheck.simulated_gpu.stand_for({}, "sm_90a")'
    assert refused.value.message.endswith(choice)


@pytest.mark.filterwarnings("ignore:This static loop has 128 iterations")
def test_gemm_in_cute_with_tma_loads_and_stores(hopper: list[frontends.Launched], tmp_path: Path) -> None:
    file = tmp_path / "gemm.py"
    file.write_text(twisted_hopper.source("nt", "none"))
    gemm = registry.import_file(file, "gemm")
    a = make_matrix(128, 192)
    b = make_matrix(64, 192)
    assert_close(gemm.product(a, b.T), a, b)
    assert [launch.name for launch in hopper] == ["multiply"]


PRODUCTS = """
import sys, torch
from warpcheck import simulated_gpu
simulated_gpu.show({}, "sm_90a")
from warpcheck.frontends import triton as lane
lane.activate("cpu")
from tests.hopper_triton import PRODUCTS
for name in sys.argv[1:]:
    a, b, c = PRODUCTS[name]("cpu")
    torch.testing.assert_close(c.float(), a.float() @ b.float().T, rtol=2e-3, atol=3e-2, msg=lambda said: name + said)
    print(name)
"""


def test_gemms_in_triton(tmp_path: Path) -> None:
    names = ["host with edges", "host, e4m3", "host, two blocks a program", "device, specialized", "chained"]
    program = tmp_path / "products.py"
    program.write_text(PRODUCTS)
    stdout, stderr = fresh_process.run(program, *names)
    assert stdout.splitlines() == names, stderr
