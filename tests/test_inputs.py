"""Test the generation of a case's inputs: edge values for every seed, and misaligned tensors."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from kernelpath.course import draw, registry
from kernelpath.course.inputs import EXTREME, PLAIN, InputMode, generate_inputs, misalignments, serves_vectors
from kernelpath.course.registry import ExerciseRef
from kernelpath.course.spec import Exercise
from kernelpath.grading.compare import bits
from kernelpath.grading.graders.results import process_finding
from kernelpath.grading.ground_truth import generate_cases, placement_runs
from kernelpath.verdict import Verdict
from kernelpath.work.call import GuardedCall
from kernelpath.work.dispatch_monitor import AuditLog
from kernelpath.work.tamper_check import SubmissionThread
from kernelpath.work.tensors import fingerprints, storage_bytes

AUDIT_LOG = AuditLog()


def load_exercise(name: str) -> Exercise:
    return registry.load(registry.find(name))


def make_generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("seed", range(3))
def test_every_seed_generates_all_kinds_of_special_values(dtype: torch.dtype, seed: int) -> None:
    tensor = torch.ones(14, dtype=dtype)
    draw.any_bits_(make_generator(seed), tensor)
    tiny = torch.finfo(dtype).tiny
    payloads = bits(tensor[tensor.isnan()]).unique()
    canonical = bits(torch.tensor([float("nan")], dtype=dtype))
    assert ((tensor == 0) & tensor.signbit()).sum() == 1
    assert ((tensor != 0) & (tensor.abs() < tiny)).sum() == 2
    assert tensor.isposinf().sum() == tensor.isneginf().sum() == 1
    assert len(payloads) == 2
    assert canonical not in payloads
    assert (tensor == 1).sum() == 7


def test_special_values_stay_inside_a_view() -> None:
    tensor = torch.ones(6, 8)
    draw.any_bits_(make_generator(), tensor[:, :5])
    assert (tensor[:, 5:] == 1).all()
    assert (tensor[:, :5] != 1).sum() == 15


def test_special_values_reach_the_repeated_elements_of_a_view() -> None:
    tensor = torch.ones(2, 10, 1)
    draw.any_bits_(make_generator(), draw.without_repeats(tensor.expand(2, 10, 4)))
    assert (tensor != 1).sum() == 10


def test_without_repeats_collapses_axes_of_stride_0() -> None:
    view = torch.arange(6.0).view(2, 1, 3).expand(2, 4, 3)
    assert torch.equal(draw.without_repeats(view), view[:, :1])
    assert torch.equal(draw.without_repeats(torch.ones(1).expand(5, 5)), torch.ones(1, 1))


def test_integers_get_no_special_values() -> None:
    index = torch.arange(20)
    draw.any_bits_(make_generator(), index)
    assert torch.equal(index, torch.arange(20))


def test_data_movement_gets_special_values_without_a_declaration() -> None:
    (x,) = generate_inputs(
        load_exercise("transpose"), {"rows": 7, "columns": 9, "dtype": "bfloat16"}, 1, "cpu", EXTREME
    )
    assert x.isnan().sum() > 4
    assert (
        not generate_inputs(load_exercise("transpose"), {"rows": 7, "columns": 9, "dtype": "bfloat16"}, 1, "cpu")[0]
        .isnan()
        .any()
    )


CASE = {"rows": 5, "columns": 8, "pad": 3}


@pytest.mark.parametrize("misaligned", [1, 2, 3])
@pytest.mark.parametrize("seed", range(4))
def test_the_selected_tensors_are_not_aligned_to_16_bytes(misaligned: int, seed: int) -> None:
    plain = generate_inputs(load_exercise("matrix_add"), CASE, seed, "cpu")
    misaligned_inputs = generate_inputs(
        load_exercise("matrix_add"), CASE, seed, "cpu", InputMode(misaligned=misaligned)
    )
    is_misaligned = [4 * tensor.storage_offset() % 16 != 0 for tensor in misaligned_inputs]
    assert is_misaligned == [bool(misaligned >> index & 1) for index in range(2)]
    for plain_tensor, misaligned_tensor in zip(plain, misaligned_inputs, strict=True):
        assert torch.equal(plain_tensor, misaligned_tensor)
        assert plain_tensor.stride() == misaligned_tensor.stride()


def test_padding_around_and_between_rows_is_nan() -> None:
    for tensor in generate_inputs(load_exercise("matrix_add"), CASE, 1, "cpu", InputMode(misaligned=2)):
        storage = torch.tensor([]).set_(tensor.untyped_storage())
        assert storage[: tensor.storage_offset()].isnan().all()
        assert tensor.storage_offset() >= 4
        assert storage.isnan().sum() == storage.numel() - 5 * 8
        assert storage[-4:].isnan().all()


def test_a_misaligned_tensor_keeps_its_strides_of_0() -> None:
    with_repeats = replace(
        load_exercise("matrix_add"),
        problem=replace(
            load_exercise("matrix_add").problem,
            inputs=lambda make_generator, **_: (torch.arange(3.0)[:, None].expand(3, 5),),
        ),
    )
    (tensor,) = generate_inputs(with_repeats, CASE, 0, "cpu", InputMode(misaligned=1))
    assert tensor.stride() == (1, 0)
    assert tensor.data_ptr() % 16
    assert torch.equal(tensor, torch.arange(3.0)[:, None].expand(3, 5))


def test_misalignments_are_each_tensor_alone_then_all_together() -> None:
    inputs = [torch.ones(1), 7, torch.ones(1), torch.ones(1)]
    assert [mode.misaligned for mode in misalignments(load_exercise("add_rmsnorm"), inputs)] == [1, 2, 4, 7]
    assert [mode.misaligned for mode in misalignments(load_exercise("softmax"), inputs[:2])] == [1]
    assert misalignments(replace(load_exercise("softmax"), aligned=True), inputs) == []


def test_a_vectorizable_case_has_every_tensor_misaligned_in_turn() -> None:
    tiled = load_exercise("matmul_tiled")
    inputs_of_cases = [generate_inputs(tiled, case, 1, "cpu") for case in tiled.cases]
    runs = placement_runs(tiled, inputs_of_cases)
    vector_cases = [index for index in range(len(inputs_of_cases)) if serves_vectors(inputs_of_cases[index])]
    assert tiled.cases[vector_cases[-1]] == tiled.largest
    assert {mode.misaligned for index, mode in runs if index == vector_cases[0]} == {1, 2, 3}
    assert {index for index, _ in runs} == set(range(len(tiled.cases))) - {vector_cases[-1]}
    assert [mode.misaligned for _, mode in runs[:4]] == [1, 2, 3, 1], "each small case, misaligned in turn"


def test_the_generated_case_is_at_least_half_as_large_as_the_largest() -> None:
    matrix_add = load_exercise("matrix_add")
    (largest,) = (case for case in matrix_add.cases if case == matrix_add.largest)
    generated_cases = [case for seed in range(40) for case in generate_cases(matrix_add, seed)]
    for name in ("rows", "columns"):
        sizes = {case[name] for case in generated_cases}
        assert min(sizes) >= largest[name] // 2
        assert max(sizes) <= largest[name]
        assert len(sizes) > 20, "the case must vary with the seed"
    assert {case["pad"] for case in generated_cases} == {largest["pad"]}
    assert generate_cases(matrix_add, 7) == generated_cases[7:8], "the same seed must give the same case"


def test_cases_without_tensors_are_not_misaligned() -> None:
    grid = load_exercise("hello_grid")
    assert {
        mode for _, mode in placement_runs(grid, [generate_inputs(grid, case, 1, "cpu") for case in grid.cases])
    } == {PLAIN}


def make_guarded_call(mode: InputMode = PLAIN) -> GuardedCall:
    inputs = generate_inputs(load_exercise("matrix_add"), CASE, 3, "cpu", mode)
    return GuardedCall("matrix_add", inputs, torch.device("cpu"), SubmissionThread(), AUDIT_LOG, False)


def collect_result(guarded_call: GuardedCall) -> Any:
    return guarded_call.to_result([], "", "")


@pytest.mark.parametrize("mode", [PLAIN, EXTREME, InputMode(misaligned=1)])
def test_grader_and_worker_generate_the_same_inputs(mode: InputMode) -> None:
    inputs = generate_inputs(load_exercise("matrix_add"), CASE, 3, "cpu", mode)
    assert process_finding(collect_result(make_guarded_call(mode)), inputs) is None
    assert (
        process_finding(
            collect_result(make_guarded_call(mode)), generate_inputs(load_exercise("matrix_add"), CASE, 4, "cpu", mode)
        )
        is not None
    )


def test_a_write_between_rows_is_a_mutated_input() -> None:
    guarded_call = make_guarded_call()
    x = guarded_call.inputs[0]
    torch.as_strided(x, (1,), (1,), x.storage_offset() + 8).fill_(0.5)
    finding = process_finding(
        collect_result(guarded_call), generate_inputs(load_exercise("matrix_add"), CASE, 3, "cpu")
    )
    assert finding is not None
    assert finding.verdict is Verdict.MUTATED_INPUT


TIMED = [item for item in registry.exercises() if item.stars == 3]


class NondeterministicCalls(TorchDispatchMode):
    """Collect the calls of operators whose bits on a GPU may differ from call to call.

    torch.multinomial uses a floating-point cumsum if it takes several samples. A cumsum by itself is not collected,
    because a generator may compute it on the CPU for any device.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: list[str] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = function.overloadpacket.__name__
        samples_several = name == "multinomial" and args[1] > 1
        adds_floats = name.rstrip("_") in ("index_add", "scatter_add") and args[0].is_floating_point()
        accumulates = name.rstrip("_") == "index_put" and len(args) > 3 and bool(args[3])
        if samples_several or adds_floats or accumulates:
            self.names.append(name)
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("item", TIMED, ids=lambda item: item.name)
def test_inputs_are_generated_by_deterministic_operators(item: ExerciseRef) -> None:
    with NondeterministicCalls() as calls:
        generate_inputs(registry.load(item), registry.load(item).largest, 1, "cpu")
    assert calls.names == []


