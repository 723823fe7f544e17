"""Test that a matrix product that a statement allows as torch.mm counts as a launch on the PTX machine."""

from __future__ import annotations

import pytest
import torch

from kernelpath.work import products
from kernelpath.work.dispatch_monitor import AuditLog, CallRecord, DispatchMonitor

AUDIT_LOG = AuditLog()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("m", "k", "n"), [(1, 1, 1), (17, 33, 48), (64, 16, 15)])
def test_the_kernel_makes_the_products_of_transposed_views(m: int, k: int, n: int, dtype: torch.dtype) -> None:
    a, b = (torch.randint(-3, 4, shape).to(dtype) for shape in ((k, m), (n, k)))
    out = torch.full((m, n), torch.nan, dtype=dtype)
    products.multiply(a.t(), b.t(), out)
    assert torch.equal(out.double(), a.double().t() @ b.double().t())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("allowed", [True, False])
def test_a_product_is_a_launch_where_it_is_allowed(allowed: bool, dtype: torch.dtype) -> None:
    a = torch.ones(8, 8, dtype=dtype)
    record = CallRecord()
    with AUDIT_LOG.recording(record), DispatchMonitor(lambda fresh: fresh, products=allowed):
        product = a @ a.t()
        total = a + a
    assert (product == 8).all()
    assert (total == 2).all()
    assert record.launches == ["library_product"] * allowed
    assert [scale.name for scale in record.operators] == ["mm"] * (not allowed) + ["add"]


def test_a_product_of_another_dtype_counts_as_library_work() -> None:
    a = torch.ones(8, 8)
    record = CallRecord()
    with AUDIT_LOG.recording(record), DispatchMonitor(lambda fresh: fresh, products=True):
        product = torch.mm(a, a)
    assert (product == 8).all()
    assert (record.launches, [scale.name for scale in record.operators]) == ([], ["mm"])
