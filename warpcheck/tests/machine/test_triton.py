"""Run Triton kernels without a GPU: compiled for sm_80, on the PTX machine, each test in a process of its own.

Triton chooses its driver once per process. A fork server imports Triton once and forks the processes.
"""

from __future__ import annotations

import multiprocessing
import os
import runpy
import textwrap
from pathlib import Path

import pytest

PROLOGUE = """
import torch
from warpcheck import frontends, simt
from warpcheck.frontends import triton as lane
lane.activate("cpu")
import triton
import triton.language as tl
torch.manual_seed(0)
launches = []
(observing := frontends.observe(launches.append)).__enter__()
"""

SOFTMAX = """
@triton.jit
def softmax(x, out, n, BLOCK: tl.constexpr):
    row, column = tl.program_id(0), tl.arange(0, BLOCK)
    value = tl.load(x + row * n + column, mask=column < n, other=-float("inf")).to(tl.float32)
    value = tl.exp(value - tl.max(value, 0))
    tl.store(out + row * n + column, (value / tl.sum(value, 0)).to(out.dtype.element_ty), mask=column < n)

x = torch.randn(7, 777, dtype=torch.bfloat16)
out = torch.empty_like(x)
softmax[(7,)](x, out, 777, BLOCK=1024)
torch.testing.assert_close(out.float(), torch.softmax(x.float(), 1), rtol=1e-2, atol=1e-4)
(launch,) = launches
assert (launch.lane, launch.name, launch.device) == ("triton", "softmax", "cpu")
assert launch.counted.totals.global_store_bytes == 7 * 777 * 2
assert set(launch.counted.lines) <= set(range(12, 17)), launch.counted.lines.keys()
"""

PRODUCT = """
CONFIGS = [triton.Config({"BLOCK": size}, num_warps=warps) for size, warps in ((16, 1), (32, 2), (64, 4))]
compiled = []
triton.knobs.runtime.jit_post_compile_hook = lambda **given: compiled.append(given["fn"].name)

@triton.autotune(CONFIGS, key=["n"])
@triton.heuristics({"EVEN": lambda arguments: arguments["n"] % 32 == 0})
@triton.jit
def product(a, b, c, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[:, None]
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(0, n, 32):
        inner = start + tl.arange(0, 32)
        left = tl.load(a + rows * n + inner[None, :], mask=EVEN | (inner[None, :] < n), other=0)
        right = tl.load(b + inner[:, None] * n + columns, mask=EVEN | (inner[:, None] < n), other=0)
        total = tl.dot(left, right, total)
    tl.store(c + rows * n + columns, total.to(c.dtype.element_ty))

for dtype in (torch.float16, torch.bfloat16):
    a, b = (torch.randn(64, 64).to(dtype) for _ in range(2))
    c = torch.empty(64, 64, dtype=dtype)
    product[lambda meta: (64 // meta["BLOCK"], 64 // meta["BLOCK"])](a, b, c, 64)
    torch.testing.assert_close(c.float(), a.float() @ b.float(), rtol=1e-2, atol=1e-1)
assert product.best_config is CONFIGS[0]
assert len(launches) == 2 * (1 + 1)
assert len(compiled) == 2, compiled
"""

TUNED = """
@triton.jit
def add(x, count, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)
    tl.atomic_add(count, 1)

hooked = []
note = lambda given: hooked.append(given["BLOCK"])
CONFIGS = [triton.Config({"BLOCK": size}, pre_hook=note) for size in (64, 128, 256)]
pruned = {"early_config_prune": lambda configs, given, **meta: configs[1:]}

def run(**options):
    tuned = triton.autotune(CONFIGS, key=["n"], prune_configs_by=pruned, **options)(add)
    results = []
    for size in (256, 256, 512):
        x, count = torch.zeros(512), torch.zeros(1, dtype=torch.int32)
        tuned[lambda meta: (triton.cdiv(size, meta["BLOCK"]),)](x, count, size)
        results.append((int(x[0]), int(count)))
        assert tuned.best_config is CONFIGS[1]
    return results

# The trial is a run like any other: what it did is undone where that is asked for, else it shows, as on a GPU.
assert run(restore_value=["x"], reset_to_zero=["count"]) == [(1, 2), (1, 2), (1, 4)]
assert run() == [(2, 4), (1, 2), (2, 8)]
assert set(hooked) == {128}

# A configuration that does not fit is passed over.
def does_not_fit(given):
    raise triton.runtime.errors.OutOfResources(1 << 20, 1 << 10, "shared memory")

CONFIGS[1].pre_hook = does_not_fit
tuned = triton.autotune(CONFIGS, key=["n"], prune_configs_by=pruned)(add)
tuned[(1,)](torch.zeros(512), torch.zeros(1, dtype=torch.int32), 256)
assert tuned.best_config is CONFIGS[2]
"""

