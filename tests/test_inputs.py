"""How a case's inputs are drawn: extreme values that are always there, and tensors that begin anywhere."""

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


def exercise(name: str) -> Exercise:
    return registry.load(registry.find(name))


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("seed", range(3))
def test_all_kinds_of_bits_are_there_whatever_the_seed(dtype: torch.dtype, seed: int) -> None:
    tensor = torch.ones(14, dtype=dtype)
    draw.any_bits_(rng(seed), tensor)
    tiny = torch.finfo(dtype).tiny
    payloads = bits(tensor[tensor.isnan()]).unique()
    canonical = bits(torch.tensor([float("nan")], dtype=dtype))
    assert ((tensor == 0) & tensor.signbit()).sum() == 1
    assert ((tensor != 0) & (tensor.abs() < tiny)).sum() == 2
    assert tensor.isposinf().sum() == tensor.isneginf().sum() == 1
    assert len(payloads) == 2
    assert canonical not in payloads
    assert (tensor == 1).sum() == 7


def test_bits_reach_the_elements_of_a_view_alone() -> None:
    whole = torch.ones(6, 8)
    draw.any_bits_(rng(), whole[:, :5])
    assert (whole[:, 5:] == 1).all()
    assert (whole[:, :5] != 1).sum() == 15


def test_bits_reach_what_a_view_repeats() -> None:
    once = torch.ones(2, 10, 1)
    draw.any_bits_(rng(), draw.without_repeats(once.expand(2, 10, 4)))
    assert (once != 1).sum() == 10


def test_what_an_axis_of_stride_0_repeats_is_there_once() -> None:
    view = torch.arange(6.0).view(2, 1, 3).expand(2, 4, 3)
    assert torch.equal(draw.without_repeats(view), view[:, :1])
    assert torch.equal(draw.without_repeats(torch.ones(1).expand(5, 5)), torch.ones(1, 1))


def test_integers_have_no_extreme_bits() -> None:
    index = torch.arange(20)
    draw.any_bits_(rng(), index)
    assert torch.equal(index, torch.arange(20))


def test_what_only_moves_gets_extreme_values_without_a_declaration() -> None:
    (x,) = generate_inputs(exercise("transpose"), {"rows": 7, "columns": 9, "dtype": "bfloat16"}, 1, "cpu", EXTREME)
    assert x.isnan().sum() > 4
    assert (
        not generate_inputs(exercise("transpose"), {"rows": 7, "columns": 9, "dtype": "bfloat16"}, 1, "cpu")[0]
        .isnan()
        .any()
    )


CASE = {"rows": 5, "columns": 8, "pad": 3}


@pytest.mark.parametrize("misaligned", [1, 2, 3])
@pytest.mark.parametrize("seed", range(4))
def test_the_tensors_that_are_asked_for_begin_at_no_multiple_of_16(misaligned: int, seed: int) -> None:
    plain = generate_inputs(exercise("matrix_add"), CASE, seed, "cpu")
    placed = generate_inputs(exercise("matrix_add"), CASE, seed, "cpu", InputMode(misaligned=misaligned))
    off = [4 * tensor.storage_offset() % 16 != 0 for tensor in placed]
    assert off == [bool(misaligned >> place & 1) for place in range(2)]
    for one, other in zip(plain, placed, strict=True):
        assert torch.equal(one, other)
        assert one.stride() == other.stride()


def test_what_lies_around_and_between_the_rows_is_nan() -> None:
    for tensor in generate_inputs(exercise("matrix_add"), CASE, 1, "cpu", InputMode(misaligned=2)):
        storage = torch.tensor([]).set_(tensor.untyped_storage())
        assert storage[: tensor.storage_offset()].isnan().all()
        assert tensor.storage_offset() >= 4
        assert storage.isnan().sum() == storage.numel() - 5 * 8
        assert storage[-4:].isnan().all()


def test_a_tensor_that_repeats_elements_keeps_its_strides_where_it_is_misaligned() -> None:
    repeated = replace(
        exercise("matrix_add"),
        problem=replace(
            exercise("matrix_add").problem, inputs=lambda rng, **_: (torch.arange(3.0)[:, None].expand(3, 5),)
        ),
    )
    (placed,) = generate_inputs(repeated, CASE, 0, "cpu", InputMode(misaligned=1))
    assert placed.stride() == (1, 0)
    assert placed.data_ptr() % 16
    assert torch.equal(placed, torch.arange(3.0)[:, None].expand(3, 5))


