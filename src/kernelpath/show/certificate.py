"""The page of a certificate. It is for reading; the certificate is the JSON file."""

from __future__ import annotations

from kernelpath.exam.certificate import Certificate
from kernelpath.show import templates


def page(certificate: Certificate) -> str:
    """HTML that stands alone."""
    return templates.render("certificate.html", certificate=certificate)
