"""Test the control kernels that grade a contributed test, and the comparison of its declared fault."""

from __future__ import annotations

from types import ModuleType

import pytest

from kernelpath.course import registry
from kernelpath.device import messages as device
from kernelpath.verdict import Finding, Verdict

PUBLISHED = """
template <typename T>
__device__ T twice(T x) { return 2 * x; }

__global__ void scale(float* x, int n) {  // scale(x) { x[0] = 0; }
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i <= n) {
        x[i] = twice(x[i]);
    }
}
"""
FIXED = PUBLISHED.replace("i <= n", "i < n")


@pytest.fixture(scope="module")
def upstream() -> ModuleType:
    return registry.import_file(registry.find("upstream").grader, "kernelpath_grader_of_test_upstream", listed=False)


def create_controls(upstream: ModuleType, fixed: str = FIXED, kernel: str = "scale") -> dict[str, tuple[str, bool]]:
    created_controls = upstream._controls(PUBLISHED, fixed, kernel)
    return {control.description: (" ".join(control.source.split()), control.is_right) for control in created_controls}


def test_negative_controls_remove_or_change_the_work_of_the_kernel(upstream: ModuleType) -> None:
    descriptions = create_controls(upstream)
    source, is_right = descriptions["a scale that does nothing"]
    assert source.endswith("__global__ void scale(float* x, int n) {}")
    assert "twice(T x) { return 2 * x; }" in source
    assert not is_right
    source, is_right = descriptions["a scale that stores other values"]
    assert "x[i] = 2 * (twice(x[i])) + 1;" in source
    assert "if (i < n) {" in source
    assert not is_right


def test_controls_have_small_changes_and_changes_in_one_block(upstream: ModuleType) -> None:
    all_controls = create_controls(upstream)
    source, is_right = all_controls["a scale that stores other values in one of its blocks"]
    assert "x[i] = blockIdx.x == (gridDim.x - 1) / 2 ? 2 * (twice(x[i])) + 1 : (twice(x[i]));" in source
    assert not is_right
    source, is_right = all_controls["a scale that stores floats that are a quarter too large"]
    assert "x[i] = 1.25f * (twice(x[i])) + 0.0625f;" in source
    assert not is_right


def test_integers_are_not_changed_by_a_quarter(upstream: ModuleType) -> None:
    """A quarter of a small integer is 0, and the kernel would be right."""
    fixed = "__global__ void scale(int* x, float* y, int n) { x[0] = n; y[0] = 1.0f; }"
    (source, _) = create_controls(upstream, fixed)["a scale that stores floats that are a quarter too large"]
    assert source.endswith("{ x[0] = n; y[0] = 1.25f * (1.0f) + 0.0625f; }")
    without_floats = fixed.replace("float* y", "int* y")
    assert "a scale that stores floats that are a quarter too large" not in create_controls(upstream, without_floats)


def test_controls_contain_both_versions_in_either_order(upstream: ModuleType) -> None:
    texts = [(source, is_right) for name, (source, is_right) in create_controls(upstream).items() if "#if 0" in name]
    assert [is_right for _, is_right in texts] == [True, False]
    assert all("i <= n" in source and "i < n" in source for source, _ in texts)


def test_kernels_that_only_use_atomics_have_no_stores_to_change(upstream: ModuleType) -> None:
    fixed = "__global__ void scale(float* x, int n) { if (x[0] == 1.0f) atomicAdd(&x[0], 1.0f); }"
    assert "a scale that stores other values" not in create_controls(upstream, fixed)


@pytest.mark.parametrize("kernel", ["normalization_kernel", "fused_residual_forward2"])
def test_the_course_has_right_and_wrong_versions(upstream: ModuleType, kernel: str) -> None:
    versions = upstream.OWN_VERSIONS[kernel]
    assert [version.is_right for version in versions] == [True, False, False]
    assert len({version.source for version in versions}) == len(versions)
    assert not any("GUARD" in version.source or "SHIFT" in version.source for version in versions)


def failed_run(upstream: ModuleType, kind: str, text: str, line: int = 7, kernel: str = "scale") -> object:
    return upstream._TestRun(Finding(Verdict.CRASHED, text), device.Failed(kind, text, kernel, "scale.cu", line), ())


RACE = "thread 0 writes 4 bytes at slot[0], which thread 1 reads in line 14 with no barrier between them"


@pytest.mark.parametrize(
    ("kind", "line", "kernel", "cause"),
    [
        ("Race", 7, "scale", ""),
        ("Race", 14, "scale", ""),
        ("Race", 4, "scale", "FAULT names line 4; the fault is in line 7"),
        ("Deadlock", 7, "scale", "FAULT names Deadlock"),
        ("Race", 7, "copy", "FAULT names copy; the fault is in scale"),
    ],
)
def test_the_declared_fault_is_compared_with_the_observed_one(
    upstream: ModuleType, kind: str, line: int, kernel: str, cause: str
) -> None:
    finding = upstream._compare_fault(failed_run(upstream, "RACE", RACE), upstream.Fault(kernel, kind, line))
    assert (finding.cause if finding else "").startswith(cause)
    assert (finding is None) == (not cause)


def test_wrong_values_are_a_failed_assertion_without_a_fault(upstream: ModuleType) -> None:
    fault = upstream.Fault("scale", "WrongValues", 7)
    assert upstream._compare_fault(upstream._TestRun(Finding(Verdict.CRASHED, "AssertionError: off")), fault) is None
    error = Finding(Verdict.CRASHED, "TypeError: no such argument")
    assert upstream._compare_fault(upstream._TestRun(error), fault) is error
    assert upstream._compare_fault(failed_run(upstream, "RACE", RACE), fault).verdict is Verdict.WRONG_DIAGNOSIS


def test_every_fault_of_the_machine_has_a_name(upstream: ModuleType) -> None:
    from kernelpath.grading.repair import FAULTS

    assert set(upstream._FAULT_NAMES.values()) | {"WrongValues"} == set(FAULTS)
