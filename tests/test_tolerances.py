"""Test tolerances with magnitudes: correct results pass at every seed, and results of a lower precision fail."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from kernelpath.course import registry
from kernelpath.course.condition import sensitivity
from kernelpath.course.errors import DeclarationError
from kernelpath.course.inputs import EXTREME, PLAIN, generate_inputs
from kernelpath.course.problem import EXACT, Problem, Tolerance
from kernelpath.course.problems import (
    adam,
    add_rmsnorm,
    all_reduce,
    attention,
    cross_entropy,
    divergence,
    gelu,
    grpo_loss,
    hardswish,
    layernorm,
    matmul_twists,
    softmax,
    softmax_gradient,
    stencil,
    transformer_block,
)
from kernelpath.grading import compare
from kernelpath.grading.ground_truth import derive_seed, expected_outputs, list_outputs, magnitudes_of
from kernelpath.verdict import Verdict

TOLERANCE = {"float64": Tolerance(rtol=0.0, atol=1e-3, mtol=1e-2)}


def verdict(problem: Problem, inputs: Sequence[object], outputs: Sequence[torch.Tensor]) -> Verdict | None:
    """Return the verdict of the comparison alone, without a grading."""

    def magnitudes() -> list[torch.Tensor]:
        assert problem.magnitudes is not None
        return list_outputs(problem.magnitudes, inputs)

    expected = list_outputs(problem.reference, inputs)
    finding = compare.check_outputs(outputs, expected, problem.tolerance, magnitudes=magnitudes)
    return finding.verdict if finding is not None else None


@pytest.mark.parametrize(("error", "right"), [(0.0099, True), (0.0101, False)])
def test_mtol_allows_errors_relative_to_the_magnitude_of_each_element(error: float, right: bool) -> None:
    truth = torch.tensor([0.0, 0.5, 0.0], dtype=torch.float64)
    magnitude = torch.tensor([0.0, 1.0, 0.0], dtype=torch.float64)
    output = truth + error * magnitude
    finding = compare.check_outputs([output], [truth], TOLERANCE, magnitudes=lambda: [magnitude])
    assert (finding is None) is right
    elsewhere = truth + error * magnitude.roll(1)
    assert compare.check_outputs([elsewhere], [truth], TOLERANCE, magnitudes=lambda: [magnitude]) is not None


@pytest.mark.parametrize("magnitude", [math.inf, math.nan])
def test_a_magnitude_that_is_not_finite_allows_no_error(magnitude: float) -> None:
    truth = torch.ones(2, dtype=torch.float64)
    infinite_magnitude = torch.full((2,), magnitude, dtype=torch.float64)
    assert compare.check_outputs([truth + 1], [truth], TOLERANCE, magnitudes=lambda: [infinite_magnitude]) is not None


def test_magnitudes_are_not_computed_for_outputs_within_the_plain_tolerance() -> None:
    def never() -> list[torch.Tensor]:
        raise AssertionError

    truth = torch.ones(2, dtype=torch.float64)
    assert compare.check_outputs([truth + 1e-4], [truth], TOLERANCE, magnitudes=never) is None


def test_mtol_and_magnitudes_are_declared_together() -> None:
    with pytest.raises(DeclarationError, match="mtol: it goes with the problem's magnitudes"):
        Problem(**{**vars(stencil.PROBLEM), "magnitudes": None})
    with pytest.raises(DeclarationError, match="mtol: it goes with the problem's magnitudes"):
        Problem(**{**vars(stencil.PROBLEM), "tolerance": {"float32": EXACT}})


def sum_terms(x: torch.Tensor, order: Sequence[int]) -> torch.Tensor:
    """Return the stencil in float32 with its 17 terms added sequentially in an order."""
    padded = torch.nn.functional.pad(x, (stencil.RADIUS, stencil.RADIUS))
    total = torch.zeros_like(x)
    for k in order:
        weight = torch.tensor((9 - abs(k)) / 81, dtype=torch.float32)
        total = total + weight * padded[stencil.RADIUS + k : stencil.RADIUS + k + x.numel()]
    return total


@pytest.mark.parametrize("seed", range(5))
def test_stencils_of_any_order_pass_though_large_neighbors_cancel(seed: int) -> None:
    """About one element in 300 is 1e-3 of the surrounding magnitudes and has a relative error of 1e-5."""
    rng = torch.Generator().manual_seed(seed)
    x = torch.randn(20_000, generator=rng)
    large = torch.randint(20_000, (600,), generator=rng)
    x[large] *= 100
    for order in (range(-8, 9), range(8, -9, -1), sorted(range(-8, 9), key=abs)):
        assert verdict(stencil.PROBLEM, [x], [sum_terms(x, order)]) is None
    tf32 = (x.view(torch.int32) & -(1 << 13)).view(torch.float32)
    assert verdict(stencil.PROBLEM, [x], [sum_terms(tf32, range(-8, 9))]) is Verdict.WRONG_VALUES


def step_adamw(inputs: Sequence[Any], moments: torch.dtype = torch.float32) -> list[torch.Tensor]:
    """Return the results of AdamW in float32, with 1 - beta computed in float32, as in CUDA kernels."""
    steps, lr, beta1, beta2, eps, decay, *tensors = inputs
    lr, beta1, beta2, eps, decay = (
        torch.tensor(value, dtype=torch.float32) for value in (lr, beta1, beta2, eps, decay)
    )
    updated: list[list[torch.Tensor]] = [[], [], []]
    for step, param, grad, first, second in zip(steps, *adam.lists(steps, tensors), strict=True):
        grad_float32 = grad.float()
        moment = (beta1 * first + (1 - beta1) * grad_float32).to(moments).float()
        square = (beta2 * second + (1 - beta2) * grad_float32 * grad_float32).to(moments).float()
        root = (square / (1 - beta2**step)).sqrt()
        update = lr / (1 - beta1**step) * moment / (root + eps)
        values = (param.float() * (1 - lr * decay) - update).to(param.dtype), moment, square
        for kind, value in zip(updated, values, strict=True):
            kind.append(value)
    return [value for kind in updated for value in kind]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_adam_passes_where_the_terms_of_a_moment_cancel(dtype: str) -> None:
    """A single element equals its root mean square, so only the magnitudes of its terms allow rounding errors."""
    inputs = list(adam.inputs(torch.Generator().manual_seed(1), **adam.case("many", 8, step=7, dtype=dtype)))
    steps: Any = inputs[0]
    tensors: Any = inputs[6:]
    for grad, first in zip(*adam.lists(steps, tensors)[1:3], strict=True):
        grad.copy_(-9 * first * (1 + 1e-4))  # so that beta1 * first + (1 - beta1) * grad is 1e-4 of its terms
    assert verdict(adam.PROBLEM, inputs, step_adamw(inputs)) is None
    assert verdict(adam.PROBLEM, inputs, step_adamw(inputs, torch.bfloat16)) is Verdict.WRONG_VALUES


def test_a_ring_in_bfloat16_passes_where_large_values_of_two_ranks_cancel() -> None:
    x = torch.tensor([[300.0], [1.37], [-300.0], [0.81]]).expand(4, 8).bfloat16()
    total = x[0]
    for row in x[1:]:
        total = total + row
    assert verdict(all_reduce.PROBLEM, [x, "ring"], [total] * 4) is None
    assert verdict(all_reduce.PROBLEM, [x, "ring"], [total + 20] * 4) is Verdict.WRONG_VALUES


def test_mtol_allows_only_outliers_in_the_transformer_block() -> None:
    """In the extreme case of seed 5, PyTorch has an error of 0.29 of the tensor's rms in the gradient of row 14.

    For the median element, mtol allows less than half as much as atol, so mtol affects only outliers.
    """
    exercise = registry.load(registry.find("transformer_block"))
    case = exercise.cases[1]
    inputs = generate_inputs(exercise, case, derive_seed(5, len(exercise.cases) + 1 + 1), "cpu", EXTREME)
    tolerance = exercise.tolerance["bfloat16"]
    outputs = transformer_block.step(*inputs)
    truths = expected_outputs(exercise, inputs)
    magnitudes = magnitudes_of(exercise, inputs)
    assert magnitudes is not None
    mismatches = [compare.mismatches(out, truth, tolerance) for out, truth in zip(outputs, truths, strict=True)]
    assert 0 < sum(int(mask.sum()) for mask in mismatches) < 10
    assert verdict(exercise.problem, inputs, outputs) is None
    for truth, magnitude in zip(truths, magnitudes(), strict=True):
        by_rms = tolerance.atol * compare.root_mean_square(truth)
        assert float((tolerance.mtol * magnitude).median()) < 0.5 * by_rms


def test_sensitivity_is_the_condition_of_a_difference() -> None:
    """With uniform noise in x and y, the error of x - y is u * sqrt((x^2 + y^2) / 3)."""
    x = torch.full((4000,), 300.0)
    y = torch.full((4000,), 400.0)
    (magnitude,) = sensitivity(lambda x, y: x.double() - y.double())(x, y)
    assert float(magnitude.square().mean().sqrt()) == pytest.approx(500 / math.sqrt(3), rel=0.02)
    assert torch.equal(magnitude, sensitivity(lambda x, y: x.double() - y.double())(x, y)[0])


def test_attention_may_round_its_probabilities_where_large_values_cancel() -> None:
    """The error from rounding p to bfloat16 is relative to sum(p * |v|), however small the output is."""
    rng = torch.Generator().manual_seed(3)
    q, k, v, causal = attention.inputs(rng, batch=1, heads=1, kv_heads=1, tokens=64, head=64, causal=False)
    v[..., :2, :] = torch.tensor([[800.0], [-800.0]])
    p = torch.softmax(q.double() @ k.double().mT / 8, -1)
    v[..., 1, :] = (-800 * p[0, 0, :, 0] / p[0, 0, :, 1]).mean()  # so that the two large values nearly cancel
    rounded = (p.bfloat16().double() @ v.double()).bfloat16()
    _, lse = attention.reference(q, k, v, causal)
    tolerance = attention.PROBLEM.tolerance["bfloat16"]
    (truth, _), (magnitude, _) = attention.reference(q, k, v, causal), attention.magnitudes(q, k, v, causal)
    assert verdict(attention.PROBLEM, [q, k, v, causal], [rounded, lse.float()]) is None
    coarse = ((p * 2**7).round() / 2**7 @ v.double()).bfloat16()  # probabilities of 7 bits below 1
    assert verdict(attention.PROBLEM, [q, k, v, causal], [coarse, lse.float()]) is Verdict.WRONG_VALUES
    assert float(magnitude.max()) > 10 * compare.root_mean_square(truth) * tolerance.atol


def float32_advantages(batch: grpo_loss.Inputs, *, in_one_pass: bool = False) -> torch.Tensor:
    """Return the advantages of the statement in float32, whose sums add one reward after another."""
    by_group = batch.rewards.view(-1, batch.group_size)

    def mean(values: torch.Tensor) -> torch.Tensor:
        total = torch.zeros_like(values[:, :1])
        for column in values.split(1, dim=1):
            total = total + column
        return total / values.shape[1]

    centered = by_group - mean(by_group)
    if in_one_pass:
        variance = (mean(by_group.square()) - mean(by_group).square()).clamp(min=0)
    else:
        variance = mean(centered.square())
    differ = (by_group != by_group[:, :1]).any(1, keepdim=True)
    return torch.where(differ, centered / (variance.sqrt() + grpo_loss.EPS), 0.0).flatten()


@pytest.mark.parametrize("seed", range(1, 11))
def test_grpo_passes_with_the_float32_mean_of_similar_rewards(seed: int) -> None:
    """The error of the mean reaches tokens whose ratio is clipped, and may select the ratio if the advantage is 0."""
    exercise = registry.load(registry.find("grpo_loss"))
    case = exercise.cases[2]
    for mode in (PLAIN, EXTREME):
        batch = grpo_loss.Inputs(*generate_inputs(exercise, case, seed, "cpu", mode))
        outputs = [output.float() for output in grpo_loss.losses(batch, float32_advantages(batch))]
        assert verdict(exercise.problem, batch, outputs) is None
    in_one_pass = grpo_loss.losses(batch, float32_advantages(batch, in_one_pass=True))
    assert verdict(exercise.problem, batch, [output.float() for output in in_one_pass]) is Verdict.WRONG_VALUES
    mean_of_equals = grpo_loss.equal_rewards_in_float32(*batch)
    assert verdict(exercise.problem, batch, [output.float() for output in mean_of_equals]) is Verdict.WRONG_VALUES


def test_grpo_lets_no_ratio_excuse_the_loss_of_a_token_that_is_clipped() -> None:
    """The ratio is e^20 and its clipped value 1.2, so the advantages 1 and -1 give errors that differ by e^20."""
    arguments = (torch.tensor([0]), torch.tensor([-20.0]), torch.tensor([0.0]), torch.ones(1, dtype=torch.uint8))
    logp, old_logp, ref_logp, mask = (tensor.repeat(2) for tensor in arguments)
    rewards = torch.tensor([3.0, 1.0])
    offsets = torch.tensor([0, 1, 2], dtype=torch.int32)
    loss, dlogp = grpo_loss.magnitudes(logp.float(), old_logp, ref_logp, mask, rewards, offsets, 2, 1, 0.2, 0.0)
    # (|reward| + |mean|) / deviation is 5 for the first answer and 3 for the second. There are 2 tokens.
    assert loss.tolist() == pytest.approx([1.2 * 5 / 2, math.exp(20) * 3 / 2], rel=1e-5)
    assert dlogp.tolist() == pytest.approx([0.0, math.exp(20) * 3 / 2], rel=1e-5)


@pytest.mark.parametrize("difference", [20.0, -20.0])
def test_grpo_may_clip_or_not_where_the_advantage_is_zero(difference: float) -> None:
    """The rewards 1, 2, 3 have the mean 2, and the sign of the second advantage depends on how the mean is rounded."""
    logp = torch.zeros(3)
    rewards = torch.tensor([1.0, 2.0, 3.0])
    offsets = torch.arange(4, dtype=torch.int32)
    mask = torch.ones(3, dtype=torch.uint8)
    loss, dlogp = grpo_loss.magnitudes(logp, logp - difference, logp, mask, rewards, offsets, 3, 1, 0.2, 0.0)
    terms = 4 / math.sqrt(2 / 3) / 3
    assert float(loss[1]) == pytest.approx(max(math.exp(difference), 0.8) * terms, rel=1e-5)
    assert float(dlogp[1]) == pytest.approx(math.exp(difference) * terms, rel=1e-5)


def losses_from_lse(
    logits: torch.Tensor, labels: torch.Tensor, ignore_index: int, *, lse_dtype: torch.dtype = torch.float32
) -> list[torch.Tensor]:
    """Return loss and gradient in float32 by way of log(sum of exp(logits)), which is rounded to a dtype."""
    top = logits.amax(1)
    lse = (top + (logits - top[:, None]).exp().sum(1).log()).to(lse_dtype).float()
    is_counted = labels != ignore_index
    is_class = is_counted & (labels >= 0) & (labels < logits.shape[1])
    place = torch.where(is_class, labels, 0)[:, None]
    otherwise = torch.where(is_counted, torch.nan, 0.0)
    loss = torch.where(is_class, lse - logits.gather(1, place)[:, 0], otherwise)
    share = torch.where(is_class, 1 / is_counted.sum().float(), otherwise)[:, None]
    gradient = (logits - lse[:, None]).exp().scatter_add(1, place, -torch.ones_like(share)) * share
    return [loss, gradient]


@pytest.mark.parametrize("seed", [3, 7, 10, 20])
def test_cross_entropy_passes_with_the_rounded_logarithm_of_logits_near_minus_1000(seed: int) -> None:
    """At the label of an almost certain row, the gradient is p - 1: about -0.006, of which 3e-5 is an error of 0.5%."""
    problem = cross_entropy.PROBLEM
    exercise = registry.load(registry.find("cross_entropy"))
    case = {"rows": 4100, "classes": 9, "dtype": "float32", "gradient": True}
    inputs = generate_inputs(exercise, case, derive_seed(seed, 17), "cpu", EXTREME)
    logits, labels, ignore_index, _ = inputs
    assert verdict(problem, inputs, losses_from_lse(logits, labels, ignore_index)) is None
    for dtype in (torch.bfloat16, torch.float16):
        rounded = losses_from_lse(logits, labels, ignore_index, lse_dtype=dtype)
        assert verdict(problem, inputs, rounded) is Verdict.WRONG_VALUES


def sum_one_by_one(terms: torch.Tensor) -> torch.Tensor:
    """Return the sum of each row, added from left to right in the dtype of the terms."""
    total = torch.zeros_like(terms[:, 0])
    for column in terms.unbind(1):
        total = total + column
    return total


def normalized(
    inputs: tuple[torch.Tensor, torch.Tensor, torch.Tensor, float], mean: torch.Tensor, variance: torch.Tensor
) -> list[torch.Tensor]:
    """Return layernorm's outputs in float32 from the mean and the variance of each row."""
    x, weight, bias, eps = inputs
    rstd = 1 / (variance + eps).sqrt()
    y = (x.float() - mean[:, None]) * rstd[:, None] * weight.float() + bias.float()
    return [y.to(x.dtype), mean, rstd]


