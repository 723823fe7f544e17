"""Reading an AMD GPU's assembly: waves, LDS, matrix instructions.

report(assembly) reads the assembly that Triton generates for an AMD Instinct MI300X. It is `compiled.asm["amdgcn"]` for
the target GPUTarget("hip", "gfx942", 64), without comments and source locations. In such a file

- the first line is a comment that we added, with the bytes of LDS (local data share, AMD's shared memory) that a launch
  passes for a workgroup (a block): `; shared = 8192`;
- instructions are indented: `v_mfma_f32_32x32x8_f16 v[0:15], v[24:25], v[26:27], v[0:15]`;
- the metadata at the end has `.wavefront_size` (the lanes of a wave, AMD's warp: 64, or 32 on other GPUs),
  `.max_flat_workgroup_size` (the threads of a workgroup), and `.vgpr_count` (the vector registers of a lane, of 32 bits
  each).

A compute unit, AMD's multiprocessor, has 4 SIMDs and 65,536 bytes of LDS. A SIMD has 512 vector registers per lane and
runs up to 8 waves. Each wave takes its registers, rounded up to a multiple of 8.

results/traces/amdgcn contains such files, compressed with gzip. report receives one as plain text. Instructions are
counted as they appear in the file, whether they are in a loop or not. The report is a dict:

    wavefront          the lanes of a wave
    waves              the waves of a workgroup
    registers          the vector registers of a lane
    waves_per_simd     the waves of this kernel for which a SIMD has registers, at most 8
    workgroups         the workgroups of this kernel for which a compute unit has waves (in its 4 SIMDs together) and
                       LDS. A kernel without LDS is limited by its waves alone
    matrix             a dict with the count of each opcode that starts with v_mfma
    matrix_operations  the multiplications and additions of all of these instructions, for one wave. In its name,
                       32x32x8 are the extents M, N, and K of one multiplication, and 2b after them means 2 such
                       multiplications
    loaded, stored     the bytes that one lane loads from global memory, and stores there: global_load_…,
                       buffer_load_…, global_store_…, and buffer_store_…, followed by the width of an access: byte,
                       ubyte, or sbyte (1); short, ushort, or sshort (2); dword (4), dwordx2 (8), dwordx3 (12), or
                       dwordx4 (16)
    lds_read, lds_written
                       the bytes that one lane reads from LDS, and writes there: ds_read_… and ds_write_… are followed
                       by a letter and the bits (ds_read_u16, ds_write_b64), ds_read2_… and ds_write2_… make two such
                       accesses, and so do ds_read2st64_… and ds_write2st64_…. Other instructions that start with ds_
                       move values between lanes and don't count
    barriers           the number of s_barrier
"""

import math
import re
from collections import Counter
from pathlib import Path

WIDTHS = {"byte": 1, "ubyte": 1, "sbyte": 1, "short": 2, "ushort": 2, "sshort": 2, "dword": 4}
WIDTHS |= {f"dwordx{count}": 4 * count for count in (2, 3, 4)}
GLOBAL = re.compile(r"(?:global|buffer)_(load|store)_([a-z]+\d?)")
LDS = re.compile(r"ds_(read|write)(2?)(?:st64)?_[a-z](\d+)")
MATRIX = re.compile(r"v_mfma_[a-z0-9]+_(\d+)x(\d+)x(\d+)_(?:(\d+)b_)?")


def report(assembly: Path) -> dict:
    """Return the facts about the kernel in this file, by name."""
    text = assembly.read_text()
    names = ("wavefront_size", "max_flat_workgroup_size", "vgpr_count")
    wavefront, threads, registers = (int(re.search(rf"\.{name}:\s+(\d+)", text)[1]) for name in names)
    shared = int(re.match(r"; shared = (\d+)", text)[1])
    waves = threads // wavefront
    waves_per_simd = min(8, 512 // (8 * math.ceil(registers / 8)))
    by_waves = 4 * waves_per_simd // waves
    opcodes = Counter(re.findall(r"^\s+([a-z]\w+)", text, re.M))
    moved = Counter()
    for opcode, count in opcodes.items():
        if match := GLOBAL.match(opcode):
            moved[match[1]] += count * WIDTHS[match[2]]
        elif match := LDS.match(opcode):
            moved[match[1]] += count * int(match[2] or 1) * int(match[3]) // 8
    matrix = {opcode: count for opcode, count in opcodes.items() if opcode.startswith("v_mfma")}
    extents = {opcode: [int(number or 1) for number in MATRIX.match(opcode).groups()] for opcode in matrix}
    return {
        "wavefront": wavefront,
        "waves": waves,
        "registers": registers,
        "waves_per_simd": waves_per_simd,
        "workgroups": min(by_waves, 65_536 // shared) if shared else by_waves,
        "matrix": matrix,
        "matrix_operations": sum(count * 2 * math.prod(extents[opcode]) for opcode, count in matrix.items()),
        "loaded": moved["load"],
        "stored": moved["store"],
        "lds_read": moved["read"],
        "lds_written": moved["write"],
        "barriers": opcodes["s_barrier"],
    }
