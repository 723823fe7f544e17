"""What checkpoints declare: numbers that are drawn, prompts with rubrics, kernels to be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelpath.course import checkpoint, registry
from kernelpath.course.checkpoint import Checkpoint, DeliverableVariant, Numbers, QuestionTemplate
from kernelpath.course.errors import DeclarationError
from kernelpath.dev import invariants
from kernelpath.exam import questions, reading
from kernelpath.exam.reading import ExecutedKernel
from tests import selection

EXAMS = [
    questions.find_exam(int(path.parent.name[0])) for path in sorted(registry.root().glob("checks/*/checkpoint.py"))
]
POSED = [pytest.param(template, id=template.name) for exam in EXAMS for template in exam.checkpoint.questions]

EXAM_TEXT = """\
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
TWISTS = (DeliverableVariant("one", registry.load(registry.find("matmul_tiled")), {}),)


def read_checkpoint(path: Path, text: str, **fields: object) -> Checkpoint:
    path.write_text(text)
    return checkpoint.read(path, Checkpoint("double", TWISTS, **fields))  # type: ignore[arg-type]


def test_a_question_is_read_with_its_numbers(tmp_path: Path) -> None:
    checkpoint = read_checkpoint(tmp_path / "checkpoint.md", EXAM_TEXT, numbers={"lanes": NUMBERS})
    (posed,) = checkpoint.questions
    assert [(one.ask, one.answer) for one in posed.all_questions()] == [
        ("How many lanes have 2 warps?", 64),
        ("How many lanes have 4 warps?", 128),
    ]
    assert {posed.generate(seed).answer for seed in range(20)} == {64, 128}
    (prompt,) = checkpoint.prompts
    assert (prompt.ask, prompt.points) == ("Say why.", 3)
    assert [one.text for one in prompt.rubric] == ["the cause, and its test.", "the line."]


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("## Week 1: lanes", "## Week one", r':1: "## Week one" is not expected here; .*"## Week 3: name_of'),
        ("{warps} warps?", "{warp} warps?", "'warp'.* is not one of warps, lanes of lanes"),
        ("Answer: {lanes}", "Answer: {warps}x", "could not convert"),
        ("Rubric:", "Points:", 'a prompt is followed by "Rubric:"'),
        ("- 1 point: the line.", "- one point", 'a prompt is followed by "Rubric:"'),
        ("Week 1: lanes", "Week 1: other", "no question is named lanes, for which checkpoint.py has numbers"),
        ("Written: essay", "Written: lanes", "two questions have the same name"),
        (EXAM_TEXT, "", "it has no question"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, before: str, after: str, message: str) -> None:
    assert before in EXAM_TEXT
    with pytest.raises(DeclarationError, match=message):
        read_checkpoint(tmp_path / "checkpoint.md", EXAM_TEXT.replace(before, after), numbers={"lanes": NUMBERS})


def test_a_distractor_that_is_the_answer_is_refused(tmp_path: Path) -> None:
    text = EXAM_TEXT.replace("Answer: {lanes} within 1 %", "- [x] {lanes}\n- [ ] {sum}\n")
    numbers = Numbers({"warps": (2, 32)}, lambda warps: {"lanes": 32 * warps, "sum": 32 + warps})
    (posed,) = read_checkpoint(tmp_path / "checkpoint.md", text, numbers={"lanes": numbers}).questions
    assert len(list(posed.all_questions())) == 2
    colliding = Numbers({"warps": (2, 32)}, lambda warps: {"lanes": 32 * warps, "sum": 1056 - warps})
    (posed,) = read_checkpoint(tmp_path / "checkpoint.md", text, numbers={"lanes": colliding}).questions
    with pytest.raises(DeclarationError, match="different choices"):
        list(posed.all_questions())


