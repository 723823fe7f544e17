"""Whether a certificate holds: the same submission is graded again with its seed, and what differs is said."""

from __future__ import annotations

from pathlib import Path

from kernelpath.exam.certificate import Certificate
from kernelpath.exam.questions import Exam
from kernelpath.exam.sitting import Tell, files, sit
from kernelpath.grading import grade


def verify(
    exam: Exam,
    folder: Path,
    old: Certificate,
    *,
    device: grade.Device = "auto",
    tell: Tell = lambda what: None,
) -> list[str]:
    """Grade the same submission again, with the certificate's seed, and say what differs; nothing if all agrees.

    Another submission is not graded. Times are compared by their stars, and only on the same device.
    Raises NotValid and grade.Usage.
    """
    if old.phase != exam.phase:
        return [f"it is a certificate of {old.phase}, not of {exam.phase}"]
    now = files(exam, folder)
    changed = [name for name in sorted({*now, *old.files}) if now.get(name) != old.files.get(name)]
    if changed:
        return [f"{name} is not the file that was certified" for name in changed]
    new = sit(exam, folder, device=device, seed=old.seed, tell=tell)
    return _differences(old, new)


def _differences(old: Certificate, new: Certificate) -> list[str]:
    found = []
    graded = {report.exercise: report for report in new.exercises}
    for was in old.exercises:
        report = graded.get(was.exercise)
        if report is None or report.verdict is not was.verdict:
            ended = report.verdict.value if report else "no exercise of this course"
            found.append(f"{was.exercise} was {was.verdict.value} and is {ended}")
        elif report.device == was.device and report.stars < was.stars:
            found.append(f"{was.exercise} had {was.stars} stars and has {report.stars}")
    endings = [[report.verdict for report in one.deliverable] for one in (old, new)]
    if endings[0] != endings[1]:
        found.append("the deliverable does not end as it did at the sizes drawn")
    found += [
        f"the answer to {key} was {'right' if was else 'wrong'}"
        for key, was in old.answers.items()
        if new.answers.get(key) is not was
    ]
    if old.score != new.score:
        found.append(f"the score was {old.score} and is {new.score}")
    return found
