"""What checkpoints declare: numbers that are drawn, prompts with rubrics, kernels to be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelpath.course import checkpoint, registry
from kernelpath.course.checkpoint import Checkpoint, Numbers, Posed, Twist
from kernelpath.course.errors import DeclarationError
from kernelpath.dev import invariants
from kernelpath.exam import questions, reading
from kernelpath.exam.reading import Ran

EXAMS = [questions.find(int(path.parent.name[0])) for path in sorted(registry.root().glob("checks/*/checkpoint.py"))]
POSED = [pytest.param(one, id=one.name) for exam in EXAMS for one in exam.declared.questions]

ASKED = """\
## Week 1: lanes

How many lanes have {warps} warps?

Answer: {lanes} within 1 %

Why: 32 * {warps}

## Written: essay

Say why.

Rubric:

- 2 points: the cause,
  and its test.
- 1 point: the line.
"""
NUMBERS = Numbers({"warps": (2, 3, 4)}, lambda warps: {"lanes": 32 * warps}, unless=lambda warps: warps == 3)
TWISTS = (Twist("one", registry.load(registry.find("matmul_tiled")), {}),)


def declared(path: Path, text: str, **fields: object) -> Checkpoint:
    path.write_text(text)
    return checkpoint.read(path, Checkpoint("double", TWISTS, **fields))  # type: ignore[arg-type]


def test_a_question_is_read_with_its_numbers(tmp_path: Path) -> None:
    found = declared(tmp_path / "checkpoint.md", ASKED, numbers={"lanes": NUMBERS})
    (posed,) = found.questions
    assert [(one.ask, one.answer) for one in posed.every()] == [
        ("How many lanes have 2 warps?", 64),
        ("How many lanes have 4 warps?", 128),
    ]
    assert {posed.drawn(seed).answer for seed in range(20)} == {64, 128}
    (prompt,) = found.prompts
    assert (prompt.ask, prompt.points) == ("Say why.", 3)
    assert [one.text for one in prompt.rubric] == ["the cause, and its test.", "the line."]


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("## Week 1: lanes", "## Week one", r':1: "## Week one" is not expected here; .*"## Week 3: name_of'),
        ("{warps} warps?", "{warp} warps?", "'warp'.* is not one of warps, lanes of lanes"),
        ("Answer: {lanes}", "Answer: {warps}x", "could not convert"),
        ("Rubric:", "Points:", 'a prompt is followed by "Rubric:"'),
        ("- 1 point: the line.", "- one point", 'a prompt is followed by "Rubric:"'),
        ("Week 1: lanes", "Week 1: other", "no question is named lanes, for which checkpoint.py has numbers"),
        ("Written: essay", "Written: lanes", "two questions have the same name"),
        (ASKED, "", "it has no question"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, before: str, after: str, said: str) -> None:
    assert before in ASKED
    with pytest.raises(DeclarationError, match=said):
        declared(tmp_path / "checkpoint.md", ASKED.replace(before, after), numbers={"lanes": NUMBERS})


def test_a_distractor_that_is_the_answer_is_refused(tmp_path: Path) -> None:
    text = ASKED.replace("Answer: {lanes} within 1 %", "- [x] {lanes}\n- [ ] {sum}\n")
    numbers = Numbers({"warps": (2, 32)}, lambda warps: {"lanes": 32 * warps, "sum": 32 + warps})
    (posed,) = declared(tmp_path / "checkpoint.md", text, numbers={"lanes": numbers}).questions
    assert len(list(posed.every())) == 2
    again = Numbers({"warps": (2, 32)}, lambda warps: {"lanes": 32 * warps, "sum": 1056 - warps})
    (posed,) = declared(tmp_path / "checkpoint.md", text, numbers={"lanes": again}).questions
    with pytest.raises(DeclarationError, match="different choices"):
        list(posed.every())


@pytest.mark.parametrize("posed", POSED)
def test_every_draw_is_a_question_with_a_sensible_answer(posed: Posed) -> None:
    """No braces are left, no answer is negative or absurd, and a close guess is not taken for it."""
    drawn = list(posed.every())
    for question in drawn:
        text = " ".join((question.ask, question.why, *question.choices))
        assert "{" not in text
        if not isinstance(question.answer, str):
            assert 0 <= question.answer < 1e6
            assert question.tolerance <= 0.01
            assert not question.accepts(1.03 * question.answer + 1e-3)
    if posed.numbers is not None:
        assert len(drawn) >= 8
        assert len({question.answer for question in drawn}) >= 5


def test_answers_by_hand() -> None:
    """One draw of each template, worked out on paper."""
    by_name = {one.name: one for one in EXAMS[0].declared.questions}

    def answer(name: str, **drawn: int) -> object:
        posed = by_name[name]
        assert posed.numbers is not None
        values = next(one for one in posed.numbers.draws() if all(one[key] == value for key, value in drawn.items()))
        return posed._with(values).answer

    assert answer("idle_threads", n=10_100, block=256) == 140  # 40 blocks, 10,240 threads
    assert answer("grid_stride", n=100_003, blocks=32, threads=256) == 13  # 12.2 steps of 8,192
    assert answer("in_flight", latency=600, bandwidth=3000) == 1800
    assert answer("halo", block=256, radius=8) == pytest.approx(16, rel=1e-3)  # 17 * 256 / 272
    assert [answer("sectors", stride=stride) for stride in (2, 3, 8)] == [8, 12, 32]
    assert [answer("banks", stride=stride) for stride in (8, 15, 20, 33, 48)] == [8, 1, 4, 1, 16]
    assert answer("occupancy", registers=64, block=256) == 50
    assert answer("occupancy", registers=72, block=512) == 25  # 1.8 blocks fit: one
    assert answer("bandwidth", millions=20, microseconds=60) == pytest.approx(2666.7)
    assert answer("roofline", peak=60, bandwidth=3000, intensity=5) == "15"
    assert answer("tile_of_two_sizes", rows=64, columns=32) == pytest.approx(42.67)
    assert answer("tile_traffic", size=1920, tile=32) == pytest.approx(40.33)
    assert answer("outputs_per_thread", rows=8, columns=12) == pytest.approx(0.2083)


def test_checkpoints_of_the_course_are_valid() -> None:
    assert list(invariants.checkpoints_are_valid(registry.root())) == []


@pytest.fixture(scope="module")
def pool() -> reading.Pool:
    return EXAMS[0].pool


def lines_of(one: Ran, *texts: str) -> set[int]:
    """The numbers of the lines that hold these texts."""
    return {number for number, line in enumerate(one.source.splitlines(), 1) if any(text in line for text in texts)}


def test_faults_are_found_by_the_machine(pool: reading.Pool) -> None:
    """Each answer is where whoever planted the fault meant it."""
    found = {one.path.stem: one for one in pool.faults}
    assert len(found) >= 8
    planted = {
        "reverse": ("race", "tile[t] = x", "out[begin + t]"),
        "rotate": ("race", "value = x[next]", "x[i] = value"),
        "reduce": ("race", "sum[t] += ", "out[blockIdx.x]"),
        "walk": ("race", "tile[t] = x", "sum += tile[i]"),
        "halo": ("uninitialized", "right = tile"),
        "neighbors": ("bounds", "x[i + 1]"),
        "overlap": ("race", "out[i] = "),
        "stages": ("race", "x[at + 64 + t]", "out[at + t]"),
        "rows": ("uninitialized", "atomicAdd(&sum"),
        "bins": ("race", "count[t] += "),
    }
    for name, (kind, *texts) in planted.items():
        assert (found[name].kind, set(found[name].lines)) == (kind, lines_of(found[name], *texts)), name


def test_pictures_are_counted_by_the_machine(pool: reading.Pool) -> None:
    assert all(len({one.picture for one in family}) >= 6 for family in pool.families.values())
    by_name = {one.path.stem: one for family in pool.families.values() for one in family}
    assert reading.table(by_name["tile_padded"].picture).splitlines() == [
        "  memory         access  requests  per request",
        "  out            store         32  4 sectors",
        "  x              load          32  4 sectors",
        "  tile (shared)  load          32  1 wavefront",
        "  tile (shared)  store         32  1 wavefront",
    ]
    loads = {name: next(row for row in one.picture if row.memory == "x") for name, one in by_name.items()}
    assert loads["copy_rows"].per_request == "32 sectors"
    assert loads["copy_shifted"].per_request == "5 sectors"


def test_every_learner_gets_one_right_picture_of_four(pool: reading.Pool) -> None:
    rights = set()
    for seed in range(50):
        drawn = pool.draw_pictures(2, seed)
        assert drawn[0][0] is not drawn[1][0]
        for right, four in drawn:
            rights.add(right.path.stem)
            assert len({one.picture for one in four}) == 4
            assert four.count(right) == 1
            assert {one.family for one in four} == {right.family}
    assert len(rights) > 12
    assert len({tuple(one.path.stem for one in pool.draw_faults(3, seed)) for seed in range(50)}) > 30


def test_a_launch_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    file = tmp_path / "a.cu"
    file.write_text("__global__ void kernel(float* x) {}\n")
    with pytest.raises(DeclarationError, match=r"a\.cu:1: begin with a line such as // Launch"):
        reading.run(file)
    file.write_text("// Launch: <<<1, 32>>> half x[3]\n__global__ void kernel(float* x) {}\n")
    with pytest.raises(DeclarationError, match=r"a\.cu:1: 'half x\[3\]' is neither like float"):
        reading.run(file)
    file.write_text("// Launch: <<<1, 32>>> float x[3]\n__global__ void kernel(float* x) { y = 1; }\n")
    with pytest.raises(DeclarationError, match=r"a\.cu cannot be run"):
        reading.run(file)