@pytest.mark.parametrize("posed", POSED)
def test_every_draw_is_a_question_with_a_sensible_answer(posed: QuestionTemplate) -> None:
    """No braces are left, no answer is negative or absurd, and a close guess is not taken for it."""
    questions = list(posed.all_questions())
    for question in questions:
        text = " ".join((question.ask, question.why, *question.choices))
        assert "{" not in text
        if not isinstance(question.answer, str):
            assert 0 <= question.answer < 1e6
            assert question.tolerance <= 0.01
            assert not question.accepts(1.03 * question.answer + 1e-3)
    if posed.numbers is not None:
        assert len(questions) >= 8
        assert len({question.answer for question in questions}) >= 5


def test_answers_by_hand() -> None:
    """One draw of each template, worked out on paper."""
    by_name = {template.name: template for exam in EXAMS for template in exam.checkpoint.questions}

    def approximately(value: float) -> object:
        return pytest.approx(value, rel=1e-4)

    def answer(name: str, **chosen: float) -> object:
        posed = by_name[name]
        assert posed.numbers is not None
        values = next(
            values
            for values in posed.numbers.all_values()
            if all(values[key] == value for key, value in chosen.items())
        )
        return posed._fill_in(values).answer

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
    assert answer("least_time", inputs=2, millions=30, bandwidth=4500) == 40  # 180 MB
    assert answer("decode", sequences=32, heads=8, tokens=8192, bandwidth=4000) == approximately(0.2684)  # 1.07 GB
    assert answer("both_roofs", rows=16, width=4096, bandwidth=4000, peak=800) == approximately(8.454)  # 33.8 MB
    assert answer("both_roofs", rows=2048, width=4096, bandwidth=4000, peak=800) == approximately(85.899)  # 68.7 GFLOP
    assert answer("amdahl", step=100, kernel=12, times=4) == approximately(1.0989)  # 91 ms
    assert answer("fused_range", step=8000, kernels=12, longest=90, others=60) == approximately(1.0899)  # 7,340 µs
    assert answer("one_address", exponent=20, threads=256, nanoseconds=1.8) == approximately(7.3728)  # 4,096 turns
    assert answer("loads_in_flight", latency=800, bandwidth=4500, threads=1024) == 7  # 27,273 bytes, 6.7 loads
    assert answer("privatized", exponent=28, blocks=264, bins=256) == approximately(3971.9)
    assert answer("active_lanes", few=4, long=32, short=8) == 11  # (4 * 32 + 28 * 8) / 32
    assert answer("fused_bytes", operators=6, second=1) == approximately(4.333)  # 13 of 3
    assert answer("online", sum=10, rise=2) == approximately(2.3534)
    assert answer("rows_in_registers", columns=8192, threads=256, more=32) == 4  # 64 registers, 16,384 a block
    assert answer("rows_in_registers", columns=16_384, threads=512, more=24) == 2  # 56 registers, 2.3 blocks fit
    assert answer("wavefronts", rows=16, columns=8) == 0.75
    assert answer("launch_bounds", threads=384, blocks=2) == 80  # 85.3
    assert answer("stages", rows=128, columns=256, depth=8, latency=1600) == 2  # a stage lasts 2,048 cycles
    assert answer("stages", rows=64, columns=64, depth=8, latency=900) == 5  # 256 cycles: four in flight
    assert answer("ring", rows=128, columns=128, depth=16, stages=3) == 48
    assert answer("fragments", rows=32, columns=64) == 88  # 64 sums, 8 of A, 16 of B
    # phase 3
    assert answer("owned", block=2048, warps=4) == 16
    assert answer("masked", columns=5000) == approximately(38.96)  # 3,192 of 8,192
    assert answer("tuning_time", configurations=12, sizes=5, compile=0.8, trial=200) == approximately(21.6)
    assert answer("broadcast_bytes", rows=2048, columns=512) == approximately(4.196)
    assert answer("row_registers", columns=5000, warps=8) == 32
    assert answer("welford", first=100, mean=5.0, second=60, other=1.0) == approximately(600)  # 16 * 6000 / 160
    assert answer("stripes", stripes=132, columns=4096) == approximately(8.651)
    assert answer("backward_bytes", rows=16_384, columns=4096, bandwidth=4000) == approximately(100.66)
    assert answer("intensity", rows=128, columns=256) == approximately(85.333)
    assert answer("wave", across=64, group=8) == 2.75  # 66 tiles of both against 8 and 16
    assert answer("tile_ring", rows=128, columns=256, depth=64, stages=4) == 192
    assert answer("tail", rows=12, columns=17) == approximately(77.27)  # 204 tiles in two waves
    assert answer("int8_sum", depth=1000) == 24  # 16,384,000
    assert answer("scores", batch=2, heads=16, tokens=8192) == approximately(4.295)
    assert answer("causal", blocks=8) == 56.25
    assert answer("rescaled", sum=8.0, before=2, after=3) == approximately(2.943)
    assert answer("base_two", maximum=5.0, sum=4.0) == approximately(4.852)
    assert answer("key_head", heads=32, kv_heads=8, head=13) == 3
    assert answer("backward_work", forward=0.8, rate=0.8) == 2.5
    # phase 5
    assert answer("layout_offset", rows=4, pad=3, i=2, j=5) == 37
    assert answer("composed", rows=4, columns=8, i=13) == 11  # (1, 3)
    assert answer("cosize", rows=6, columns=5, stride=12) == 54
    assert answer("swizzled_place", row=9, column=20) == 604  # 596 = 0b1001_010_100, row 1 of 8: vector 2 ^ 1
    assert answer("sum_held", lane=22, value=3) == 13  # group 5, second half
    assert answer("copies_each", rows=128, depth=64, threads=256) == 4
    assert answer("edge_waste", m=129, n=130) == approximately(74.41)  # 16,770 of 65,536
    assert answer("mma_per_stage", rows=64, columns=128, depth=64) == 256
    assert answer("stages_that_fit", rows=128, columns=256, depth=64) == 4  # 48 KiB each
    assert answer("bytes_expected", rows=128, columns=256, depth=64) == 49_152
    assert answer("phases_over", step=14, stages=4) == 3
    assert answer("waves_of_tiles", rows=3000, columns=6144) == approximately(87.273)  # 576 tiles, 5 waves
    assert answer("multicast", rows=128, columns=256, depth=64, blocks=2) == 64
    assert answer("registers_moved", launched=168, kept=40) == 232
    assert answer("peak_share", size=8192, microseconds=1700, peak=720) == approximately(89.83)
    assert answer("attention_work", batch=4, heads=16, tokens=4096, head=128) == approximately(0.27488)
    assert answer("tensor_memory", columns=192) == 96
    assert answer("padding_of_a_port", rows=33, columns=1000) == approximately(19.434)


