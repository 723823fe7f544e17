"""A phase's exam: questions and answer sheet, sitting it, and the certificate with its verification."""

from __future__ import annotations


class NotValid(Exception):
    """A submission, an answer sheet or a certificate cannot be used. The message says what to do."""