def merged_statistics(x: torch.Tensor, block_columns: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return mean and variance of each row by Welford's method, which merges one block of columns after another."""
    count = 0
    mean, squares = torch.zeros(2, len(x))
    for block in x.float().split(block_columns, 1):
        columns = block.shape[1]
        block_mean = block.mean(1)
        difference = block_mean - mean
        count += columns
        mean = mean + difference * (columns / count)
        squares = squares + (block - block_mean[:, None]).square().sum(1)
        squares = squares + difference.square() * ((count - columns) * columns / count)
    return mean, squares / count


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_layer_norm_may_sum_in_any_order_but_not_subtract_squares(dtype: str) -> None:
    """In a row whose mean is 300 deviations, y has 300 times the relative error of the mean."""
    for seed in range(2):
        rng = torch.Generator().manual_seed(seed)
        inputs = layernorm.inputs(rng, rows=35, columns=2048, dtype=dtype)
        layernorm.extreme(rng, *inputs)
        x = inputs[0].float()
        mean = sum_one_by_one(x) / 2048
        centered = x - mean[:, None]
        outputs = normalized(inputs, mean, sum_one_by_one(centered * centered) / 2048)
        assert verdict(layernorm.PROBLEM, inputs, outputs) is None
        for block_columns in (32, 1024):
            outputs = normalized(inputs, *merged_statistics(x, block_columns))
            assert verdict(layernorm.PROBLEM, inputs, outputs) is None
        difference = (x * x).mean(1) - x.mean(1).square()
        outputs = normalized(inputs, x.mean(1), difference.clamp(min=0))
        assert verdict(layernorm.PROBLEM, inputs, outputs) is Verdict.WRONG_VALUES


def logits_after_their_maximum(rows: int, columns: int) -> torch.Tensor:
    """Return rows whose first logit is 17 above all others: the float32 exponentials are less than 2^-24 of its."""
    x = torch.zeros(rows, columns)
    x[:, 0] = 17.0
    return x


def test_a_softmax_may_add_exponentials_one_after_another() -> None:
    """All exponentials but the first are less than half a unit in the last place of the sum, which stays 1."""
    x = logits_after_their_maximum(2, 2048)
    dy = torch.linspace(1, 3, 2048).expand(2, 2048)
    e = (x - x.amax(1, keepdim=True)).exp()
    y = e / sum_one_by_one(e)[:, None]
    assert float(sum_one_by_one(e)[0]) == 1.0
    assert verdict(softmax.PROBLEM, [x], [y]) is None
    dx = y * (dy - sum_one_by_one(y * dy)[:, None])
    assert verdict(softmax_gradient.PROBLEM, [x, dy], [y, dx]) is None
    labels = torch.tensor([0, 1])
    loss = 17 - x.gather(1, labels[:, None])[:, 0]
    gradient = y.scatter_add(1, labels[:, None], -torch.ones(2, 1)) / 2
    assert verdict(cross_entropy.PROBLEM, [x, labels, -100, True], [loss, gradient]) is None
    assert verdict(softmax.PROBLEM, [x], [y * (1 + 2.0**-11)]) is Verdict.WRONG_VALUES


def test_a_norm_may_add_squares_one_after_another() -> None:
    x = torch.full((1, 2048), 1e-2)
    x[0, 0] = 100.0
    residual = torch.zeros_like(x)
    weight = torch.ones(2048)
    y = x / (sum_one_by_one(x * x) / 2048 + add_rmsnorm.EPS).sqrt()[:, None]
    assert verdict(add_rmsnorm.PROBLEM, [x, residual, weight], [y, x]) is None
    assert verdict(add_rmsnorm.PROBLEM, [x, residual, weight], [y * (1 + 2**-12), x]) is Verdict.WRONG_VALUES


def test_the_gradient_of_a_softmax_of_one_column_may_be_a_rounding_error() -> None:
    """y is exp(x) times a reciprocal, 1 - 2^-24, so that dx is 2^-24 of dy instead of 0."""
    x = torch.tensor([[1.5]])
    dy = torch.tensor([[3.0]])
    y = torch.tensor([[1 - 2.0**-24]])
    assert verdict(softmax_gradient.PROBLEM, [x, dy], [y, y * (dy - y * dy)]) is None
    assert verdict(softmax_gradient.PROBLEM, [x, dy], [y, 2.0**-10 * dy]) is Verdict.WRONG_VALUES


def test_a_single_element_may_be_off_by_the_rounding_of_its_terms() -> None:
    """x / 6 + 1 / 2 cancels near -3. An oscillator that passes 0 has the error of its amplitude. 1 + tanh cancels."""
    x = torch.tensor([[-2.98]])
    near_bend = x * (x * torch.tensor(1 / 6) + 0.5 + 2.0**-26)
    assert verdict(hardswish.PROBLEM, [x], [near_bend]) is None
    assert verdict(hardswish.PROBLEM, [x], [near_bend * (1 + 2.0**-12)]) is Verdict.WRONG_VALUES
    released = torch.linspace(0.5, 2, 4001)
    steps = torch.full((4001,), 40, dtype=torch.uint8)
    position = divergence.reference(released, steps)
    place = position.abs().argmin()
    problem = divergence.PROBLEM
    inputs = [released[place, None], steps[place, None]]
    off = position[place, None] + 1e-5 * released[place]
    assert verdict(problem, inputs, [off.float()]) is None
    assert verdict(problem, inputs, [(off + 1e-3).float()]) is Verdict.WRONG_VALUES
    x = torch.tensor([-3.5, 1.0])
    approximate = torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)) + 6e-6
    assert verdict(gelu.PROBLEM, [x, "tanh"], [0.5 * x * (1 + approximate)]) is None
    exact = gelu.reference(x, "none").float()
    assert verdict(gelu.PROBLEM, [x, "tanh"], [exact]) is Verdict.WRONG_VALUES


def test_a_single_element_of_an_exam_may_be_a_difference_of_its_sum_and_another_term() -> None:
    variant = next(variant for variant in matmul_twists.TWISTS if "bias_rows" in variant.name)
    a, b = torch.tensor([[100.1]]), torch.tensor([[3.3]])
    bias = -(a * b)[0] * (1 - 2.0**-17)
    inputs = [a, b, bias]
    out = a * b + bias
    assert verdict(variant.exercise.problem, inputs, [out]) is None
    assert verdict(variant.exercise.problem, inputs, [out + 2.0**-11 * a * b]) is Verdict.WRONG_VALUES
