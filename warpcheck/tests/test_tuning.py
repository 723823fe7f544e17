"""Test that a process uses the configuration and registers of a Triton kernel that a GPU has reported."""

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
def _reset_tuning() -> Iterator[None]:
    yield
    tuning.take(Chosen())


def make_autotuned_kernel() -> Any:
    """Return an autotuned kernel that has not run yet."""

    def double(x, n, BLOCK: tl.constexpr) -> None:  # type: ignore[no-untyped-def]
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(x + i, 2 * tl.load(x + i, mask=i < n), mask=i < n)

    return triton.autotune(CONFIGURATIONS, key=["n"], restore_value=["x"])(triton.jit(double))


def record_launches(kernel: Any) -> list[tuple[Any, ...]]:
    """Call the kernel, and return the arguments of each launch."""
    x = torch.ones(100)
    calls = []
    with frontends.observe(lambda launch: calls.append(launch.arguments)):
        kernel[lambda meta: (triton.cdiv(100, meta["BLOCK"]),)](x, 100)
    assert x.tolist() == [2.0] * 100
    return calls


def test_the_configuration_that_triton_chooses_is_recorded() -> None:
    kernel = make_autotuned_kernel()
    assert len(record_launches(kernel)) == 2, "expected a trial of the first configuration, and the launch itself"
    assert Tuned("double", "(100, 'torch.float32')", str(kernel.best_config)) in tuning.chosen().tuned


@pytest.mark.parametrize("configuration", CONFIGURATIONS, ids=str)
def test_a_reported_configuration_is_used_without_trials(configuration: Any) -> None:
    tuning.take(Chosen([Tuned("double", "(100, 'torch.float32')", str(configuration))]))
    kernel = make_autotuned_kernel()
    assert len(record_launches(kernel)) == 1
    assert kernel.best_config is configuration


def test_a_reported_configuration_must_be_one_of_the_kernels() -> None:
    tuning.take(Chosen([Tuned("double", "(100, 'torch.float32')", str(triton.Config({"BLOCK": 4096})))]))
    kernel = make_autotuned_kernel()
    assert len(record_launches(kernel)) == 2, "expected a trial of the first configuration, and the launch itself"


class OwnAutotuner(triton.runtime.Autotuner):  # type: ignore[misc]
    """An autotuner like that of FlagGems, which chooses among the configurations itself."""

    def run(self, *args: Any, **kwargs: Any) -> Any:
        self.nargs = dict(zip(self.arg_names, args, strict=False))
        times = [self._bench(*args, config=config, **kwargs)[0] for config in self.configs]
        self.best_config = self.configs[times.index(min(times))]
        return self.fn.run(*args, **kwargs, **self.best_config.all_kwargs())


def test_an_autotuner_with_its_own_run_tries_all_configurations() -> None:
    kernel = make_autotuned_kernel()
    own = OwnAutotuner(kernel.fn, kernel.arg_names, CONFIGURATIONS, ["n"], None, ["x"])
    assert len(record_launches(own)) == 4, "expected trials of all three configurations, and the launch itself"
    assert len(record_launches(own)) == 4


def test_reported_registers_replace_those_of_the_compiler() -> None:
    def compile_kernel(kernel: Any) -> Any:
        kernel_handle = kernel.fn.warmup(torch.ones(16), 16, BLOCK=32, num_warps=1, grid=(1,))
        kernel_handle._init_handles()
        return kernel_handle

    before = {entry.variant for entry in tuning.chosen().resources}
    first = compile_kernel(make_autotuned_kernel())
    (reported,) = [entry for entry in tuning.chosen().resources if entry.variant not in before]
    assert (reported.registers, reported.spills) == (first.n_regs, first.n_spills)
    tuning.take(Chosen(resources=[Resources(reported.variant, 77, 3)]))
    second = compile_kernel(make_autotuned_kernel())
    assert (second.n_regs, second.n_spills) == (77, 3)


def test_a_kernel_is_loaded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    names: list[str] = []

    def load_binary(driver: Any, name: str, *_: Any) -> tuple[None, None, int, int, int]:
        names.append(name)
        return None, None, 16, 0, 1024

    monkeypatch.setattr(lane._Driver, "load_binary", load_binary)
    kernel = make_autotuned_kernel().fn
    x = torch.ones(100)
    for _ in range(3):
        kernel[(1,)](x, 100, BLOCK=64, num_warps=1)
    assert names == ["double"]
    assert x.tolist() == [8.0] * 64 + [1.0] * 36
