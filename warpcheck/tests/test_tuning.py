"""What a GPU has decided about a Triton kernel holds where it is told: its configuration and its registers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from warpcheck import frontends
from warpcheck.frontends import triton as lane
from warpcheck.frontends import tuning
from warpcheck.frontends.tuning import Chosen, Resources, Tuned

lane.activate("cpu")

CONFIGURATIONS = [triton.Config({"BLOCK": block}, num_warps=1) for block in (32, 64, 128)]


@pytest.fixture(autouse=True)
def nothing_told() -> Iterator[None]:
    yield
    tuning.take(Chosen())


def tuned() -> Any:
    """An autotuned kernel that has run nothing yet."""

    def double(x, n, BLOCK: tl.constexpr) -> None:  # type: ignore[no-untyped-def]
        place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(x + place, 2 * tl.load(x + place, mask=place < n), mask=place < n)

    return triton.autotune(CONFIGURATIONS, key=["n"], restore_value=["x"])(triton.jit(double))


def launched(kernel: Any) -> list[tuple[Any, ...]]:
    """The arguments of every launch of a call."""
    x, calls = torch.ones(100), []
    with frontends.observe(lambda launch: calls.append(launch.arguments)):
        kernel[lambda meta: (triton.cdiv(100, meta["BLOCK"]),)](x, 100)
    assert x.tolist() == [2.0] * 100
    return calls


def test_what_triton_has_found_is_noted() -> None:
    kernel = tuned()
    assert len(launched(kernel)) == 2, "the first was tried, then it ran"
    assert Tuned("double", "(100, 'torch.float32')", str(kernel.best_config)) in tuning.chosen().tuned


@pytest.mark.parametrize("configuration", CONFIGURATIONS, ids=str)
def test_a_told_configuration_is_taken_and_none_is_tried(configuration: Any) -> None:
    tuning.take(Chosen([Tuned("double", "(100, 'torch.float32')", str(configuration))]))
    kernel = tuned()
    assert len(launched(kernel)) == 1
    assert kernel.best_config is configuration


def test_a_configuration_that_is_not_the_kernels_own_is_not_taken() -> None:
    tuning.take(Chosen([Tuned("double", "(100, 'torch.float32')", str(triton.Config({"BLOCK": 4096})))]))
    kernel = tuned()
    assert len(launched(kernel)) == 2, "the first was tried, then it ran"


class OwnAutotuner(triton.runtime.Autotuner):  # type: ignore[misc]
    """An autotuner that chooses among the configurations itself, as FlagGems has one."""

    def run(self, *args: Any, **kwargs: Any) -> Any:
        self.nargs = dict(zip(self.arg_names, args, strict=False))
        times = [self._bench(*args, config=config, **kwargs)[0] for config in self.configs]
        self.best_config = self.configs[times.index(min(times))]
        return self.fn.run(*args, **kwargs, **self.best_config.all_kwargs())


def test_an_autotuner_with_a_run_of_its_own_tries_all_configurations() -> None:
    kernel = tuned()
    own = OwnAutotuner(kernel.fn, kernel.arg_names, CONFIGURATIONS, ["n"], None, ["x"])
    assert len(launched(own)) == 4, "each of three was tried, then the first ran"
    assert len(launched(own)) == 4


def test_told_registers_are_seen() -> None:
    def compiled(kernel: Any) -> Any:
        found = kernel.fn.warmup(torch.ones(16), 16, BLOCK=32, num_warps=1, grid=(1,))
        found._init_handles()
        return found

    before = {one.variant for one in tuning.chosen().resources}
    first = compiled(tuned())
    (noted,) = [one for one in tuning.chosen().resources if one.variant not in before]
    assert (noted.registers, noted.spills) == (first.n_regs, first.n_spills)
    tuning.take(Chosen(resources=[Resources(noted.variant, 77, 3)]))
    again = compiled(tuned())
    assert (again.n_regs, again.n_spills) == (77, 3)


def test_a_kernel_is_loaded_at_its_first_launch_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    names: list[str] = []

    def load_binary(driver: Any, name: str, *_: Any) -> tuple[None, None, int, int, int]:
        names.append(name)
        return None, None, 16, 0, 1024

    monkeypatch.setattr(lane._Driver, "load_binary", load_binary)
    kernel = tuned().fn
    x = torch.ones(100)
    for _ in range(3):
        kernel[(1,)](x, 100, BLOCK=64, num_warps=1)
    assert names == ["double"]
    assert x.tolist() == [8.0] * 64 + [1.0] * 36
