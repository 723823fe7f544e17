"""The pages of a certificate and of the whole course. They are for reading; the certificates are the JSON files."""

from __future__ import annotations

from kernelpath.exam.certificate import Certificate
from kernelpath.exam.course import Course
from kernelpath.show import templates


def page(certificate: Certificate) -> str:
    """HTML that stands alone."""
    return templates.render("certificate.html", certificate=certificate)


def course(passed: Course) -> str:
    """The whole course as HTML that stands alone."""
    return templates.render("course.html", course=passed)