def test_tokens_of_a_text_follow_zipfs_law() -> None:
    _, ids, _, _ = load_exercise("embedding_gradient").inputs(make_generator(), 80_000, 1000, 1, "text", "bfloat16")
    shares = ids[ids >= 0].long().bincount(minlength=1000) / (ids >= 0).sum()
    expected = 1 / torch.arange(1, 1001)
    torch.testing.assert_close(shares[:8].float(), (expected / expected.sum())[:8], rtol=0.1, atol=0.0)
    assert ids.max() > 900


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("item", TIMED, ids=lambda item: item.name)
def test_inputs_of_a_timed_case_have_the_same_bits_in_every_call(item: ExerciseRef) -> None:
    """The grader generates the inputs of a round again and blames the submission for each bit that differs."""
    timed_exercise = registry.load(item)
    case = timed_exercise.bench
    assert case is not None

    def generate() -> list[list[int]]:
        inputs = generate_inputs(timed_exercise, case, 7, "cuda")
        return fingerprints([storage_bytes(value) for value in inputs if isinstance(value, torch.Tensor)])

    expected = generate()
    assert all(generate() == expected for _ in range(3))


def test_nans_have_both_signs_and_other_payloads() -> None:
    """Half of them are those that most computations return, which a kernel may know by their bits."""
    nans = draw.nans(torch.Generator().manual_seed(0), 400)
    assert nans.dtype == torch.float32
    assert bool(nans.isnan().all())
    bits = nans.view(torch.int32)
    assert 150 < int((bits < 0).sum()) < 250
    usual = (bits & 0x7FFFFFFF) == 0x7FC00000
    assert 150 < int(usual.sum()) < 250
