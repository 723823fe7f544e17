"""Write the table of attacks in docs/attacks.md from the planted submissions: `python -m tests.write_attacks`.

A row for each row of ROWS, with the number of submissions that stand behind it, the verdicts that they get, and how the
grader sees the attack on the PTX machine and, as far as CUDA lets it, on a GPU. test_rejects.py grades them.
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

SAME = "the same"
NO_TIMES = "nothing is timed"
OF_THE_MACHINE = "as counted on the PTX machine, which runs the same calls beside the GPU"

HELD: dict[str, tuple[str, str]] = {
    "C1": (
        "outputs and freed memory hold a pattern before each call, and the machine records which bytes are written",
        "outputs and freed memory hold a pattern before each call; an output that keeps it was not written",
    ),
    "C2": ("inputs are compared bit for bit with the grader's after each call", SAME),
    "C3": ("NaN and infinities are compared on their own", SAME),
    "C4": ("the tolerance follows the size of the expected values; zeros are a negative control", SAME),
    "C5": ("inputs are asymmetric, of a mean that is not zero, and sizes are not square", SAME),
    "C6": ("rare large values at places that are drawn; whole numbers where results are exact", SAME),
    "C7": ("the tolerance of each exercise is one that the lower precision fails", SAME),
    "C8": ("sizes are drawn when a submission is graded, besides those that are stated", SAME),
    "C9": (
        "a call is repeated with other values, in a second process too",
        "outputs are compared again after the timed calls, at the timed size too",
    ),
    "C10": (
        "the machine checks each access against its tensor, and orders accesses by happens-before",
        "guard bands around each tensor, and the driver's illegal addresses; races " + OF_THE_MACHINE,
    ),
    "C11": ("the expected output is in another process, the grader's", SAME),
    "T1": (NO_TIMES, "the whole device is synchronized before the end of a timed call"),
    "T2": ("threads are counted before and after a call", "threads are counted, and outputs compared after the end"),
    "T3": ("an output is exactly a torch.Tensor with memory of its own", SAME),
    "T4": ("functions are bound before the submission is imported and compared afterwards", SAME),
    "T5": ("the verdict is the grader's process's; an answer that does not follow its protocol ends the grading", SAME),
    "T6": (NO_TIMES, "a least number of repetitions, whatever the clock says"),
    "T7": ("new values in each call", "new values and other buffers in each timed call, each output compared"),
    "T8": ("each call has inputs of its own, drawn after the call before", "each call is timed on its own"),
    "T9": (NO_TIMES, "the limit on persisting lines is reset, and L2 flushed, in each round"),
    "T11": (NO_TIMES, "a time well below the measured ceiling of the GPU is TOO_FAST"),
    "S1": (
        "a second process gets other values and must launch the same kernels with the same arguments",
        "operators and kernels are recorded; a kernel that the PTX machine did not run is a library's",
    ),
    "S2": ("the process can neither read solutions (Landlock) nor import what knows the results", SAME),
    "S3": (
        "one path of code for every call, and nothing in the environment names the mode",
        "the kernels, grids and blocks of the GPU are compared with those of the PTX machine",
    ),
    "H1": ("a process for each submission; without an answer it has crashed", SAME),
    "H2": (
        "deadlines, and quotas for memory, files and processes; endless kernels end after 2^31 instructions",
        "deadlines and the same quotas; an endless kernel ends with its process",
    ),
}
"""How each row of ROWS is held: on the PTX machine, and on a GPU."""

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
    headings = ("attack", "planted", "on a GPU", "verdicts", "how it is seen without a GPU", "how it is seen on a GPU")
    lines = [_line(headings), _line(["---"] * len(headings))]
    lines += [_row(f"{key}: {description}", by_row[key], *HELD[key]) for key, description in ROWS.items()]
    limits = "values, limits and checks that each exercise states"
    lines.append(_row("honest mistakes of other kinds", by_row[ACCIDENT], limits, f"the same; limits {OF_THE_MACHINE}"))
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
