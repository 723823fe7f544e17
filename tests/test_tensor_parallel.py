"""Compare the tensor-parallel block of benchmarks/tensor_parallel.py with the full block in float64."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys, threading, torch
from warpcheck import simulated_gpu
simulated_gpu.show({}, "sm_80")
from warpcheck.frontends import triton as lane
lane.activate("cpu")
sys.path.insert(0, "benchmarks")
import tensor_parallel
from kernelpath.course import registry
from kernelpath.course.problems import transformer_block as problem

SIZE, HEADS, KV_HEADS = 2, 4, 2
block = registry.import_file(registry.find("transformer_block").reference, "transformer_block")
rng = torch.Generator().manual_seed(1)
given = problem.inputs(rng, batch=1, tokens=40, width=64, heads=HEADS, kv_heads=KV_HEADS, head=32, hidden=64)
x, residual, norm1, wqkv, wo, norm2, wgu, wdown, *others = given[:-2]
turn, met, partial, made = threading.Lock(), threading.Barrier(SIZE), {}, {}

def summed_by(rank):
    def summed(a, b):
        partial[rank] = torch.mm(a, b)
        turn.release()
        met.wait(60)
        total = sum(partial[other] for other in range(SIZE))
        met.wait(60)
        turn.acquire()
        return total
    return summed

def run(rank):
    own = tensor_parallel.shares(wqkv, wo, wgu, wdown, HEADS, KV_HEADS, rank, SIZE)
    with turn:
        made[rank] = tensor_parallel.step(
            block, HEADS // SIZE, KV_HEADS // SIZE, summed_by(rank),
            x, residual, norm1, own[0], own[1], norm2, own[2], own[3], *others)

ranks = [threading.Thread(target=run, args=(rank,)) for rank in range(SIZE)]
for one in ranks:
    one.start()
for one in ranks:
    one.join()
whole = problem.reference(*given)
weights = {4: 0, 5: 1, 7: 2, 8: 3}
for rank in range(SIZE):
    parts = tensor_parallel.shares(whole[4], whole[5], whole[7], whole[8], HEADS, KV_HEADS, rank, SIZE)
    for place, (got, wanted) in enumerate(zip(made[rank], whole, strict=True)):
        wanted = parts[weights[place]] if place in weights else wanted
        off = (got.double() - wanted).pow(2).mean().sqrt() / wanted.pow(2).mean().sqrt()
        print(rank, place, f"{off:.4f}")
"""


def test_ranks_with_a_share_of_the_heads_and_columns_make_the_whole_block() -> None:
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=250, cwd=Path(__file__).parents[1]
    )
    errors = [float(line.split()[-1]) for line in run.stdout.splitlines()]
    assert len(errors) == 18, run.stderr
    assert max(errors) < 0.02, run.stdout
