"""Test the reference kernels for other GPU models: the record of all obstacles, and some kernels compiled again."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kernelpath.course import registry
from kernelpath.course.registry import ExerciseRef
from kernelpath.dev import cards
from kernelpath.show import docs, results
from kernelpath.verdict import encode
from tests import executed_reference, fresh_process
from warpcheck.target import MULTIPROCESSORS

ROOT = registry.root()
EXERCISES = {item.name: registry.load(item) for item in registry.exercises()}
KERNELS = {name: exercise for name, exercise in EXERCISES.items() if exercise.runs_on_gpu}


def find_obstacles(item: ExerciseRef, *architectures: str, timed: bool = False) -> dict[str, str]:
    """Return the obstacles of a kernel by architecture, from a process that has no threads before it forks."""
    # The reference is copied, because a used one holds a re.Match, which cannot be pickled.
    return fresh_process.call(cards.obstacles, ExerciseRef(item.root, item.path_id), architectures, timed)


def test_every_recorded_obstacle_is_a_requirement() -> None:
    recorded_obstacles = results.cards(ROOT).obstacles
    assert set(recorded_obstacles) == set(KERNELS)
    reasons = {reason for obstacles in recorded_obstacles.values() for reason in obstacles.values()}
    assert {reason.partition(" sm_")[0] for reason in reasons} == {"requires"}


@pytest.mark.parametrize("architecture", MULTIPROCESSORS)
def test_the_record_agrees_with_the_declarations(architecture: str) -> None:
    """A kernel compiles for a GPU model exactly if its declared requirements are met."""
    capability = divmod(int(architecture.removeprefix("sm_")), 10)
    for name, obstacles in results.cards(ROOT).obstacles.items():
        needed = KERNELS[name].requires or (0, 0)
        specific = KERNELS[name].specific
        required = capability < needed or (specific and capability != needed)
        assert obstacles.get(architecture, "").startswith("requires sm_") == required, name


@pytest.mark.parametrize(
    ("name", "architectures"), [("vector_add", ("sm_75", "sm_120")), ("bias_relu", ("sm_75", "sm_120"))]
)
def test_a_reference_kernel_compiles_for_the_oldest_and_the_newest(name: str, architectures: tuple[str, ...]) -> None:
    assert find_obstacles(registry.find(name), *architectures) == {}


def test_the_tile_of_a_reference_fits_the_gpu_model() -> None:
    """The largest tile takes 144 KiB, and sm_86 gives a block 99 KiB, so a smaller tile must be chosen."""
    assert find_obstacles(registry.find("tensor_cores"), "sm_75", "sm_86", timed=True) == {"sm_75": "requires sm_80"}


def execute_reference(name: str, architecture: str, case: dict[str, object]) -> tuple[str | None, int]:
    """Return the error in a reference's outputs on the PTX machine, or None, and its largest shared memory."""
    return fresh_process.call(executed_reference.execute, name, architecture, case)


@pytest.mark.parametrize(
    ("name", "architecture", "case"),
    [
        ("fused_softmax", "sm_86", {"rows": 3, "columns": 20_480, "dtype": "bfloat16"}),
        ("matmul_persistent", "sm_90", {"m": 65, "n": 136, "k": 520, "dtype": "float16", "layout": "nt"}),
        ("gemm_epilogue", "sm_90", {"m": 65, "n": 136, "k": 520, "dtype": "bfloat16"}),
        ("paged_decode", "sm_86", {"lengths": "70+3", "page": 1, "heads": 2, "kv_heads": 1, "head": 256}),
        ("swiglu", "sm_90", {"m": 65, "n": 136, "k": 520, "dtype": "bfloat16", "backward": False}),
    ],
)
def test_a_reference_with_fewer_stages_is_correct(name: str, architecture: str, case: dict[str, object]) -> None:
    """The PTX machine gives a block 99 KiB here, in which the number of stages for an A100 or H200 does not fit."""
    error, shared_bytes = execute_reference(name, architecture, case)
    assert error is None
    assert 64 << 10 < shared_bytes <= 99 << 10


ATTENTION = {"heads": 2, "kv_heads": 1, "head": 64, "dtype": "float16"}


@pytest.mark.parametrize(
    ("name", "case"),
    [
        ("long_context", {**ATTENTION, "lengths": "33+31+0+1"}),
        ("paged_decode", {**ATTENTION, "lengths": "63+64+65", "page": 16}),
    ],
)
def test_triton_kernels_for_turing_are_correct(name: str, case: dict[str, object]) -> None:
    """Triton uses no tensor cores for Turing. We have no such GPU, but the PTX machine runs PTX for sm_75."""
    error, shared_bytes = execute_reference(name, "sm_75", case)
    assert error is None
    assert 0 < shared_bytes <= 64 << 10


def copy_exercise(item: ExerciseRef, target: Path) -> ExerciseRef:
    for path in (item.declaration, item.lesson, *item.files("solutions"), *item.files("expert")):
        copy = target / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    return ExerciseRef(target, item.path_id)


def test_a_launch_with_too_much_shared_memory_is_an_obstacle(tmp_path: Path) -> None:
    item = copy_exercise(registry.find("vector_add"), tmp_path)
    launch = item.solution.read_text(encoding="utf-8")
    item.solution.write_text(launch.replace("[blocks, THREADS]", "[blocks, THREADS, 120 << 10]"), encoding="utf-8")
    assert find_obstacles(item, "sm_75", "sm_80", "sm_86") == {
        "sm_75": "requires 120 KiB of shared memory in a block",
        "sm_86": "requires 120 KiB of shared memory in a block",
    }


def test_a_ptxas_error_is_an_obstacle(tmp_path: Path) -> None:
    item = copy_exercise(registry.find("vector_add"), tmp_path)
    source = item.solution.with_suffix(".cu")
    text = source.read_text(encoding="utf-8")
    head, brace, body = text.partition("{")
    while "__global__" not in head:
        inner, brace, body = body.partition("{")
        head += "{" + inner
    source.write_text(f'{head}{brace}\n    asm volatile("cp.async.wait_all;");\n{body}', encoding="utf-8")
    obstacles = find_obstacles(item, "sm_75", "sm_80")
    assert list(obstacles) == ["sm_75"]
    assert "sm_80 or higher" in obstacles["sm_75"]


def test_a_gpu_model_has_the_limits_of_its_architecture() -> None:
    turing = cards.target("sm_75")
    hopper = cards.target("sm_90")
    assert (turing.shared, turing.cluster, turing.name) == (64 << 10, 0, "sm_75")
    assert (hopper.shared, hopper.cluster, hopper.name) == (227 << 10, 8, "sm_90a")
    assert cards.properties(cards.target("sm_89"))["shared_memory_per_block_optin"] == 99 << 10


def test_the_table_groups_kernels_by_requirement(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    record = results.Cards({}, {"add": {}, "mma": {"sm_75": "requires sm_80"}, "wmma": {"sm_75": "requires sm_80"}})
    (tmp_path / "results" / "cards.json").write_text(encode(record))
    rows = list(docs.cards(tmp_path))[2:]
    assert rows[0] == "| `sm_75` | T4, RTX 20 | 1 of 3 | requires sm_80: `mma`, `wmma` |"
    assert rows[1] == "| `sm_80` | A100 | 3 of 3 | none |"
    assert set(docs.CARDS) == set(MULTIPROCESSORS)
