"""Verifies a certificate: grades the same submission again with its seed, and reports what differs."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from kernelpath.exam.certificate import SELF, TEACHER, Certificate, Written
from kernelpath.exam.sheet import Sheet
from kernelpath.exam.sitting import Tell, files, sit
from kernelpath.grading import grade
from kernelpath.verdict import Report


@dataclass(frozen=True)
class Verified:
    """What grading again says: what differs, a sentence each, and what of the certificate it cannot find again."""

    differences: tuple[str, ...]
    trusted: tuple[str, ...] = ()


def verify(
    sheet: Sheet, old: Certificate, *, device: grade.Device = "auto", tell: Tell = lambda what: None
) -> Verified:
    """Grade the same submission again, with the certificate's seed; nothing differs if all agrees.

    Another submission is not graded. Times are compared by their stars, and only on the same device.
    Raises NotValid and grade.Usage.
    """
    if sheet.paper.name != old.name:
        return _differs(f"{sheet.path} is the sheet of {sheet.paper.name}; the certificate is {old.name}'s")
    if sheet.paper.twist.name != old.twist:
        drawn = f"{old.name} drew the deliverable {old.twist}, now {sheet.paper.twist.name}"
        return _differs(f"the course has changed: {drawn}")
    now = files(sheet.paper, sheet.path.parent)
    changed = [name for name in sorted({*now, *old.files}) if now.get(name) != old.files.get(name)]
    if changed:
        return _differs(*(f"{name} is not the file that was certified" for name in changed))
    new = sit(sheet, device=device, seed=old.seed, tell=tell)
    trusted = ["the date", "the machine"]
    if old.marked_by == TEACHER:
        trusted.append("a teacher's marks")
    if any(report.stars > 1 or report.measurement for report in old.exercises):
        here = "" if old.device == new.device else f" and stars, which were measured on {old.device}"
        trusted.append(f"times{here}")
    return Verified(tuple(_differences(old, new)), tuple(trusted))


def _differs(*sentences: str) -> Verified:
    return Verified(sentences)


def _differences(old: Certificate, new: Certificate) -> list[str]:
    graded = {report.exercise: report for report in (*new.exercises, new.deliverable)}
    found = []
    for was in (*old.exercises, old.deliverable):
        found += _difference(was, graded.get(was.exercise))
    if _graded(old) != _graded(new):
        found.append("the exercises and the deliverable are not those of the exam")
    right = {one.key: one.right for one in new.answers}
    found += [
        f"the answer to {was.key} was {'right' if was.right else 'wrong'}"
        for was in old.answers
        if right.get(was.key) is not was.right
    ]
    if [(one.part, one.key, one.given) for one in old.answers] != [
        (one.part, one.key, one.given) for one in new.answers
    ]:
        found.append("the answers are not those of the sheet")
    if [_unmarked(one) for one in old.written] != [_unmarked(one) for one in new.written]:
        found.append("the written answers are not those of the sheet")
    own = [one.marks for one in old.written], [one.marks for one in new.written]
    if old.marked_by == SELF and own[0] != own[1]:
        found.append("the self-assessment is not that of the sheet")
    if old.score != new.score:
        found.append(f"the score was {old.score} and is {new.score}")
    if old.passed and not new.passed:
        found.append(f"it was passed, and is not: {new.missing[0]}")
    return found


def _graded(certificate: Certificate) -> tuple[str, list[str], str]:
    return certificate.phase, [one.exercise for one in certificate.exercises], certificate.deliverable.exercise


def _unmarked(answer: Written) -> Written:
    return dataclasses.replace(answer, marks=(), comment="")


def _difference(was: Report, report: Report | None) -> list[str]:
    if report is None or report.verdict is not was.verdict:
        ended = report.verdict.value if report else "no exercise of this course"
        return [f"{was.exercise} was {was.verdict.value} and is {ended}"]
    if report.device == was.device and report.stars < was.stars:
        return [f"{was.exercise} had {was.stars} stars and has {report.stars}"]
    return []
