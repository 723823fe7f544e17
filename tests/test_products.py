"""Matrix products that a statement leaves to torch.mm are launches on the PTX machine; nothing else is free."""

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
    a, record = torch.ones(8, 8, dtype=dtype), CallRecord()
    with AUDIT_LOG.recording(record), DispatchMonitor(lambda fresh: fresh, products=allowed):
        product, total = a @ a.t(), a + a
    assert (product == 8).all()
    assert (total == 2).all()
    assert record.launches == ["library_product"] * allowed
    assert [one.name for one in record.operators] == ["mm"] * (not allowed) + ["add"]


def test_a_product_of_another_dtype_is_a_librarys() -> None:
    a, record = torch.ones(8, 8), CallRecord()
    with AUDIT_LOG.recording(record), DispatchMonitor(lambda fresh: fresh, products=True):
        product = torch.mm(a, a)
    assert (product == 8).all()
    assert (record.launches, [one.name for one in record.operators]) == ([], ["mm"])
