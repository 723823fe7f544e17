"""Calibrate similar.csv: how often honest submissions agree, and how often disguised copies do.

python benchmarks/similarity.py

Honest: every two submissions to one exercise among those of tests/accepts that are programs of their own, and the
reference. They were written to differ, each for a reason of its own, by few authors: the first makes them agree less
than a class does, the second more. DERIVED names the submissions that were made from one another; their pairs are
counted apart.

Copies: each reference kernel with other names, no comments, and a new statement after every so many lines.

Prints, for each threshold on the share of shared passages, the honest pairs above it with the upper end of the 95 %
confidence interval of their rate (Clopper and Pearson, "The Use of Confidence or Fiducial Limits Illustrated in the
Case of the Binomial", Biometrika 26, 1934), and the share of the copies above it. The constant is
`kernelpath.school.similarity.MIN_SHARE`.
"""

from __future__ import annotations

import itertools
import math
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from kernelpath import files
from kernelpath.course import registry
from kernelpath.course.registry import ExerciseRef
from kernelpath.school import similarity
from kernelpath.school.similarity import MIN_PASSAGES, Pair

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests import planted

ROOT = Path(__file__).parents[1]

# For each exercise, the submissions in tests/accepts that were derived from one another.
DERIVED = {
    "w16a_transformer_block": {"autograd_functions", "buffers_reused", "recomputed"},
    "w16d_kernel_library": {"defined_schemas", "setup_script", "triton_operators"},
    "w20a_tensorop_gemm": {"ordinary_loads", "plain"},
}

THRESHOLDS = (0.5, 0.6, 0.7, 0.75, 0.8, 0.9)
# The number of lines between statements that are inserted into a copy. 0 inserts none.
EVERY = (0, 20, 10, 5)


def main() -> None:
    honest, derived, count = honest_pairs()
    print(f"{count} honest pairs, {len(derived)} more of submissions that were made from one another")
    closest = sorted(honest, key=lambda pair: -pair.share)[:5]
    for pair in closest:
        print(f"  {pair.share:.2f} {pair.exercise}: {' and '.join(pair.learners)}, {pair.passages} passages")
    shares = {every: [*copy_shares(every)] for every in EVERY}
    copies = "".join(f"{f'every {every}' if every else 'none':>10}" for every in EVERY)
    print(f"{'':40}copies found, by the lines between new statements:")
    print(f"{'share':>5}{'honest':>8}{'rate':>8}{'at most':>9}{'derived':>9}{copies}")
    for threshold in THRESHOLDS:
        above = count_above(honest, threshold)
        caught = "".join(
            f"{sum(share >= threshold for share in copies_at_rate) / len(copies_at_rate):10.0%}"
            for copies_at_rate in shares.values()
        )
        rates = f"{above / count:8.2%}{upper_bound(above, count):9.2%}"
        print(f"{threshold:5.2f}{above:8d}{rates}{count_above(derived, threshold):9d}{caught}")


def count_above(pairs: list[Pair], threshold: float) -> int:
    return sum(pair.share >= threshold and pair.passages >= MIN_PASSAGES for pair in pairs)


def honest_pairs() -> tuple[list[Pair], list[Pair], int]:
    """Return the honest pairs that share anything, the derived ones, and how many honest pairs there are in all."""
    honest: list[Pair] = []
    derived: list[Pair] = []
    count = 0
    for item in registry.exercises(ROOT):
        name = item.path_id.partition("/")[2]
        passages = {item.solution.stem: own_passages(item, item.solution)}
        with tempfile.TemporaryDirectory() as folder:
            for submission in planted.accepts(ROOT, name):
                if not submission.patch:
                    passages[submission.title] = own_passages(item, submission.submission(Path(folder)))
        family = DERIVED.get(name, set())
        related = [pair for pair in itertools.combinations(passages, 2) if set(pair) <= family]
        count += math.comb(len(passages), 2) - len(related)
        for pair in similarity.compare(item.path_id, passages):
            (derived if set(pair.learners) <= family else honest).append(pair)
    return honest, derived, count


def own_passages(item: ExerciseRef, python_file: Path) -> set[int]:
    return similarity.passages_of_files(files.submitted(python_file)) - similarity.provided_passages(item)


def copy_shares(every: int) -> Iterator[float]:
    """Yield, for each reference kernel that is long enough, the share that a disguised copy has in common with it.

    Repaired kernels are left out: nearly all of their text was given, and few statements are the learner's own.
    """
    for item in registry.exercises(ROOT):
        if registry.load(item).kind == "repair":
            continue
        provided = similarity.provided_passages(item)
        sources = [(path.suffix, files.source_text(path)) for path in item.files("solutions")]
        original, copy = (
            {passage for suffix, text in texts for passage in similarity.passages_of_text(suffix, text)} - provided
            for texts in (sources, [(suffix, disguise(suffix, text, every)) for suffix, text in sources])
        )
        if len(original) >= MIN_PASSAGES:
            shared = len(original & copy)
            yield shared / min(len(original), len(copy)) if shared >= MIN_PASSAGES else 0.0


def disguise(suffix: str, text: str, every: int) -> str:
    """Return a copy with other names and no comments, and a statement after every so many lines that have code."""
    text = re.sub(r"//.*" if suffix == ".cu" else r"#(?!include).*", "", text)
    statement = "scratch += 1;" if suffix == ".cu" else "scratch += 1"
    lines = []
    for number, line in enumerate(filter(str.strip, text.splitlines()), start=1):
        lines.append(line)
        if every and number % every == 0:
            lines.append(statement)
    own = set(re.findall(r"(?<![.\w])([a-z]\w*) = ", text))
    names = re.compile(r"(?<![.\w])[a-z]\w*\b")
    return names.sub(lambda name: f"my_{name[0]}" if name[0] in own else name[0], "\n".join(lines))


def upper_bound(events: int, trials: int) -> float:
    """Return the upper end of the two-sided 95 % confidence interval of a rate, by bisection."""

    def probability_of_at_most_events(rate: float) -> float:
        return sum(math.comb(trials, k) * rate**k * (1 - rate) ** (trials - k) for k in range(events + 1))

    low, high = events / trials, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if probability_of_at_most_events(middle) > 0.025 else (low, middle)
    return high


if __name__ == "__main__":
    main()