# A phase whose kernels are compiled weekly has the mark.
PHASES = [
    pytest.param(exam, id=exam.phase, marks=[] if exam.phase in selection.SENTINEL_READINGS else [pytest.mark.weekly])
    for exam in EXAMS
]


@pytest.fixture(scope="module", params=PHASES)
def pool(request: pytest.FixtureRequest) -> reading.KernelPool:
    exam: questions.Exam = request.param
    return exam.pool


@pytest.mark.parametrize("exam", PHASES)
def test_every_kernel_has_one_answer(exam: questions.Exam) -> None:
    assert list(invariants.reading_is_valid(exam.phase, exam.root)) == []


def lines_of(kernel: ExecutedKernel, *texts: str) -> set[int]:
    """The numbers of the lines that hold these texts."""
    return {number for number, line in enumerate(kernel.source.splitlines(), 1) if any(text in line for text in texts)}


# The kind of each fault, and what its lines hold.
PLANTED = {
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
    # phase 2
    "tree": ("race", "sum[t] += "),
    "ticket": ("race", "part[blockIdx.x] = ", "*out = "),
    "warps": ("uninitialized", "all = of_warp"),
    "twice": ("race", "part[threadIdx.x / 32] = ", "return part[0]"),
    "zeroed": ("race", "own[t] = 0", "atomicAdd(&own"),
    "batches": ("race", "atomicAdd(&own", "count[t] += "),
    "bin_of": ("bounds", "atomicAdd(&own[bin]"),
    "tail": ("barrier", "__syncthreads"),
    "rounds": ("barrier", "__syncthreads"),
    "fetched": ("uninitialized", "= tile[63 - t]"),
    "ahead": ("uninitialized", "= tile[step % 2]"),
    "own_copy": ("race", "__pipeline_memcpy_async", "= tile[63 - t]"),
    "two_tiles": ("race", "tile[(step + 1) % 2][t] = ", "= tile[step % 2]"),
    "vectors": ("misaligned", "const float4 four"),
    "scan": ("race", "more = ", "sum[t] += more"),
    "compact": ("race", "*taken += "),
    "gram": ("bounds", "tile[row][column] = x"),
    # phase 3
    "accumulated": ("uninitialized", "tl.load(out"),
    "grand_total": ("race", "before = ", "before + sum"),
    "half_steps": ("race", "value + begin"),
    "halves": ("uninitialized", "back = "),
    "handed_on": ("race", "tl.store(part", "parts = "),
    "last_block": ("bounds", "place <= n"),
    "promised": ("misaligned", "value = tl.load"),
    "right_neighbor": ("bounds", "place + 1"),
    "row_tail": ("bounds", "value = tl.load"),
    "sides": ("bounds", "value = tl.load"),
    "turned": ("race", "tl.store(y", "other = "),
    # phase 4
    "bias_gradient": ("race", "total = tl.load(dbias", "total + value"),
    "empty_part": ("uninitialized", "held = "),
    "finished_parts": ("race", "tl.store(part", "sums = "),
    "first_step": ("uninitialized", "moment = tl.load"),
    "gate_and_up": ("race", "tl.store(out"),
    "labels": ("bounds", "score = tl.load"),
    "next_page": ("bounds", "key = tl.load"),
    "third_part": ("misaligned", "key = tl.load"),
    "whole_pages": ("bounds", "key = tl.load"),
    # phase 5
    "box_unwaited": ("uninitialized", "= tile[63 - t]"),
    "bulk_out": ("unfenced", "tile[t] = 2", "ptx::cp_async_bulk("),
    "bulk_reused": ("race", "tile[t] = 2"),
    "last_box": ("bounds", "ptx::cp_async_bulk("),
    "one_arrives": ("race", "tile[t] = x", "= tile[63 - t]"),
    "peer_gone": ("bounds", "ld.shared::cluster"),
    "ring_refilled": ("race", "ptx::cp_async_bulk(", "= tile[s][63 - t]"),
    "ring_wrapped": ("uninitialized", "= tile[s][63 - t]"),
    "too_early": ("uninitialized", "= tile[63 - t]"),
}


