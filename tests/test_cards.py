"""The reference kernels for cards that are not here: the record of all of them, and some compiled again."""

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
DECLARED = {item.name: registry.load(item) for item in registry.exercises()}
KERNELS = {name: exercise for name, exercise in DECLARED.items() if exercise.runs_on_gpu}


def compiled(item: ExerciseRef, *architectures: str, timed: bool = False) -> dict[str, str]:
    """Obstacles, in a process that has no threads before it forks."""
    # A new object: one that was used holds a re.Match, which cannot be pickled.
    return fresh_process.call(cards.obstacles, ExerciseRef(item.root, item.path_id), architectures, timed)


def test_the_record_has_a_requirement_for_each_reference_kernel_that_does_not_compile() -> None:
    recorded = results.cards(ROOT).obstacles
    assert set(recorded) == set(KERNELS)
    reasons = {reason for found in recorded.values() for reason in found.values()}
    assert {reason.partition(" sm_")[0] for reason in reasons} == {"requires"}


@pytest.mark.parametrize("architecture", MULTIPROCESSORS)
def test_the_record_agrees_with_what_is_declared(architecture: str) -> None:
    """A kernel that requires no more than a card has compiles for it."""
    capability = divmod(int(architecture.removeprefix("sm_")), 10)
    for name, found in results.cards(ROOT).obstacles.items():
        needed, specific = KERNELS[name].requires or (0, 0), KERNELS[name].specific
        required = capability < needed or (specific and capability != needed)
        assert found.get(architecture, "").startswith("requires sm_") == required, name


@pytest.mark.parametrize(
    ("name", "architectures"), [("vector_add", ("sm_75", "sm_120")), ("bias_relu", ("sm_75", "sm_120"))]
)
def test_a_reference_kernel_compiles_for_the_oldest_and_the_newest(name: str, architectures: tuple[str, ...]) -> None:
    assert compiled(registry.find(name), *architectures) == {}


def test_the_tile_of_a_reference_fits_the_card() -> None:
    """The largest takes 144 KiB, and a block has 99 KiB on sm_86."""
    assert compiled(registry.find("tensor_cores"), "sm_75", "sm_86", timed=True) == {"sm_75": "requires sm_80"}


def executed(name: str, architecture: str, case: dict[str, object]) -> tuple[str | None, int]:
    """What is wrong with a reference's outputs on the PTX machine, and the most shared memory of its launches."""
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
def test_with_fewer_stages_a_reference_is_as_right(name: str, architecture: str, case: dict[str, object]) -> None:
    """On the PTX machine, told that a block has 99 KiB: as many stages as on an A100 or H200 take more."""
    wrong, shared = executed(name, architecture, case)
    assert wrong is None
    assert 64 << 10 < shared <= 99 << 10


ATTENTION = {"heads": 2, "kv_heads": 1, "head": 64, "dtype": "float16"}


@pytest.mark.parametrize(
    ("name", "case"),
    [
        ("long_context", {**ATTENTION, "lengths": "33+31+0+1"}),
        ("paged_decode", {**ATTENTION, "lengths": "63+64+65", "page": 16}),
    ],
)
def test_what_triton_makes_for_turing_is_right(name: str, case: dict[str, object]) -> None:
    """Without tensor cores, in float16: no GPU of ours shows it, but the machine runs PTX for sm_75 too."""
    wrong, shared = executed(name, "sm_75", case)
    assert wrong is None
    assert 0 < shared <= 64 << 10


def copied(item: ExerciseRef, to: Path) -> ExerciseRef:
    for path in (item.declaration, item.lesson, *item.files("solutions"), *item.files("expert")):
        copy = to / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    return ExerciseRef(to, item.path_id)


def test_a_launch_that_a_card_refuses_is_told_with_what_it_asks_for(tmp_path: Path) -> None:
    item = copied(registry.find("vector_add"), tmp_path)
    launch = item.solution.read_text(encoding="utf-8")
    item.solution.write_text(launch.replace("[blocks, THREADS]", "[blocks, THREADS, 120 << 10]"), encoding="utf-8")
    assert compiled(item, "sm_75", "sm_80", "sm_86") == {
        "sm_75": "requires 120 KiB of shared memory in a block",
        "sm_86": "requires 120 KiB of shared memory in a block",
    }


def test_what_ptxas_refuses_is_told(tmp_path: Path) -> None:
    item = copied(registry.find("vector_add"), tmp_path)
    source = item.solution.with_suffix(".cu")
    text = source.read_text(encoding="utf-8")
    head, brace, body = text.partition("{")
    while "__global__" not in head:
        more, brace, body = body.partition("{")
        head += "{" + more
    source.write_text(f'{head}{brace}\n    asm volatile("cp.async.wait_all;");\n{body}', encoding="utf-8")
    found = compiled(item, "sm_75", "sm_80")
    assert list(found) == ["sm_75"]
    assert "sm_80 or higher" in found["sm_75"]


def test_a_card_has_the_limits_of_its_architecture() -> None:
    turing, hopper = cards.target("sm_75"), cards.target("sm_90")
    assert (turing.shared, turing.cluster, turing.name) == (64 << 10, 0, "sm_75")
    assert (hopper.shared, hopper.cluster, hopper.name) == (227 << 10, 8, "sm_90a")
    assert cards.properties(cards.target("sm_89"))["shared_memory_per_block_optin"] == 99 << 10


def test_the_table_groups_the_kernels_by_what_they_require(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    recorded = results.Cards({}, {"add": {}, "mma": {"sm_75": "requires sm_80"}, "wmma": {"sm_75": "requires sm_80"}})
    (tmp_path / "results" / "cards.json").write_text(encode(recorded))
    rows = list(docs.cards(tmp_path))[2:]
    assert rows[0] == "| `sm_75` | T4, RTX 20 | 1 of 3 | requires sm_80: `mma`, `wmma` |"
    assert rows[1] == "| `sm_80` | A100 | 3 of 3 | none |"
    assert set(docs.CARDS) == set(MULTIPROCESSORS)
