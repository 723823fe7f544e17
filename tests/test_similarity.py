"""Which pairs of submissions are worth a teacher's reading, and which are not."""

from __future__ import annotations

import csv
import itertools
import re
import time
from pathlib import Path

import pytest

from kernelpath import cli
from kernelpath.course import registry
from kernelpath.course.registry import Item
from kernelpath.school import similarity
from kernelpath.school.handed_in import Entry
from tests import planted

ROOT = Path(__file__).parents[1]
HONEST = {
    "autograd_functions buffers_reused recomputed": "w16a_transformer_block",
    "defined_schemas setup_script triton_operators": "w16d_kernel_library",
    "ordinary_loads plain": "w20a_tensorop_gemm",
}
"""Submissions of tests/accepts that were made from each other."""


def _class(folder: Path, item: Item, submissions: dict[str, dict[str, str]]) -> list[Entry]:
    """A folder for each learner, with the texts of the exercise's files by their suffixes."""
    for learner, texts in submissions.items():
        (folder / learner).mkdir(parents=True)
        for suffix, text in texts.items():
            (folder / learner / item.solution.name).with_suffix(suffix).write_text(text)
    return [Entry(learner, item, folder / learner / item.solution.name) for learner in submissions]


def _solution(item: Item) -> dict[str, str]:
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
    (found,) = similarity.pairs(_class(tmp_path, item, {"ada": solution, "bob": copy, "cyd": {".py": "x = 1\n"}}))
    assert (found.exercise, found.learners) == (item.stem, ("ada", "bob"))
    assert found.share > 0.9


def test_honest_submissions_are_not_found(tmp_path: Path) -> None:
    """Those that were made from one another are, and nothing else of more than a thousand pairs."""
    found, compared = [], 0
    for item in registry.exercises(ROOT):
        others = planted.accepts(ROOT, item.stem.partition("/")[2])
        paths = [honest.submission(tmp_path) for honest in others if not honest.patch]
        entries = [Entry(path.stem, item, path) for path in (*paths, item.solution)]
        compared += len(list(itertools.combinations(entries, 2)))
        found += similarity.pairs(entries)
    assert compared > 1000
    for one in found:
        assert any(
            set(one.learners) <= set(names.split()) and one.exercise.endswith(stem) for names, stem in HONEST.items()
        ), one


def test_the_stub_alone_agrees_with_nothing(tmp_path: Path) -> None:
    """Everybody was given it: the longest stub of the course, handed in as it is."""
    item = max(registry.exercises(ROOT), key=lambda item: len(item.stub.read_text()))
    stub = {path.suffix: path.read_text() for path in item.files("phases")}
    assert similarity.pairs(_class(tmp_path, item, {"ada": stub, "bob": stub})) == []
    assert len(set(similarity._passages(".py", stub[".py"]))) > similarity.LEAST_PASSAGES


def test_what_many_wrote_is_the_exercises_own(tmp_path: Path) -> None:
    item = registry.find("transpose", ROOT)
    few = {f"learner{number}": _solution(item) for number in range(8)}
    assert len(similarity.pairs(_class(tmp_path / "few", item, few))) == 8 * 7 / 2
    assert similarity.pairs(_class(tmp_path / "many", item, {**few, "one_more": _solution(item)})) == []


@pytest.mark.parametrize("unit", ["/*", '"', "'", "'''", '"\\', "'\\\n", "// \\", "\0"])
@pytest.mark.parametrize("suffix", [".cu", ".py"])
def test_no_file_keeps_the_grader_busy(unit: str, suffix: str) -> None:
    text = unit * ((1 << 18) // len(unit))
    before = time.process_time()
    list(similarity._tokens(similarity._TOKEN[suffix], text))
    assert time.process_time() - before < 10, "hours where time grows with the square"


def test_kp_grade_writes_the_pairs_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    item = registry.find("swizzle", ROOT)
    names = {"ada": _solution(item), "=bob": _solution(item)}
    _class(tmp_path / "class", item, names)
    with pytest.raises(SystemExit) as ended:
        cli.main(["grade", str(tmp_path / "class"), "swizzle", "--device", "cpu"])
    assert ended.value.code == 0
    assert "1 pair of submissions agrees beyond the stub" in capsys.readouterr().out
    with (tmp_path / "class-grades" / "similar.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert (row["exercise"], row["learner"], row["other"]) == (item.stem, "'=bob", "ada")
    assert row["share"] == "1.00"
