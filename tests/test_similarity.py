"""Which groups of submissions are worth a teacher's reading, and which are not."""

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


def _class(folder: Path, item: ExerciseRef, submissions: dict[str, dict[str, str]]) -> list[Entry]:
    """A folder for each learner, with the texts of the exercise's files by their suffixes."""
    for learner, texts in submissions.items():
        (folder / learner).mkdir(parents=True)
        for suffix, text in texts.items():
            (folder / learner / item.solution.name).with_suffix(suffix).write_text(text)
    return [Entry(learner, item, folder / learner / item.solution.name) for learner in submissions]


def _solution(item: ExerciseRef) -> dict[str, str]:
    return {path.suffix: path.read_text() for path in item.files("solutions")}


def _renamed(suffix: str, text: str) -> str:
    """The same program as somebody hands it in who hopes that nobody looks: other names, comments and layout."""
    own = set(re.findall(r"(?:int|float|const|auto|float4|Vector) (\w+) =|^ +(\w+) = ", text, re.M))
    for name in {one for pair in own for one in pair if one}:
        text = re.sub(rf"(?<![.\w]){name}\b", f"my_{name}", text)
    return re.sub(r"//.*" if suffix == ".cu" else r"#.*", "", text).replace("\n", "\n\n")


@pytest.mark.parametrize("name", ["vector_add", "transpose", "bias_relu", "fused_softmax", "swizzle", "sgemm_cute"])
def test_a_renamed_copy_is_found(name: str, tmp_path: Path) -> None:
    item = registry.find(name, ROOT)
    solution = _solution(item)
    copy = {suffix: _renamed(suffix, text) for suffix, text in solution.items()}
    assert copy != solution
    (found,) = similarity.find_pairs(_class(tmp_path, item, {"ada": solution, "bob": copy, "cyd": {".py": "x = 1\n"}}))
    assert (found.exercise, found.learners) == (item.path_id, ("ada", "bob"))
    assert found.share > 0.9


def test_honest_submissions_agree_at_the_rate_that_is_written_down() -> None:
    """The numbers beside MIN_SHARE are those of benchmarks/similarity.py, which counts over tests/accepts."""
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
def test_a_confidence_interval_is_that_of_clopper_and_pearson(events: int, trials: int, bound: float) -> None:
    assert calibration.upper_bound(events, trials) == pytest.approx(bound, abs=5e-4)


def test_the_stub_alone_agrees_with_nothing(tmp_path: Path) -> None:
    """Everybody was given it: the longest stub of the course, handed in as it is."""
    item = max(registry.exercises(ROOT), key=lambda item: len(item.stub.read_text()))
    stub = {path.suffix: path.read_text() for path in item.files("phases")}
    assert similarity.find_pairs(_class(tmp_path, item, {"ada": stub, "bob": stub})) == []
    assert len(set(similarity.passages_of_text(".py", stub[".py"]))) > similarity.MIN_PASSAGES


def test_copies_are_one_group_however_many_there_are(tmp_path: Path) -> None:
    item = registry.find("transpose", ROOT)
    copies = {f"learner{number:02d}": _solution(item) for number in range(20)}
    others = {f"other{number:02d}": {".py": f"x = {number}\n"} for number in range(20)}
    (group,) = similarity.find_groups(_class(tmp_path, item, copies | others))
    assert group.learners == tuple(copies)


def test_what_many_wrote_in_texts_of_their_own_is_the_exercises_own() -> None:
    """One way to write half of a kernel, which everybody found."""
    shared = set(range(200))
    texts = {
        f"learner{number}": shared | set(range(1000 * (number + 1), 1000 * (number + 1) + 50)) for number in range(9)
    }
    few = {learner: texts[learner] for learner in list(texts)[:8]}
    assert {pair.share for pair in similarity.compare("1_x/w01a_y", few)} == {0.8}
    assert similarity.compare("1_x/w01a_y", texts) == []


def test_a_group_holds_whoever_agrees_with_one_of_it_and_nobody_else() -> None:
    """A pair for each of the closest: ada and bob wrote one text, cyd changed a part of bob's; dan and eve another."""
    text, other = set(range(100)), set(range(1000, 1100))
    passages = {
        "dan": other,
        "ada": text,
        "bob": text,
        "cyd": set(range(80)) | set(range(500, 520)),
        "eve": other,
        "fay": set(range(2000, 2100)),
    }
    pairs = [pair for pair in similarity.compare("1_x/w01a_y", passages) if similarity.agrees(pair)]
    groups = similarity._connect(pairs)
    assert [group.learners for group in groups] == [("ada", "bob", "cyd"), ("dan", "eve")]
    assert groups[0].closest["cyd"].share == 0.8
    assert groups[0].closest["bob"].share == 1


@pytest.mark.parametrize("unit", ["/*", '"', "'", "'''", '"\\', "'\\\n", "// \\", "\0"])
@pytest.mark.parametrize("suffix", [".cu", ".py"])
def test_no_file_keeps_the_grader_busy(unit: str, suffix: str) -> None:
    """Where the time grows with the square it takes hours, and pytest's timeout ends the test."""
    text = unit * ((1 << 18) // len(unit))
    assert len(list(similarity._tokens(similarity._TOKEN[suffix], text))) <= len(text)


def test_kp_grade_writes_the_groups_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    item = registry.find("swizzle", ROOT)
    names = {"ada": _solution(item), "=bob": _solution(item)}
    _class(tmp_path / "class", item, names)
    with pytest.raises(SystemExit) as ended:
        cli.main(["grade", str(tmp_path / "class"), "swizzle", "--device", "cpu"])
    assert ended.value.code == 0
    assert "1 group of submissions agrees beyond the stub" in capsys.readouterr().out
    with (tmp_path / "class-grades" / "similar.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["exercise"], row["group"], row["learners"]) for row in rows] == [(item.path_id, "1", "2")] * 2
    assert [(row["learner"], row["closest"]) for row in rows] == [("'=bob", "ada"), ("ada", "'=bob")]
    assert {row["share"] for row in rows} == {"1.00"}
