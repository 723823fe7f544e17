"""What is read in a cubin is what ptxas says of it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import triton

from warpcheck.frontends.cubin import KernelResources, resources

PTXAS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "ptxas"

KERNEL = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry sum(.param .u64 p)
.maxnreg {most}
{{
    .reg .f32 %f<{count}>;
    .reg .u64 %a;
    ld.param.u64 %a, [p];
    {loads}
    bar.sync 0;
    {stores}
    ret;
}}
"""


@pytest.mark.parametrize(("count", "most"), [(4, 64), (40, 64), (60, 24)])
def test_registers_and_spills_are_those_of_ptxas(count: int, most: int, tmp_path: Path) -> None:
    loads = "\n".join(f"ld.volatile.global.f32 %f{i}, [%a+{4 * i}];" for i in range(count))
    stores = "\n".join(f"st.volatile.global.f32 [%a+{4 * i}], %f{i};" for i in reversed(range(count)))
    source, cubin = tmp_path / "sum.ptx", tmp_path / "sum.cubin"
    source.write_text(KERNEL.format(most=most, count=count, loads=loads, stores=stores))
    command: list[str | Path] = [PTXAS, "-v", "--gpu-name=sm_80", source, "-o", cubin]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stderr
    registers = re.search(r"Used (\d+) registers", said)
    frame = re.search(r"(\d+) bytes stack frame", said)
    assert registers is not None
    assert resources(cubin.read_bytes()) == KernelResources(int(registers[1]), int(frame[1]) if frame else 0)
    assert (resources(cubin.read_bytes()).local_bytes > 0) == (most == 24)
