"""Compare the PTX machine on two computers: print verdict, cause, and counters of one solution per lane as JSON.

python tests/verdicts.py > here.json
python tests/verdicts.py --compare here.json there.json

The results must be equal on x86-64 and on aarch64. Times are not included. --compare needs only Python; its exit status
is 1 if anything differs.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

# One exercise of each lane, and one without kernels.
EXERCISES = ("vector_add", "vector_add_triton", "vector_copy", "portability", "occupancy")

Verdicts = dict[str, dict[str, Any]]


def grade_solution(name: str) -> dict[str, Any]:
    """Grade an exercise's solution on the PTX machine and return the report without its times."""
    from kernelpath.course import registry
    from kernelpath.grading import grade

    item = registry.find(name)
    report = grade.grade(item, item.submission("solutions"), device="cpu", seed=1)
    return {
        "verdict": report.verdict.value,
        "cause": report.cause,
        "stars": report.stars,
        "cases": [(dict(case.case), case.verdict.value, case.cause) for case in report.cases],
        "traffic": [asdict(line) for line in report.traffic],
        "instructions": [asdict(line) for line in report.instructions],
    }


def differences(first: Verdicts, second: Verdicts) -> dict[str, list[str]]:
    """Return the unequal parts of the reports by exercise."""
    different = {}
    for name in first.keys() | second.keys():
        ours = first.get(name, {})
        theirs = second.get(name, {})
        parts = sorted(part for part in ours.keys() | theirs.keys() if ours.get(part) != theirs.get(part))
        if parts:
            different[name] = parts
    return different


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compare", nargs=2, type=Path, metavar=("A", "B"))
    options = parser.parse_args()
    if not options.compare:
        print(json.dumps({name: grade_solution(name) for name in EXERCISES}, indent=1))
        return
    first, second = (json.loads(path.read_text(encoding="utf-8")) for path in options.compare)
    different = differences(first, second)
    for name in sorted(first.keys() | second.keys()):
        verdict = first.get(name, {}).get("verdict", "not graded")
        print(f"{name}: {verdict}, " + (f"another {', '.join(different[name])}" if name in different else "equal"))
    sys.exit(bool(different or not first))


if __name__ == "__main__":
    main()
