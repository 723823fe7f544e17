"""Grade a planted submission for each verdict and keep what the grader said: `python -m tests.write_endings`.

Two minutes on the PTX machine. The page on verdicts shows the messages; the tests of the rejects hold them to today's.
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
# The rejects whose messages are kept, one a verdict.
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

# The exercise whose times on a GPU are bent for the verdicts on speed, which no machine gives on demand.
TIMED = "w03c_transpose"


def examples(root: Path, folder: Path) -> Iterator[tuple[Verdict, Ending]]:
    """Every verdict with an example. folder: for patched files. Raises AssertionError where one ends otherwise."""
    rejects = {reject.name: reject for reject in planted.rejects(root)}
    yield from ((rejects[name].verdict, of_reject(rejects[name], folder)) for name in PLANTED)
    item = registry.find("vector_add", root)
    trees: dict[Verdict, Tree] = {Verdict.NOT_STARTED: "phases", Verdict.PASSED: "solutions"}
    for verdict, tree in trees.items():
        yield verdict, _graded(item, item.submission(tree), verdict, f"the file of {tree}/ as it comes")
    missing = re.sub(r"\S*/python", "python", packages.missing("triton"))
    yield Verdict.UNAVAILABLE, _told(item, "Triton was not installed", Verdict.UNAVAILABLE, missing)
    yield from _bent(root)


def of_reject(reject: Planted, folder: Path) -> Ending:
    """What the grader says of one. folder: for patched files. Raises AssertionError where it ends otherwise."""
    wrong = re.sub(r"^(\w\d+, )?(an accident[\w ]*: |\w\d+: )?", "", " ".join(reject.why.split()), flags=re.IGNORECASE)
    wrong = re.sub(r"( \([^()]*\))?\.?$", "", wrong)  # where it was seen first
    return _graded(registry.find(reject.exercise, reject.root), reject.submission(folder), reject.verdict, wrong)


def _graded(item: ExerciseRef, submission: Path, verdict: Verdict, submitted: str) -> Ending:
    """Places are told as if the learner's own file had been graded."""
    report = grade.grade(item, submission, device="cpu", seed=SEED, brief=True)
    assert report.verdict is verdict, f"{submission}: {report.verdict.value}, {report.cause}"
    where, source = view.source_location(report, item.root)

    def own(text: str) -> str:
        return re.sub(rf"[^\s,]*/{re.escape(submission.stem)}(?=\.)", f"phases/{item.path_id}", text)

    cause = report.cause or verdict.meaning
    return Ending(item.name, submitted, own(cause), own(where), source, own(report.next_step))


def _bent(root: Path) -> Iterator[tuple[Verdict, Ending]]:
    """The verdicts on speed, for a recorded measurement whose times are bent."""
    item = registry.find(TIMED, root)
    report = next(one for machine in results.machines(root) for one in machine.timed if one.exercise == item.path_id)
    measured = report.measurement
    assert measured is not None
    required = registry.load(item).min_speedup
    fast = replace(measured, seconds=measured.light_seconds / 2)
    for verdict, told, bent in (
        (Verdict.TOO_SLOW, "half of the required speed", _at(measured, 0.5 * required, 0.01)),
        (Verdict.INCONCLUSIVE, "a speed at the gate, in noise", _at(measured, required, 0.2)),
        (
            Verdict.TOO_FAST,
            "half of the time that the bytes take",
            fast,
        ),
    ):
        finding = measure.check_time(bent, required)
        assert finding is not None
        assert finding.verdict is verdict, finding
        yield verdict, _told(item, f"a recorded measurement, bent to {told}", verdict, finding.cause)


def _at(measured: Measurement, speedup: float, noise: float) -> Measurement:
    # The reference kernel keeps its time, so the ratio to it changes by the same factor.
    factor = speedup / measured.speedup.median
    of_reference = measured.of_reference and Interval(*(factor * ratio for ratio in astuple(measured.of_reference)))
    interval = Interval(speedup, (1 - noise) * speedup, (1 + noise) * speedup)
    return replace(measured, speedup=interval, of_reference=of_reference)


def _told(item: ExerciseRef, submitted: str, verdict: Verdict, cause: str) -> Ending:
    step = verdict.then.format(
        file=f"phases/{item.path_id}.py", name=item.name, seed=SEED, check=f"kp check {item.name}"
    )
    return Ending(item.name, submitted, cause, "", "", step)


def write(root: Path) -> None:
    """Keep the examples, in the order of the verdicts."""
    with tempfile.TemporaryDirectory() as folder:
        found = dict(examples(root, Path(folder)))
    kept_in_order = {verdict: found[verdict] for verdict in Verdict}
    write_atomically(root / FILE, encode(kept_in_order, indent=1) + "\n")


if __name__ == "__main__":
    write(registry.root())