FAULT = """
@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(x + i)
    tl.store(out + i, a, mask=i < n)

x = torch.randn(1000)
try:
    add[(4,)](x, x, torch.empty(1000), 1000, BLOCK=256)
except simt.Fault as fault:
    assert fault.kind == simt.FaultKind.OUT_OF_BOUNDS
    assert fault.line == 14, fault.line
    assert "past the end of x (1000 float32)" in fault.message or "x and y" in fault.message, fault.message
else:
    raise SystemExit("no fault")
"""

ATOMICS = """
@triton.jit
def histogram(x, counts, total, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i, mask=i < n, other=0)
    tl.atomic_add(counts + value, 1, mask=i < n)
    tl.atomic_max(total, tl.max(value, 0))

x = torch.randint(0, 10, (1000,), dtype=torch.int32)
counts, total = torch.zeros(10, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
histogram[(4,)](x, counts, total, 1000, BLOCK=256)
assert counts.tolist() == torch.bincount(x, minlength=10).tolist()
assert total.item() == 9
"""

SCALARS = """
@triton.jit
def scalars(out, x: tl.bfloat16, y: tl.float16, z: tl.float32, w: tl.float64):
    tl.store(out, x.to(tl.float64))
    tl.store(out + 1, y.to(tl.float64))
    tl.store(out + 2, z.to(tl.float64))
    tl.store(out + 3, w)

out = torch.zeros(4, dtype=torch.float64)
scalars[(1,)](out, 1 / 3, 1 / 3, 3, 1 / 3)
# Triton's launcher cuts bfloat16, and rounds float16 to the nearest
assert out.tolist() == [0.33203125, torch.tensor(1 / 3).half().item(), 3.0, 1 / 3], out

@triton.jit
def chosen(a, b, c, out):
    if tl.load(c):
        value = tl.load(a)
    else:
        value = tl.load(b)
    tl.store(out, value)

for choice in (0, 1):
    out = torch.zeros(1)
    chosen[(1,)](torch.tensor([3.0]), torch.tensor([5.0]), torch.tensor([choice]), out)
    assert out.item() == (3.0 if choice else 5.0)

@triton.jit
def nothing():
    tl.device_assert(tl.program_id(0) < 5)

nothing[(2,)]()

@triton.jit
def applied(p, q, f: tl.constexpr):
    tl.store(q, f(tl.load(p)))

q = torch.zeros(1)
applied[(1,)](torch.zeros(1), q, tl.exp)
assert q.item() == 1
"""

