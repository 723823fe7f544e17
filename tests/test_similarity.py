"""Test which groups of similar submissions are reported to a teacher."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

from kernelpath import cli
from kernelpath.course import registry
from kernelpath.course.registry import ExerciseRef
from kernelpath.school import similarity
from kernelpath.school.handed_in import Entry

ROOT = Path(__file__).parents[1]

calibration = registry.import_file(ROOT / "benchmarks" / "similarity.py", "calibrate_similarity")


def write_class(folder: Path, item: ExerciseRef, submissions: dict[str, dict[str, str]]) -> list[Entry]:
    """Write a folder of submissions for each learner and return their entries. submissions: texts by suffix."""
    for learner, texts in submissions.items():
        (folder / learner).mkdir(parents=True)
        for suffix, text in texts.items():
            (folder / learner / item.solution.name).with_suffix(suffix).write_text(text)
    return [Entry(learner, item, folder / learner / item.solution.name) for learner in submissions]


def read_solution(item: ExerciseRef) -> dict[str, str]:
    return {path.suffix: path.read_text() for path in item.files("solutions")}


def disguise(suffix: str, text: str) -> str:
    """Return a disguised copy of a program: renamed variables, no comments, and another layout."""
    own_names = set(re.findall(r"(?:int|float|const|auto|float4|Vector) (\w+) =|^ +(\w+) = ", text, re.M))
    for name in {name for pair in own_names for name in pair if name}:
        text = re.sub(rf"(?<![.\w]){name}\b", f"my_{name}", text)
    return re.sub(r"//.*" if suffix == ".cu" else r"#.*", "", text).replace("\n", "\n\n")


@pytest.mark.parametrize("name", ["vector_add", "transpose", "bias_relu", "fused_softmax", "swizzle", "sgemm_cute"])
def test_a_copy_with_other_names_and_layout_is_found(name: str, tmp_path: Path) -> None:
    item = registry.find(name, ROOT)
    solution = read_solution(item)
    copy = {suffix: disguise(suffix, text) for suffix, text in solution.items()}
    assert copy != solution
    (pair,) = similarity.find_pairs(
        write_class(tmp_path, item, {"ada": solution, "bob": copy, "cyd": {".py": "x = 1\n"}})
    )
    assert (pair.exercise, pair.learners) == (item.path_id, ("ada", "bob"))
    assert pair.share > 0.9


def test_the_thresholds_have_the_documented_error_rates() -> None:
    """The comment on MIN_SHARE states these rates, which benchmarks/similarity.py counts over tests/accepts."""
    honest, derived, count = calibration.honest_pairs()
    assert count > 1000
    above = calibration.count_above(honest, similarity.MIN_SHARE)
    assert above / count <= 0.001
    assert calibration.count_above(derived, similarity.MIN_SHARE) == len(derived), "copies of the corpus are found"
    assert calibration.count_above(honest, similarity._SAME_TEXT_SHARE) == 0
    shares = list(calibration.copy_shares(10))
    assert len(shares) > 50
    assert sum(share >= similarity.MIN_SHARE for share in shares) >= 0.98 * len(shares)


@pytest.mark.parametrize(("events", "trials", "bound"), [(0, 1178, 0.0031), (1, 10, 0.445), (5, 10, 0.813)])
def test_the_upper_bound_equals_clopper_and_pearson(events: int, trials: int, bound: float) -> None:
    assert calibration.upper_bound(events, trials) == pytest.approx(bound, abs=5e-4)


def test_unchanged_stubs_are_not_reported(tmp_path: Path) -> None:
    """Every learner has the stub, so even the longest stub of the course must not count as a copy."""
    item = max(registry.exercises(ROOT), key=lambda item: len(item.stub.read_text()))
    stub = {path.suffix: path.read_text() for path in item.files("phases")}
    assert similarity.find_pairs(write_class(tmp_path, item, {"ada": stub, "bob": stub})) == []
    assert len(set(similarity.passages_of_text(".py", stub[".py"]))) > similarity.MIN_PASSAGES


def test_any_number_of_copies_form_one_group(tmp_path: Path) -> None:
    item = registry.find("transpose", ROOT)
    copies = {f"learner{number:02d}": read_solution(item) for number in range(20)}
    unrelated = {f"other{number:02d}": {".py": f"x = {number}\n"} for number in range(20)}
    (group,) = similarity.find_groups(write_class(tmp_path, item, copies | unrelated))
    assert group.learners == tuple(copies)


def test_passages_common_to_many_learners_are_ignored() -> None:
    """Passages that many different texts share, such as the only way to write half of a kernel, are no evidence."""
    shared = set(range(200))
    texts = {
        f"learner{number}": shared | set(range(1000 * (number + 1), 1000 * (number + 1) + 50)) for number in range(9)
    }
    few = {learner: texts[learner] for learner in list(texts)[:8]}
    assert {pair.share for pair in similarity.compare("1_x/w01a_y", few)} == {0.8}
    assert similarity.compare("1_x/w01a_y", texts) == []


def test_a_group_contains_exactly_the_learners_who_agree_with_a_member() -> None:
    """ada and bob wrote the same text, cyd changed a part of it, and dan and eve wrote another."""
    text = set(range(100))
    second_text = set(range(1000, 1100))
    passages = {
        "dan": second_text,
        "ada": text,
        "bob": text,
        "cyd": set(range(80)) | set(range(500, 520)),
        "eve": second_text,
        "fay": set(range(2000, 2100)),
    }
    pairs = [pair for pair in similarity.compare("1_x/w01a_y", passages) if similarity.agrees(pair)]
    groups = similarity._connect(pairs)
    assert [group.learners for group in groups] == [("ada", "bob", "cyd"), ("dan", "eve")]
    assert groups[0].closest["cyd"].share == 0.8
    assert groups[0].closest["bob"].share == 1


@pytest.mark.parametrize("unit", ["/*", '"', "'", "'''", '"\\', "'\\\n", "// \\", "\0"])
@pytest.mark.parametrize("suffix", [".cu", ".py"])
def test_tokenizing_takes_linear_time(unit: str, suffix: str) -> None:
    """With quadratic time, this would take hours, and pytest's timeout would end the test."""
    text = unit * ((1 << 18) // len(unit))
    assert len(list(similarity._tokens(similarity._TOKEN[suffix], text))) <= len(text)


def test_kp_grade_writes_and_reports_the_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    item = registry.find("swizzle", ROOT)
    names = {"ada": read_solution(item), "=bob": read_solution(item)}
    write_class(tmp_path / "class", item, names)
    with pytest.raises(SystemExit) as exit_error:
        cli.main(["grade", str(tmp_path / "class"), "swizzle", "--device", "cpu"])
    assert exit_error.value.code == 0
    assert "1 group of submissions agrees beyond the stub" in capsys.readouterr().out
    with (tmp_path / "class-grades" / "similar.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["exercise"], row["group"], row["learners"]) for row in rows] == [(item.path_id, "1", "2")] * 2
    assert [(row["learner"], row["closest"]) for row in rows] == [("'=bob", "ada"), ("ada", "'=bob")]
    assert {row["share"] for row in rows} == {"1.00"}