def test_each_tensor_is_misaligned_alone_and_then_all_of_them() -> None:
    three = [torch.ones(1), 7, torch.ones(1), torch.ones(1)]
    assert [one.misaligned for one in misalignments(exercise("add_rmsnorm"), three)] == [1, 2, 4, 7]
    assert [one.misaligned for one in misalignments(exercise("softmax"), three[:2])] == [1]
    assert misalignments(replace(exercise("softmax"), aligned=True), three) == []


def test_a_case_that_vectors_serve_has_every_tensor_misaligned_in_turn() -> None:
    tiled = exercise("matmul_tiled")
    drawn = [generate_inputs(tiled, case, 1, "cpu") for case in tiled.cases]
    runs = placement_runs(tiled, drawn)
    served = [index for index in range(len(drawn)) if serves_vectors(drawn[index])]
    assert tiled.cases[served[-1]] == tiled.largest
    assert {one.misaligned for index, one in runs if index == served[0]} == {1, 2, 3}
    assert {index for index, _ in runs} == set(range(len(tiled.cases))) - {served[-1]}
    assert [one.misaligned for _, one in runs[:4]] == [1, 2, 3, 1], "each small case, with the tensors in turn"


def test_the_drawn_case_is_between_a_half_and_the_whole_of_the_largest() -> None:
    added = exercise("matrix_add")
    (largest,) = (case for case in added.cases if case == added.largest)
    drawn = [case for seed in range(40) for case in generate_cases(added, seed)]
    for name in ("rows", "columns"):
        sizes = {case[name] for case in drawn}
        assert min(sizes) >= largest[name] // 2
        assert max(sizes) <= largest[name]
        assert len(sizes) > 20, "another one with each seed"
    assert {case["pad"] for case in drawn} == {largest["pad"]}
    assert generate_cases(added, 7) == drawn[7:8], "and the same with the same"


def test_without_tensors_the_small_cases_are_run_as_they_are() -> None:
    grid = exercise("hello_grid")
    assert {one for _, one in placement_runs(grid, [generate_inputs(grid, case, 1, "cpu") for case in grid.cases])} == {
        PLAIN
    }


def call(variety: InputMode = PLAIN) -> GuardedCall:
    drawn = generate_inputs(exercise("matrix_add"), CASE, 3, "cpu", variety)
    return GuardedCall("matrix_add", drawn, torch.device("cpu"), SubmissionThread(), AUDIT_LOG, False)


def told(one: GuardedCall) -> Any:
    return one.to_result([], "", "")


@pytest.mark.parametrize("variety", [PLAIN, EXTREME, InputMode(misaligned=1)])
def test_grader_and_worker_draw_the_same(variety: InputMode) -> None:
    drawn = generate_inputs(exercise("matrix_add"), CASE, 3, "cpu", variety)
    assert process_finding(told(call(variety)), drawn) is None
    assert (
        process_finding(told(call(variety)), generate_inputs(exercise("matrix_add"), CASE, 4, "cpu", variety))
        is not None
    )


def test_a_gap_between_rows_that_was_written_is_found_in_the_submissions_process() -> None:
    made = call()
    x = made.inputs[0]
    torch.as_strided(x, (1,), (1,), x.storage_offset() + 8).fill_(0.5)
    finding = process_finding(told(made), generate_inputs(exercise("matrix_add"), CASE, 3, "cpu"))
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


def test_tokens_of_a_text_have_their_probabilities() -> None:
    _, ids, _, _ = exercise("embedding_gradient").inputs(rng(), 80_000, 1000, 1, "text", "bfloat16")
    shares = ids[ids >= 0].long().bincount(minlength=1000) / (ids >= 0).sum()
    expected = 1 / torch.arange(1, 1001)
    torch.testing.assert_close(shares[:8].float(), (expected / expected.sum())[:8], rtol=0.1, atol=0.0)
    assert ids.max() > 900


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("item", TIMED, ids=lambda item: item.name)
def test_inputs_of_a_timed_case_have_the_same_bits_in_every_call(item: ExerciseRef) -> None:
    """The grader generates the inputs of a round again, and any other bit means that the submission changed it."""
    declared = registry.load(item)
    case = declared.bench
    assert case is not None

    def generate() -> list[list[int]]:
        inputs = generate_inputs(declared, case, 7, "cuda")
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