DROPPED = """
import pytest

@triton.jit
def increment(p, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(p + i, tl.load(p + i) + 1)

@triton.jit
def softmax(p, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    value = tl.load(p + i)
    value = tl.exp(value - tl.max(value, 0))
    tl.store(p + i, value / tl.sum(value, 0))

for size in (1, 2, 16, 64, 256):
    p = torch.randn(size)
    wanted = p + 1
    increment[(1,)](p, BLOCK=size)
    assert torch.equal(p, wanted)
    wanted = torch.softmax(p, 0)
    softmax[(1,)](p, BLOCK=size)
    torch.testing.assert_close(p, wanted)

with pytest.raises(simt.Fault) as caught:  # the second program reads what the first writes
    increment[(2,)](torch.zeros(16), BLOCK=16)
assert caught.value.kind == simt.FaultKind.RACE

@triton.jit
def largest(p, x, before):
    i = tl.program_id(0)
    tl.store(before + i, tl.atomic_max(p, tl.load(x + i)))

p, before = torch.zeros(1), torch.zeros(4)
largest[(4,)](p, torch.tensor([-1.0, 1.0, 3.0, 2.0]), before)
assert (p.item(), before.tolist()) == (3.0, [0.0, 0.0, 1.0, 3.0])

@triton.jit
def add(p, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.atomic_add(p + i, tl.full((BLOCK,), 1.0, p.dtype.element_ty), mask=i < n)

for dtype in (torch.bfloat16, torch.float16):
    for begin in (0, 1):  # the first or the last half of a word is no part of the tensor
        whole = torch.zeros(40, dtype=dtype)
        add[(1,)](whole[begin:33], 33 - begin, BLOCK=64)
        assert whole.tolist() == [0.0] * begin + [1.0] * (33 - begin) + [0.0] * 7
    with pytest.raises(simt.Fault) as caught:  # element 33 lies in the last word, but not in the tensor
        add[(1,)](torch.zeros(40, dtype=dtype)[:33], 34, BLOCK=64)
    assert caught.value.kind == simt.FaultKind.OUT_OF_BOUNDS
"""

SAME_INSTRUCTION = """
import pytest

@triton.jit
def branch(x, y):
    if tl.load(x) > 42:
        tl.store(x, y)

@triton.jit
def mask(x, y):
    tl.store(x, y, mask=tl.load(x) > 42)

@triton.jit
def shift(x, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(x + i + 1, tl.load(x + i))

def races(kernel, *args, **options):
    with pytest.raises(simt.Fault) as caught:
        kernel[(1,)](*args, **options)
    assert caught.value.kind == simt.FaultKind.RACE

for kernel in (branch, mask):
    for value, wanted in ((50.0, 7.0), (40.0, 40.0)):
        x = torch.tensor([value])
        kernel[(1,)](x, 7.0, num_warps=1)
        assert x.item() == wanted
for kernel in (branch, mask):  # another warp reads for nothing: whichever way it goes, only the first thread stores
    kernel[(1,)](x := torch.tensor([50.0]), 7.0, num_warps=4)
    assert x.item() == 7
races(shift, torch.arange(33.0), BLOCK=32, num_warps=1)  # nothing keeps the store behind the load of another lane
"""

IN_PLACE = """
import pytest

@triton.jit
def gradient(x, loss, n, y, eps, SMOOTH: tl.constexpr, BLOCK: tl.constexpr):
    # The cross entropy of a row, in place: tiles smaller than the block, two loops, logarithms that branch.
    most, total, smooth, right = -float("inf"), 0.0, 0.0, tl.load(x + y)
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        value = tl.load(x + i, mask=i < n, other=-float("inf"))
        now = tl.maximum(most, tl.max(value, 0))
        total = total * tl.exp(most - now) + tl.sum(tl.exp(value - now), 0)
        most = now
        if SMOOTH:
            smooth += tl.sum(tl.where(i < n, -eps * value, 0.0), 0)
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        value = tl.load(x + i, mask=i < n, other=-float("inf"))
        tl.store(x + i, tl.exp(value - most) / total, mask=i < n)
    tl.store(loss, most + tl.log(total) - right + smooth)

@triton.jit
def entropy(x, n, BLOCK: tl.constexpr):
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        value = tl.load(x + i, mask=i < n, other=-float("inf"))
        value = tl.exp(value - tl.max(value, 0))
        tl.store(x + i, value * tl.log(value + 1), mask=i < n)

for n, block in ((3, 4), (17, 32), (33, 64), (100, 64)):
    for warps in (1, 4, 32):
        x, loss = torch.randn(n), torch.empty(1)
        wanted, wanted_loss = torch.softmax(x, 0), torch.logsumexp(x, 0) - x[0]
        gradient[(1,)](x, loss, n, 0, 0.0, warps == 4, BLOCK=block, num_warps=warps)
        torch.testing.assert_close(x, wanted)
        torch.testing.assert_close(loss[0], wanted_loss)
    if n < block:
        x = torch.randn(n)
        wanted = torch.exp(x - x.max())
        entropy[(1,)](x, n, BLOCK=block, num_warps=4)
        torch.testing.assert_close(x, wanted * torch.log(wanted + 1))

@triton.jit
def next_one(x, n, BLOCK: tl.constexpr):
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        tl.store(x + i, tl.load(x + i + 1, mask=i < n), mask=i < n)

@triton.jit
def summed(x, n, BLOCK: tl.constexpr):
    total = 0.0
    for j in range(0, n):
        total += tl.load(x + j)
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        tl.store(x + i, total, mask=i < n)

@triton.jit
def round_about(x, out, n, BLOCK: tl.constexpr):
    i, value = tl.arange(0, BLOCK), tl.zeros((BLOCK,), tl.float32)
    for _ in range(0, n):
        tl.store(x + i, value + 1)
        value = tl.load(x + (i ^ 32))
    tl.store(out + i, value)

for kernel, given in ((next_one, ()), (summed, ()), (round_about, (torch.zeros(64),))):
    with pytest.raises(simt.Fault) as caught:  # what other threads store is used
        kernel[(1,)](torch.arange(65.0), *given, 64, BLOCK=64)
    assert caught.value.kind == simt.FaultKind.RACE, kernel
"""