def test_faults_are_found_by_the_machine(pool: reading.KernelPool) -> None:
    """Each answer is where whoever planted the fault meant it."""
    assert len(pool.faults) >= 8
    stems = {path.stem for path in reading.kernel_files(pool.faults[0].path.parent)}
    assert {kernel.path.stem for kernel in pool.faults} == stems & set(PLANTED)
    for kernel in pool.faults:
        kind, *texts = PLANTED[kernel.path.stem]
        assert (kernel.kind, set(kernel.lines)) == (kind, lines_of(kernel, *texts)), kernel.path.stem


def test_no_kernel_comes_twice() -> None:
    files = [path for exam in EXAMS for path in reading.kernel_files(exam.root / "checks" / exam.phase / "reading")]
    assert len({path.stem for path in files}) == len({path.read_text() for path in files}) == len(files)
    assert {path.stem for path in files} >= set(PLANTED)


def test_pictures_are_counted_by_the_machine(pool: reading.KernelPool) -> None:
    assert all(len({kernel.picture for kernel in family}) >= 6 for family in pool.families.values())


def pictures(phase: int) -> dict[str, reading.Picture]:
    """Return the pictures of a phase by the names of their kernels."""
    return {kernel.path.stem: kernel.picture for family in EXAMS[phase - 1].pool.families.values() for kernel in family}


