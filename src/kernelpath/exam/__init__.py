"""Set a phase's exam, grade it, and verify its certificate."""

from __future__ import annotations


class ExamError(Exception):
    """Report a submission, an answer sheet or a certificate that cannot be used. The message says what to do."""
