"""The line below a generated table: on which GPU, and with which versions, results/ says that it was measured."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from kernelpath.show.results import Machine

PACKAGES = {
    "torch": "torch",
    "triton": "Triton",
    "nvidia-cuda-nvrtc": "NVRTC",
    "nvidia-cutlass-dsl": "CuTe DSL",
    "liger-kernel": "Liger",
}
"""The packages that decide on a measurement, as the line names them."""

REQUIRED = ("torch", "triton", "nvidia-cuda-nvrtc")
"""Those that every measurement needs. Where one is not in the record, the line says so."""


def measured(
    machine: Machine, records: Sequence[Mapping[str, str]] | None = None, needs: Iterable[str] = ()
) -> Iterator[str]:
    """Yield an empty line and then a sentence about the versions that a machine's rows were measured with.

    records: the versions of each measurement, where each has its own; the machine's by default. needs: packages besides
    REQUIRED that the rows cannot do without.
    """
    driver = f" (driver {machine.driver})" if machine.driver else ""
    yield from _sentence(
        f"Measured on {machine.gpu}{driver}", [machine.versions] if records is None else records, needs
    )


def compiled(versions: Mapping[str, str]) -> Iterator[str]:
    """Yield the same lines for what was compiled and not run."""
    yield from _sentence("Compiled", [versions], ())


def listed(versions: Mapping[str, str]) -> str:
    """Return the versions that decide on a measurement, as "torch 2.11.0, Triton 3.6.0", or that there are none."""
    known = [f"{name} {versions[package]}" for package, name in PACKAGES.items() if package in versions]
    return ", ".join(known) or "versions were not recorded"


def _sentence(begin: str, records: Sequence[Mapping[str, str]], needs: Iterable[str]) -> Iterator[str]:
    recorded = [versions for versions in records if PACKAGES.keys() & versions.keys()]
    yield ""
    if not recorded:
        yield f"{begin}. The versions were not recorded."
        return
    by_package = {
        package: list(dict.fromkeys(versions[package] for versions in recorded if package in versions))
        for package in PACKAGES
    }
    known = [f"{PACKAGES[package]} {' and '.join(found)}" for package, found in by_package.items() if found]
    sentences = [f"{begin} with {', '.join(known)}."]
    if unknown := [PACKAGES[package] for package in (*REQUIRED, *needs) if not by_package[package]]:
        sentences.append(f"The version of {' and '.join(unknown)} was not recorded.")
    if len(recorded) < len(records):
        sentences.append(f"The versions of {len(records) - len(recorded)} of {len(records)} rows were not recorded.")
    yield " ".join(sentences)
