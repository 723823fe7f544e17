"""Render the pages of a certificate and of the whole course.

The pages are for reading; the certificates are the JSON files.
"""

from __future__ import annotations

from kernelpath.exam.certificate import Certificate
from kernelpath.exam.course import CourseCertificate
from kernelpath.show import templates


def render_certificate(certificate: Certificate) -> str:
    """Return a certificate as a self-contained HTML page."""
    return templates.render("certificate.html", certificate=certificate)


def render_course(certificate: CourseCertificate) -> str:
    """Return the certificate of the whole course as a self-contained HTML page."""
    return templates.render("course.html", course=certificate)
