"""Compare the resources read from a cubin with those that ptxas reports."""

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
.maxnreg {max_registers}
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


@pytest.mark.parametrize(("count", "max_registers"), [(4, 64), (40, 64), (60, 24)])
def test_registers_and_spills_match_ptxas(count: int, max_registers: int, tmp_path: Path) -> None:
    loads = "\n".join(f"ld.volatile.global.f32 %f{i}, [%a+{4 * i}];" for i in range(count))
    stores = "\n".join(f"st.volatile.global.f32 [%a+{4 * i}], %f{i};" for i in reversed(range(count)))
    source = tmp_path / "sum.ptx"
    cubin = tmp_path / "sum.cubin"
    source.write_text(KERNEL.format(max_registers=max_registers, count=count, loads=loads, stores=stores))
    command: list[str | Path] = [PTXAS, "-v", "--gpu-name=sm_80", source, "-o", cubin]
    report = subprocess.run(command, check=True, capture_output=True, text=True).stderr
    registers = re.search(r"Used (\d+) registers", report)
    frame = re.search(r"(\d+) bytes stack frame", report)
    assert registers is not None
    assert resources(cubin.read_bytes()) == KernelResources(int(registers[1]), int(frame[1]) if frame else 0)
    assert (resources(cubin.read_bytes()).local_bytes > 0) == (max_registers == 24)