def test_pictures_of_phase_1_by_hand() -> None:
    by_name = pictures(1)
    assert reading.format_picture(by_name["tile_padded"]).splitlines() == [
        "  memory         access  requests  per request",
        "  out            store         32  4 sectors",
        "  x              load          32  4 sectors",
        "  tile (shared)  load          32  1 wavefront",
        "  tile (shared)  store         32  1 wavefront",
    ]
    loads = {name: next(row for row in by_name[name] if row.memory == "x") for name in ("copy_rows", "copy_shifted")}
    assert loads["copy_rows"].per_request == "32 sectors"
    assert loads["copy_shifted"].per_request == "5 sectors"


@pytest.mark.weekly
def test_pictures_of_phase_2_by_hand() -> None:
    by_name = pictures(2)
    steps = next(row for row in by_name["steps_of_one_lane"] if row.memory == "x")
    assert steps.requests == 64  # 8 warps stay for 8 steps
    assert steps.cost == 8 * (4 + 7)  # from the second step on for one sector
    chosen = by_name["count_global"], by_name["count_block"]
    added = [next(row.requests for row in one if row.memory == "count") for one in chosen]
    assert added == [8, 2]  # each warp of two blocks, and then one of each
    square = {row.memory: row.requests for row in by_name["outputs_square"] if row.access == "load"}
    assert square == {"x": 16, "a (shared)": 32, "b (shared)": 32}  # 2 warps, 4 steps, 4 values of each


def test_every_learner_gets_one_right_picture_of_four(pool: reading.KernelPool) -> None:
    rights = set()
    for seed in range(50):
        choices = pool.sample_pictures(2, seed)
        assert choices[0][0] is not choices[1][0]
        for right, four in choices:
            rights.add(right.path.stem)
            assert len({kernel.picture for kernel in four}) == 4
            assert four.count(right) == 1
            assert {kernel.family for kernel in four} == {right.family}
    assert len(rights) > 12
    assert len({tuple(kernel.path.stem for kernel in pool.sample_faults(3, seed)) for seed in range(50)}) > 30


def test_a_launch_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    file = tmp_path / "a.cu"
    file.write_text("__global__ void kernel(float* x) {}\n")
    with pytest.raises(DeclarationError, match=r"a\.cu:1: begin with a line such as // Launch"):
        reading.run_kernel(file)
    file.write_text("// Launch: <<<1, 32>>> half x[3]\n__global__ void kernel(float* x) {}\n")
    with pytest.raises(DeclarationError, match=r"a\.cu:1: 'half x\[3\]' is neither like float"):
        reading.run_kernel(file)
    file.write_text("// Launch: <<<1, 32>>> float x[3]\n__global__ void kernel(float* x) { y = 1; }\n")
    with pytest.raises(DeclarationError, match=r"a\.cu cannot be run"):
        reading.run_kernel(file)
    file = tmp_path / "a.py"
    file.write_text("# Launch: <<<1, 32>>> float x[3]\n")
    with pytest.raises(DeclarationError, match=r"a\.py:1: begin with a line such as # Launch: \[2\]"):
        reading.run_kernel(file)
    file.write_text("# Launch: [1] float x[32], SIZE = 32\nimport triton\n\n@triton.jit\ndef kernel(x, n):\n    pass\n")
    with pytest.raises(DeclarationError, match=r"takes x, n, and the launch gives x, SIZE"):
        reading.run_kernel(file)