NO_PROGRAMS = """
@triton.jit
def double(x, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + i, 2 * tl.load(x + i, mask=i < n), mask=i < n)

x = torch.ones(3)
double[(triton.cdiv(0, 64),)](x[3:], 0, BLOCK=64)
assert launches == [] and x.tolist() == [1, 1, 1]
double[(triton.cdiv(3, 64),)](x, 3, BLOCK=64)
assert len(launches) == 1 and x.tolist() == [2, 2, 2]
"""

REDUCED = """
import pytest

@triton.jit
def combine(max_a, sum_a, max_b, sum_b):
    most = tl.maximum(max_a, max_b)
    return most, sum_a * tl.exp(max_a - most) + sum_b * tl.exp(max_b - most)

@triton.jit
def softmax(x, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    value = tl.load(x + i, mask=i < n, other=-1e30)
    most, total = tl.reduce((value, tl.where(i < n, 1.0, 0.0)), 0, combine)
    tl.store(out + i, tl.exp(value - most) / total, mask=i < n)

x, out = torch.randn(777), torch.empty(777)
softmax[(1,)](x, out, 777, BLOCK=1024)
torch.testing.assert_close(out, torch.softmax(x, 0))

@triton.jit
def centered(x, y, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    value = tl.load(x + i)
    tl.store(out + i, value - tl.sum(value * tl.load(y + i), 0))

y = torch.randn(777)
centered[(1,)](x, y, out, BLOCK=64, num_warps=4)  # of four warps two hold all of it
torch.testing.assert_close(out[:64], x[:64] - x[:64] @ y[:64])

@triton.jit
def several(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i // 2, tl.load(x + i))

with pytest.raises(simt.Fault, match="writes too"):
    several[(1,)](x, out, BLOCK=32, num_warps=1)
"""

PRODUCT64 = """
@triton.jit
def product(a, b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    i, j, k = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :], tl.arange(0, K)
    total = tl.dot(tl.load(a + i * K + k[None, :]), tl.load(b + k[:, None] * N + j))
    tl.store(c + i * N + j, total)

for m, n, k in ((16, 16, 16), (32, 64, 16), (16, 16, 64)):
    a, b = torch.randn(m, k, dtype=torch.float64), torch.randn(k, n, dtype=torch.float64)
    c = torch.zeros(m, n, dtype=torch.float64)
    product[(1,)](a, b, c, m, n, k)
    torch.testing.assert_close(c, a @ b, rtol=1e-14, atol=1e-14)
"""


