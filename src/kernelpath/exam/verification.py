"""Verifies a certificate: grades the same submission again with its seed, and reports what differs."""

from __future__ import annotations

from kernelpath.exam.certificate import SELF, Certificate
from kernelpath.exam.sheet import Sheet
from kernelpath.exam.sitting import Tell, files, sit
from kernelpath.grading import grade
from kernelpath.verdict import Report


def verify(
    sheet: Sheet, old: Certificate, *, device: grade.Device = "auto", tell: Tell = lambda what: None
) -> list[str]:
    """Grade the same submission again, with the certificate's seed, and say what differs; nothing if all agrees.

    Another submission is not graded. Times are compared by their stars, and only on the same device; a teacher's marks
    are nothing that a program can find again. Raises NotValid and grade.Usage.
    """
    if sheet.paper.name != old.name:
        return [f"{sheet.path} is the sheet of {sheet.paper.name}; the certificate is {old.name}'s"]
    if sheet.paper.twist.name != old.twist:
        return [f"the course has changed: {old.name} drew the deliverable {old.twist}, now {sheet.paper.twist.name}"]
    now = files(sheet.paper, sheet.path.parent)
    changed = [name for name in sorted({*now, *old.files}) if now.get(name) != old.files.get(name)]
    if changed:
        return [f"{name} is not the file that was certified" for name in changed]
    return _differences(old, sit(sheet, device=device, seed=old.seed, tell=tell))


def _differences(old: Certificate, new: Certificate) -> list[str]:
    graded = {report.exercise: report for report in (*new.exercises, new.deliverable)}
    found = []
    for was in (*old.exercises, old.deliverable):
        found += _difference(was, graded.get(was.exercise))
    right = {one.key: one.right for one in new.answers}
    found += [
        f"the answer to {was.key} was {'right' if was.right else 'wrong'}"
        for was in old.answers
        if right.get(was.key) is not was.right
    ]
    if [one.text for one in old.written] != [one.text for one in new.written]:
        found.append("the written answers are not those of the sheet")
    own = [one.marks for one in old.written], [one.marks for one in new.written]
    if old.marked_by == SELF and own[0] != own[1]:
        found.append("the self-assessment is not that of the sheet")
    if old.score != new.score:
        found.append(f"the score was {old.score} and is {new.score}")
    return found


def _difference(was: Report, report: Report | None) -> list[str]:
    if report is None or report.verdict is not was.verdict:
        ended = report.verdict.value if report else "no exercise of this course"
        return [f"{was.exercise} was {was.verdict.value} and is {ended}"]
    if report.device == was.device and report.stars < was.stars:
        return [f"{was.exercise} had {was.stars} stars and has {report.stars}"]
    return []
