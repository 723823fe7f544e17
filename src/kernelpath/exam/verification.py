"""Verify a certificate by grading the same submission again with the certificate's seed."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from kernelpath.exam.certificate import SELF, TEACHER, Certificate, WrittenAnswer
from kernelpath.exam.sheet import Sheet
from kernelpath.exam.sitting import ReportProgress, digest_files, grade_exam
from kernelpath.grading import grade
from kernelpath.verdict import Report


@dataclass(frozen=True)
class VerificationResult:
    """The result of grading again.

    Attributes:
        differences: A sentence for each difference.
        unverified: The parts of the certificate that grading again cannot confirm.
    """

    differences: tuple[str, ...]
    unverified: tuple[str, ...] = ()


def verify(
    sheet: Sheet,
    old: Certificate,
    *,
    device: grade.Device = "auto",
    report_progress: ReportProgress = lambda message: None,
) -> VerificationResult:
    """Grade the same submission again with the certificate's seed, and report the differences.

    Another submission is not graded. Times are compared by their stars, and only on the same device.
    Raises ExamError and grade.Usage.
    """
    if sheet.paper.name != old.name:
        return _mismatch(f"{sheet.path} is the sheet of {sheet.paper.name}; the certificate is {old.name}'s")
    # The learner's name selects the variant of the deliverable.
    if sheet.paper.variant.name != old.twist:
        difference = f"{old.name} drew the deliverable {old.twist}, now {sheet.paper.variant.name}"
        return _mismatch(f"the course has changed: {difference}")
    digests = digest_files(sheet.paper, sheet.path.parent)
    changed = [name for name in sorted({*digests, *old.files}) if digests.get(name) != old.files.get(name)]
    if changed:
        return _mismatch(*(f"{name} is not the file that was certified" for name in changed))
    new = grade_exam(sheet, device=device, seed=old.seed, report_progress=report_progress)
    unverified = ["the date", "the machine"]
    if old.marked_by == TEACHER:
        unverified.append("a teacher's marks")
    if any(report.stars > 1 or report.measurement for report in old.exercises):
        here = "" if old.device == new.device else f" and stars, which were measured on {old.device}"
        unverified.append(f"times{here}")
    return VerificationResult(tuple(_compare(old, new)), tuple(unverified))


def _mismatch(*sentences: str) -> VerificationResult:
    return VerificationResult(sentences)


def _compare(old: Certificate, new: Certificate) -> list[str]:
    new_reports = {report.exercise: report for report in (*new.exercises, new.deliverable)}
    sentences = []
    for old_report in (*old.exercises, old.deliverable):
        sentences += _compare_reports(old_report, new_reports.get(old_report.exercise))
    if _graded_exercises(old) != _graded_exercises(new):
        sentences.append("the exercises and the deliverable differ from the exam")
    now_right = {answer.key: answer.right for answer in new.answers}
    sentences += [
        f"the answer to {answer.key} was {'right' if answer.right else 'wrong'}"
        for answer in old.answers
        if now_right.get(answer.key) is not answer.right
    ]
    if [(answer.part, answer.key, answer.given) for answer in old.answers] != [
        (answer.part, answer.key, answer.given) for answer in new.answers
    ]:
        sentences.append("the answers differ from the sheet")
    if [_without_marks(answer) for answer in old.written] != [_without_marks(answer) for answer in new.written]:
        sentences.append("the written answers differ from the sheet")
    old_marks = [answer.marks for answer in old.written]
    new_marks = [answer.marks for answer in new.written]
    if old.marked_by == SELF and old_marks != new_marks:
        sentences.append("the self-assessment differs from the sheet")
    if old.score != new.score:
        sentences.append(f"the score was {old.score} and is {new.score}")
    if old.passed and not new.passed:
        sentences.append(f"it was passed, and is not: {new.missing[0]}")
    return sentences


def _graded_exercises(certificate: Certificate) -> tuple[str, list[str], str]:
    return certificate.phase, [report.exercise for report in certificate.exercises], certificate.deliverable.exercise


def _without_marks(answer: WrittenAnswer) -> WrittenAnswer:
    return dataclasses.replace(answer, marks=(), comment="")


def _compare_reports(old_report: Report, new_report: Report | None) -> list[str]:
    if new_report is None or new_report.verdict is not old_report.verdict:
        now = new_report.verdict.value if new_report else "no exercise of this course"
        return [f"{old_report.exercise} was {old_report.verdict.value} and is {now}"]
    # Stars depend on times, which vary. More stars than the certificate has do not contradict it.
    if new_report.device == old_report.device and new_report.stars < old_report.stars:
        return [f"{old_report.exercise} had {old_report.stars} stars and has {new_report.stars}"]
    return []
