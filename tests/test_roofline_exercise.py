"""Compare the roofline exercise with tensor sizes, torch's FLOP counter, the PTX machine, and times of an H200."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from kernelpath import words
from kernelpath.course import registry
from kernelpath.course.labs import operators
from kernelpath.course.labs.operators import Operator
from kernelpath.course.problems import roofline
from kernelpath.grading import grade
from kernelpath.show import counting, results
from tests import planted

H200 = operators.MACHINES["H200"]
SMALL = {"elements": 1000, "rows": 33, "columns": 70, "tokens": 40, "vocabulary": 50, "width": 20, "distinct": 7} | {
    "m": 5, "n": 70, "k": 30, "batch": 3, "head_dim": 16, "in_channels": 6, "out_channels": 10, "height": 19
}  # fmt: skip


def shrink(op: Operator) -> Operator:
    """Return the same operator at a size that a CPU computes immediately."""
    return {name: min(value, SMALL.get(name, value)) if isinstance(value, int) else value for name, value in op.items()}


@pytest.mark.parametrize("op", [shrink(op) for op in operators.RECORDED], ids=operators.told)
def test_compulsory_bytes_equal_the_tensors_that_torch_reads_and_writes(op: Operator) -> None:
    call, inputs = operators.call(op, "cpu")
    nbytes = sum(tensor.nbytes for tensor in (*inputs, call()))
    if op["name"] == "embedding":
        index, table = inputs
        assert index.unique().numel() == op["distinct"]
        nbytes -= table.nbytes - table[index.unique()].nbytes
    assert roofline.compulsory_bytes(op) == nbytes


@pytest.mark.parametrize("name", roofline.PRODUCTS)
def test_operations_equal_the_flop_counter_of_torch(name: str) -> None:
    op = next(shrink(op) for op in operators.RECORDED if op["name"] == name)
    call, (first, *_) = operators.call(op, "cpu")
    with FlopCounterMode(display=False) as counter:
        if name.startswith("attention"):  # written out, because the counter ignores masks
            k = torch.empty(*first.shape[:2], op["tokens"], first.shape[-1])
            (first.float() @ k.transpose(2, 3)) @ k
        else:
            call()
    counted_flops = counter.get_total_flops()
    if name == "attention_prefill":
        visible = torch.ones(op["tokens"], op["tokens"]).tril()
        counted_flops = round(counted_flops * visible.mean().item())
    assert roofline.operations(op) == counted_flops


@pytest.mark.parametrize(
    ("name", "op", "times"),
    [
        ("vector_add", operators.operator("add", "float32", elements=1 << 14), 1),
        ("softmax", operators.operator("softmax", "float32", rows=16, columns=512), 1),
        ("transpose", operators.operator("transpose", "float32", rows=128, columns=128), 1),
        ("matmul_tiled", operators.operator("matmul", "float32", m=128, n=128, k=128), 1),
        ("matmul_naive", operators.operator("matmul", "float32", m=64, n=64, k=64), 20),
    ],
)
def test_reference_kernels_move_at_most_twice_the_compulsory_bytes(name: str, op: Operator, times: int) -> None:
    item = registry.find(name)
    kernel = getattr(registry.import_file(item.files("solutions")[-1], f"of_{name}"), registry.load(item).entry)
    inputs: list[torch.Tensor]
    if op["name"] == "matmul":
        inputs = [torch.randn(op["m"], op["k"]), torch.randn(op["k"], op["n"])]
    else:
        inputs = list(operators.call(op, "cpu")[1])
    compulsory = roofline.compulsory_bytes(op)
    assert times * compulsory <= counting.asked(kernel, *inputs).bytes < 2 * times * compulsory


def read_recording() -> tuple[dict[str, float], dict[str, float]]:
    """Return the ceilings of the H200 on which the operators were timed, and the times in seconds."""
    recording = results.recordings(registry.root() / results.FOLDER / results.RECORDINGS)["week05/operators"].value
    return recording["ceilings"], recording["seconds"]


def test_no_recorded_operator_exceeds_the_roofline_and_most_are_close() -> None:
    _, seconds = read_recording()
    slower = {}
    for op in operators.RECORDED:
        launch = 1e-6 * H200["launch"]
        slower[operators.told(op)] = seconds[operators.told(op)] / (roofline.roof_seconds(op, H200) + launch)
    assert min(slower.values()) > 0.97
    assert max(slower.values()) < 7.5, "only the transposes and losses of torch are that slow"
    assert sum(factor < 1.5 for factor in slower.values()) >= 16


def test_the_h200_has_the_measured_ceilings() -> None:
    ceilings, _ = read_recording()
    assert 1e9 * H200["bandwidth"] == pytest.approx(max(ceilings["copy"], ceilings["read"]), rel=0.03)
    assert 1e-6 * H200["launch"] == pytest.approx(ceilings["launch"], rel=0.5)  # two hosts measured 2.9 and 4.2 us
    for dtype, peak in H200["peak"].items():
        assert 1e12 * peak == pytest.approx(ceilings[f"matmul_{dtype}"], rel=0.1)


def test_random_machines_have_operators_with_every_bound() -> None:
    for name in operators.RANDOM_MACHINES:
        for seed in range(20):
            rng = torch.Generator().manual_seed(seed)
            inputs = roofline.inputs(rng, name, 60)
            assert roofline.reference(*inputs)[:, 3].unique().tolist() == [0, 1, 2]
            assert json.dumps(inputs[0])  # the inputs are plain numbers and not tensors or NumPy scalars


@pytest.mark.parametrize(
    ("reject", "message"),
    [
        ("bits_for_bytes", "393,216 compulsory bytes, expected 49,152: these are bits"),
        ("cache_read_by_every_head", "heads share K and V, which are then read once"),
        ("milliseconds", "timed {timed}: the launch is given in microseconds"),
        ("gib_for_gb", "timed {timed}: a GB is 10^9 bytes, not 2^30"),
    ],
)
def test_a_finding_names_the_mistake_and_the_recorded_time(reject: str, message: str, tmp_path: Path) -> None:
    wrong = planted.named(registry.root(), f"w05a_roofline/WRONG_VALUES_{reject}")
    report = grade.grade(registry.find("roofline"), wrong.submission(tmp_path), device="cpu", seed=1)
    _, seconds = read_recording()
    assert message.format(timed=words.seconds(seconds["add elements=4096 float32"])) in report.cause


@pytest.mark.parametrize(("number", "formatted"), [(1.0, "arithmetic"), (7.0, "7.0"), (float("nan"), "nan")])
def test_a_finding_formats_any_number_given_as_a_bound(number: float, formatted: str) -> None:
    inputs = roofline.inputs(torch.Generator().manual_seed(0), operators.TIMED, 0)
    table = roofline.reference(*inputs)
    table[2, 3] = number  # an addition of 2^27 values
    check = registry.load(registry.find("roofline")).check
    assert check is not None
    message = check(inputs, [table])
    assert isinstance(message, str)
    times = "memory 179 µs, arithmetic 2.61 µs, launch 2.9 µs"
    assert message.endswith(f"add elements=134217728 bfloat16 on H200: bound by {formatted}, expected memory ({times})")
