"""Format the line below a generated table: the GPU and the versions with which its rows were measured."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from kernelpath.show.results import Machine

# The packages that influence a measurement, with their names in the line.
PACKAGES = {
    "torch": "torch",
    "triton": "Triton",
    "nvidia-cuda-nvrtc": "NVRTC",
    "nvidia-cutlass-dsl": "CuTe DSL",
    "liger-kernel": "Liger",
    "quack-kernels": "Quack",
    "flash-attn-4": "FlashAttention 4",
    "cuda-cccl": "CUB of cuda-cccl",
}

# The packages that every measurement needs. The line says so if a record lacks one.
REQUIRED = ("torch", "triton", "nvidia-cuda-nvrtc")


def measured_lines(
    machine: Machine,
    records: Sequence[Mapping[str, str]] | None = None,
    needs: Iterable[str] = (),
    clock: bool = False,
) -> Iterator[str]:
    """Yield an empty line and then a sentence about the versions that a machine's rows were measured with.

    Args:
        records: The versions of each measurement if they differ, the machine's versions by default.
        needs: Further packages that the rows depend on.
        clock: Whether to name the highest SM clock that was read.
    """
    properties = [f"driver {machine.driver}"] if machine.driver else []
    if clock and "sm_mhz" in machine.telemetry:
        properties.append(f"SM clock up to {machine.telemetry['sm_mhz']:,.0f} MHz")
    described = f" ({', '.join(properties)})" if properties else ""
    yield from _sentence(
        f"Measured on {machine.gpu}{described}", [machine.versions] if records is None else records, needs
    )


def compiled_lines(versions: Mapping[str, str]) -> Iterator[str]:
    """Yield the same lines for kernels that were compiled but not run."""
    yield from _sentence("Compiled", [versions], ())


def format_versions(versions: Mapping[str, str]) -> str:
    """Format the versions that influence a measurement, as "torch 2.11.0, Triton 3.6.0", or say that there are none."""
    parts = [f"{name} {versions[package]}" for package, name in PACKAGES.items() if package in versions]
    return ", ".join(parts) or "versions were not recorded"


def _sentence(beginning: str, records: Sequence[Mapping[str, str]], needs: Iterable[str]) -> Iterator[str]:
    recorded = [versions for versions in records if PACKAGES.keys() & versions.keys()]
    yield ""
    if not recorded:
        yield f"{beginning}. The versions were not recorded."
        return
    by_package = {
        package: list(dict.fromkeys(versions[package] for versions in recorded if package in versions))
        for package in PACKAGES
    }
    parts = [
        f"{PACKAGES[package]} {' and '.join(package_versions)}"
        for package, package_versions in by_package.items()
        if package_versions
    ]
    sentences = [f"{beginning} with {', '.join(parts)}."]
    if unknown := [PACKAGES[package] for package in (*REQUIRED, *needs) if not by_package[package]]:
        sentences.append(f"The version of {' and '.join(unknown)} was not recorded.")
    if len(recorded) < len(records):
        sentences.append(f"The versions of {len(records) - len(recorded)} of {len(records)} rows were not recorded.")
    yield " ".join(sentences)
