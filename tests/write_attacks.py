"""Write the table of attacks in docs/attacks.md from the planted submissions: `python -m tests.write_attacks`.

A row for each row of ROWS, with the number of its submissions, their verdicts, and how the grader detects the
attack on the PTX machine and, as far as CUDA allows, on a GPU. test_rejects.py grades the submissions.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernelpath.files import write_atomically
from tests import planted as corpus
from tests.test_rejects import ROWS

ROOT = Path(__file__).parents[1]
FILE = ROOT / "docs" / "attacks.md"
ACCIDENT = "An accident"

SAME_AS_WITHOUT_GPU = "the same"
NO_TIMES = "nothing is timed"
OF_THE_MACHINE = "as counted on the PTX machine, which also runs the calls"

# How each attack of ROWS is detected: on the PTX machine, and on a GPU.
DETECTION: dict[str, tuple[str, str]] = {
    "C1": (
        "outputs and freed memory get a pattern before each call, and the machine records which bytes are written",
        "outputs and freed memory get a pattern before each call; an output that keeps it was not written",
    ),
    "C2": ("after each call, inputs are compared bitwise with the grader's copy", SAME_AS_WITHOUT_GPU),
    "C3": ("NaN and infinities are compared separately", SAME_AS_WITHOUT_GPU),
    "C4": ("the tolerance is relative to the expected values; zeros are a negative control", SAME_AS_WITHOUT_GPU),
    "C5": ("inputs are asymmetric with a nonzero mean, and sizes are not square", SAME_AS_WITHOUT_GPU),
    "C6": ("rare large values at random positions; integers where results are exact", SAME_AS_WITHOUT_GPU),
    "C7": ("the tolerance of each exercise rejects the lower precision", SAME_AS_WITHOUT_GPU),
    "C8": ("besides the stated sizes, each grading draws its own", SAME_AS_WITHOUT_GPU),
    "C9": (
        "a call is repeated with other values, also in a second process",
        "outputs are compared again after the timed calls, also at the timed size",
    ),
    "C10": (
        "the machine checks each access against its tensor, and detects races by happens-before",
        "guard bands around each tensor, and the driver's errors for illegal addresses; races " + OF_THE_MACHINE,
    ),
    "C11": ("the expected output exists only in the grader's process", SAME_AS_WITHOUT_GPU),
    "T1": (NO_TIMES, "the whole device is synchronized before the end of a timed call"),
    "T2": ("threads are counted before and after a call", "threads are counted, and outputs compared after the end"),
    "T3": ("an output must be exactly a torch.Tensor with its own memory", SAME_AS_WITHOUT_GPU),
    "T4": ("functions are bound before the submission is imported, and compared afterwards", SAME_AS_WITHOUT_GPU),
    "T5": (
        "the grader's process determines the verdict; a reply that violates the protocol ends the grading",
        SAME_AS_WITHOUT_GPU,
    ),
    "T6": (NO_TIMES, "a minimum number of repetitions, independent of the clock"),
    "T7": ("new values in each call", "new values and other buffers in each timed call; each output is compared"),
    "T8": ("each call has its own inputs, drawn after the previous call", "each call is timed separately"),
    "T9": (NO_TIMES, "each round resets the limit on persisting lines and flushes L2"),
    "T11": (NO_TIMES, "a time well below the measured ceiling of the GPU is TOO_FAST"),
    "S1": (
        "a second process receives other values and must launch the same kernels with the same arguments",
        "operators and kernels are recorded; a kernel that the PTX machine did not run belongs to a library",
    ),
    "S2": (
        "the process can neither read solutions (Landlock) nor import modules that know the results",
        SAME_AS_WITHOUT_GPU,
    ),
    "S3": (
        "all calls take the same code path, and nothing in the environment reveals the mode",
        "the kernels, grids, and blocks on the GPU are compared with those on the PTX machine",
    ),
    "H1": ("each submission has its own process; a missing reply means a crash", SAME_AS_WITHOUT_GPU),
    "H2": (
        "deadlines, and quotas for memory, files, and processes; endless kernels end after 2^31 instructions",
        "deadlines and the same quotas; an endless kernel ends with its process",
    ),
}

_TABLE = re.compile(r"(<!-- planted -->\n).*?(<!-- end planted -->)", re.DOTALL)


@dataclass(frozen=True)
class Attack:
    """A planted submission: the row that it stands for, or ACCIDENT, its verdict, and the devices that grade it."""

    row: str
    verdict: str
    without_gpu: bool
    on_gpu: bool


def planted() -> Iterator[Attack]:
    """Yield the wrong submissions."""
    for reject in corpus.rejects(ROOT):
        row = re.match(r"[A-Z]\d+", reject.why)
        device = reject.options.get("device")
        yield Attack(row[0] if row else ACCIDENT, reject.verdict.value, device != "gpu", device != "cpu")


def table() -> str:
    """Return the table as Markdown."""
    by_row: dict[str, list[Attack]] = {}
    for attack in planted():
        by_row.setdefault(attack.row, []).append(attack)
    headings = ("attack", "without a GPU", "on a GPU", "verdicts", "detection without a GPU", "detection on a GPU")
    lines = [_line(headings), _line(["---"] * len(headings))]
    lines += [_row(f"{key}: {description}", by_row[key], *DETECTION[key]) for key, description in ROWS.items()]
    limits = "the values, limits, and checks that each exercise states"
    lines.append(_row("other honest mistakes", by_row[ACCIDENT], limits, f"the same; limits {OF_THE_MACHINE}"))
    return "\n".join(lines) + "\n"


def _row(description: str, attacks: Sequence[Attack], without_gpu: str, on_gpu: str) -> str:
    verdicts = sorted(Counter(attack.verdict for attack in attacks).items(), key=lambda item: (-item[1], item[0]))
    counts = (sum(attack.without_gpu for attack in attacks), sum(attack.on_gpu for attack in attacks))
    endings = ", ".join(f"{count} {verdict}" for verdict, count in verdicts)
    return _line((description, *map(str, counts), endings, without_gpu, on_gpu))


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def regenerate(text: str) -> str:
    return _TABLE.sub(lambda match: match[1] + table() + match[2], text)


if __name__ == "__main__":
    write_atomically(FILE, regenerate(FILE.read_text(encoding="utf-8")))