DOT_AND_SUM = """
import pytest
from warpcheck import simulated_gpu
from warpcheck.target import SM_80, SM_90A

@triton.jit
def product(a, b, c, sums, n, STAGES: tl.constexpr, AGAIN: tl.constexpr):
    i, j = tl.arange(0, 64)[:, None], tl.arange(0, 64)[None, :]
    total, beside = tl.zeros((64, 64), tl.float32), tl.zeros((64,), tl.float32)
    for start in tl.range(0, n, 64, num_stages=STAGES):
        left = tl.load(a + i * n + start + j)
        total = tl.dot(left, tl.load(b + (start + i) * 64 + j), total)
        if AGAIN:
            left = tl.load(a + i * n + start + j, cache_modifier=".ca")
        beside += tl.sum(left.to(tl.float32), 1)
    tl.store(c + i * 64 + j, total)
    tl.store(sums + tl.arange(0, 64), beside)

a, b = torch.randn(64, 256).half(), torch.randn(256, 64).half()

def run(stages, again):
    c, sums = torch.empty(64, 64), torch.empty(64)
    product[(1,)](a, b, c, sums, 256, stages, again)
    torch.testing.assert_close(c, a.float() @ b.float(), rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(sums, a.float().sum(1), rtol=1e-3, atol=1e-3)

run(3, False)  # for sm_80, whose products are not in flight
simulated_gpu._target = SM_90A
run(1, False)
run(3, True)
with pytest.raises(simt.Fault, match="without Gluon, this is Triton's own mistake.*num_stages=1") as caught:
    run(3, False)
assert caught.value.kind == simt.FaultKind.RACE
assert "of shared memory, which the wgmma in line 21 may" in caught.value.message, caught.value.message
assert caught.value.line == 20
"""


COMPILED = """
import tempfile
from pathlib import Path

@triton.jit
def double(x, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)

x, out = torch.randn(100), torch.zeros(100)
text = double.warmup(x, out, 100, BLOCK=128, grid=(1,)).asm["ttir"]
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "double.ttir"
    path.write_text(text)
    kernel = triton.compile(str(path))
    kernel[(1, 1, 1)](x, out, 100)
assert torch.equal(out, 2 * x)
(launch,) = launches
assert launch.name == "double" and launch.counted.totals.global_store_requests == 4
"""


DECIDES = """
import pytest

@triton.jit
def clip(x, limit, y, SQUARES: tl.constexpr):
    value = tl.load(x)
    if value > limit:
        tl.store(x, value * value if SQUARES else y)

@triton.jit
def all_use_it(x, limit, y, out):
    value = tl.load(x)
    if value > limit:
        tl.store(x, y)
        tl.store(out + tl.arange(0, 128), tl.zeros((128,), tl.float32) + value)

for squares, expected in ((False, 2.0), (True, 25.0)):
    x = torch.tensor([5.0])
    clip[(1,)](x, 1.0, 2.0, squares, num_warps=4)
    assert x.item() == expected
with pytest.raises(simt.Fault, match="tl.debug_barrier\\(\\) is missing") as caught:
    all_use_it[(1,)](torch.tensor([5.0]), 1.0, 2.0, torch.zeros(128), num_warps=4)
assert caught.value.kind == simt.FaultKind.RACE
"""


BODIES = {
    "a_scalar_that_decides_whether_one_thread_stores": DECIDES,
    "compiled_from_ttir": COMPILED,
    "softmax": SOFTMAX,
    "product_autotuned": PRODUCT,
    "autotuned": TUNED,
    "product_float64": PRODUCT64,
    "fault": FAULT,
    "atomics": ATOMICS,
    "scalars": SCALARS,
    "dropped": DROPPED,
    "reduced_in_pairs": REDUCED,
    "in_place": IN_PLACE,
    "no_programs": NO_PROGRAMS,
    "lanes_together": SAME_INSTRUCTION,
    "a_dot_and_a_sum_of_one_block": DOT_AND_SUM,
}


def run(script: Path, stderr_path: Path) -> None:
    """Run a script in this process, with its stderr redirected to a file."""
    with stderr_path.open("w") as file:
        os.dup2(file.fileno(), 2)
    runpy.run_path(str(script))


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
def test_triton_on_the_cpu(tmp_path: Path, body: str) -> None:
    script = tmp_path / "script.py"
    stderr_path = tmp_path / "said.txt"
    script.write_text(PROLOGUE.strip() + "\n" + textwrap.dedent(body))
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["warpcheck.frontends.triton_ready", "warpcheck.simt"])
    process = context.Process(target=run, args=(script, stderr_path))
    process.start()
    process.join(timeout=250)
    assert process.exitcode == 0, stderr_path.read_text()[-3000:]
