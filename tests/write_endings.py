"""Grade a planted submission for each verdict and save the messages of the grader: `python -m tests.write_endings`.

This takes two minutes on the PTX machine. The page on verdicts shows the messages, and test_endings.py checks that they
are up to date.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from dataclasses import astuple, replace
from pathlib import Path

from kernelpath import packages
from kernelpath.course import registry
from kernelpath.course.registry import ExerciseRef, Tree
from kernelpath.files import write_atomically
from kernelpath.grading import grade, measure
from kernelpath.show import results, view
from kernelpath.show.endings import FILE, Ending
from kernelpath.verdict import Interval, Measurement, Verdict, encode
from tests import planted
from tests.planted import Planted

SEED = 1
# The planted submissions whose messages are saved, one per verdict.
PLANTED = (
    "w01b_vector_add/COMPILE_ERROR_missing_semicolon",
    "w01b_vector_add/CRASHED_second_operand_taken_as_aligned",
    "w01b_vector_add/TIMED_OUT_endless_kernel",
    "w01b_vector_add/WRONG_TYPE_in_place",
    "w17a_layout/WRONG_SHAPE_flat",
    "w13a_bias_relu/WRONG_DTYPE_float32_for_bfloat16",
    "w13a_bias_relu/WRONG_VALUES_relu_before_bias",
    "w01b_vector_add/NOT_WRITTEN_last_block_missing",
    "w01b_vector_add/MUTATED_INPUT_adds_into_x",
    "w01b_vector_add/OUT_OF_BOUNDS_no_guard",
    "w06b_histogram/UNINITIALIZED_shared_counters_not_zeroed",
    "w01a_hello_grid/RACE_block_index_forgotten",
    "w16b_all_reduce/DEADLOCK_everyone_sends_first",
    "w02c_stencil/BARRIER_threads_leave_before_it",
    "w07c_custom_operator/WRONG_OPERATOR_no_fake",
    "w01b_vector_add/NOT_YOUR_KERNEL_torch_add",
    "w01b_vector_add/ACCESS_DENIED_hunts_through_gc",
    "w01b_vector_add/TAMPERED_patched_clock",
    "w21b_wgmma_gemm/NO_TENSOR_CORES_multiplied_by_threads",
    "w21b_wgmma_gemm/NO_OVERLAP_everybody_waits",
    "w03c_transpose/TOO_MUCH_TRAFFIC_naive",
    "w13b_dropout/TOO_MUCH_MEMORY_mask_stored",
    "w06c_divergence/DIVERGENT_thread_for_each",
    "w07d_ptx/TOO_MANY_INSTRUCTIONS_never_wide",
    "w08d_repair_tiles/WRONG_DIAGNOSIS_race_taken_for_uninitialized",
    "w08d_repair_tiles/TOO_MANY_CHANGES_kernel_replaced_by_another",
)

# The exercise whose recorded times are changed for the verdicts on speed, because no GPU produces them on demand.
TIMED = "w03c_transpose"


def examples(root: Path, folder: Path) -> Iterator[tuple[Verdict, Ending]]:
    """Yield every verdict with an example. Raises AssertionError if a grading ends with another verdict.

    folder: the folder for patched files.
    """
    rejects = {reject.name: reject for reject in planted.rejects(root)}
    yield from ((rejects[name].verdict, grade_reject(rejects[name], folder)) for name in PLANTED)
    item = registry.find("vector_add", root)
    trees: dict[Verdict, Tree] = {Verdict.NOT_STARTED: "phases", Verdict.PASSED: "solutions"}
    for verdict, tree in trees.items():
        yield verdict, _grade(item, item.submission(tree), verdict, f"the file of {tree}/ as it comes")
    missing_package = re.sub(r"\S*/python", "python", packages.missing("triton"))
    yield Verdict.UNAVAILABLE, _make_ending(item, "Triton was not installed", Verdict.UNAVAILABLE, missing_package)
    yield from _bent_measurements(root)


def grade_reject(reject: Planted, folder: Path) -> Ending:
    """Return the grader's messages for a planted submission. Raises AssertionError if it gets another verdict.

    folder: the folder for patched files.
    """
    description = re.sub(
        r"^(\w\d+, )?(an accident[\w ]*: |\w\d+: )?", "", " ".join(reject.why.split()), flags=re.IGNORECASE
    )
    description = re.sub(r"( \([^()]*\))?\.?$", "", description)  # a trailing parenthesis cites a source
    return _grade(registry.find(reject.exercise, reject.root), reject.submission(folder), reject.verdict, description)


def _grade(item: ExerciseRef, submission: Path, verdict: Verdict, submitted: str) -> Ending:
    """Grade a submission and replace its path in the messages by that of the learner's file."""
    report = grade.grade(item, submission, device="cpu", seed=SEED, brief=True)
    assert report.verdict is verdict, f"{submission}: {report.verdict.value}, {report.cause}"
    where, source = view.source_location(report, item.root)

    def own(text: str) -> str:
        return re.sub(rf"[^\s,]*/{re.escape(submission.stem)}(?=\.)", f"phases/{item.path_id}", text)

    cause = report.cause or verdict.meaning
    return Ending(item.name, submitted, own(cause), own(where), source, own(report.next_step))


def _bent_measurements(root: Path) -> Iterator[tuple[Verdict, Ending]]:
    """Yield the verdicts on speed for a recorded measurement whose times are changed."""
    item = registry.find(TIMED, root)
    report = next(
        report for machine in results.machines(root) for report in machine.timed if report.exercise == item.path_id
    )
    measured = report.measurement
    assert measured is not None
    required = registry.load(item).min_speedup
    fast = replace(measured, seconds=measured.light_seconds / 2)
    for verdict, description, changed in (
        (Verdict.TOO_SLOW, "half of the required speed", _with_speedup(measured, 0.5 * required, 0.01)),
        (Verdict.INCONCLUSIVE, "a speed at the gate, in noise", _with_speedup(measured, required, 0.2)),
        (
            Verdict.TOO_FAST,
            "half of the time that the bytes take",
            fast,
        ),
    ):
        finding = measure.check_time(changed, required)
        assert finding is not None
        assert finding.verdict is verdict, finding
        yield verdict, _make_ending(item, f"a recorded measurement, bent to {description}", verdict, finding.cause)


def _with_speedup(measured: Measurement, speedup: float, noise: float) -> Measurement:
    # The reference kernel keeps its time, so the ratio to it changes by the same factor.
    factor = speedup / measured.speedup.median
    of_reference = measured.of_reference and Interval(*(factor * ratio for ratio in astuple(measured.of_reference)))
    interval = Interval(speedup, (1 - noise) * speedup, (1 + noise) * speedup)
    return replace(measured, speedup=interval, of_reference=of_reference)


def _make_ending(item: ExerciseRef, submitted: str, verdict: Verdict, cause: str) -> Ending:
    step = verdict.then.format(
        file=f"phases/{item.path_id}.py", name=item.name, seed=SEED, check=f"kp check {item.name}"
    )
    return Ending(item.name, submitted, cause, "", "", step)


def write(root: Path) -> None:
    """Write the examples in the order of the verdicts."""
    with tempfile.TemporaryDirectory() as folder:
        endings = dict(examples(root, Path(folder)))
    endings_in_order = {verdict: endings[verdict] for verdict in Verdict}
    write_atomically(root / FILE, encode(endings_in_order, indent=1) + "\n")


if __name__ == "__main__":
    write(registry.root())
