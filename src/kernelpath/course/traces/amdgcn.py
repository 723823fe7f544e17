"""Parse the assembly of a kernel for an AMD Instinct MI300X (gfx942): waves, registers, LDS, and matrix instructions.

The names of instructions are those of AMD's "CDNA3 Instruction Set Architecture"; the resources are the kernel's
metadata (LLVM, "User Guide for AMDGPU Backend").
"""

from __future__ import annotations

import math
import random
import re
from collections import Counter
from collections.abc import Iterator

from kernelpath.course.traces import Facts, Malformed

# The 32-bit vector registers of each lane of a SIMD, for all of its waves. A wave gets them in groups of 8.
VECTOR_REGISTERS = 512
REGISTER_GROUP = 8
# The waves of a SIMD at most, and the SIMDs of a compute unit.
MAX_WAVES = 8
SIMDS = 4

# The bytes of local data share (LDS), AMD's shared memory, of a compute unit.
LDS_BYTES = 65_536

_SHARED = re.compile(r"^; shared = (\d+)$", re.M)
_INSTRUCTION = re.compile(r"^\s+((?:v_mfma|global_|buffer_|ds_|s_barrier)\w*)")

# Matches `v_mfma_f32_32x32x8_f16`, and `v_mfma_f32_32x32x4_2b_f16` with two blocks.
_MATRIX = re.compile(r"v_mfma_[a-z0-9]+_(\d+)x(\d+)x(\d+)(?:_(\d+)b)?_")
_GLOBAL = re.compile(r"(?:global|buffer)_(load|store)_(?:(u?byte|sbyte)|([us]?short)|dword(?:x(\d))?)")
_LDS = re.compile(r"ds_(read|write)(2?)(?:st64)?_[a-z](\d+)")

# Instructions that the recordings do not have, or rarely.
_FURTHER_INSTRUCTIONS = (
    "v_mfma_f32_16x16x16_f16 a[0:3], v[2:3], v[4:5], a[0:3]",
    "v_mfma_f32_32x32x4_2b_f16 a[0:31], v[2:3], v[4:5], a[0:31]",
    "v_mfma_f32_16x16x32_fp8_fp8 v[0:3], v[2:3], v[4:5], v[0:3]",
    "v_mfma_f64_16x16x4_f64 v[0:7], v[2:3], v[4:5], v[0:7]",
    "buffer_load_dwordx2 v[2:3], v1, s[0:3], 0 offen",
    "buffer_store_dwordx3 v[2:4], v1, s[0:3], 0 offen",
    "global_load_ushort v1, v[2:3], off",
    "global_load_sbyte v1, v[2:3], off",
    "global_store_short v[2:3], v1, off",
    "global_store_byte v[2:3], v1, off",
    "ds_read_u8 v1, v2",
    "ds_read2st64_b32 v[2:3], v4 offset1:1",
    "ds_write2_b64 v1, v[2:3], v[4:5] offset1:4",
    "ds_write_b8 v1, v2",
    "ds_bpermute_b32 v1, v2, v3",
    "s_barrier",
)

# Numbers of registers for which the number of waves depends on REGISTER_GROUP.
_ROUNDED_REGISTERS = [
    registers
    for registers in range(1, 257)
    if VECTOR_REGISTERS // registers != VECTOR_REGISTERS // (REGISTER_GROUP * math.ceil(registers / REGISTER_GROUP))
    and VECTOR_REGISTERS // registers <= MAX_WAVES
]


def of(text: str) -> Facts:
    """Return the facts of the report. Raises Malformed."""
    shared_match = _SHARED.search(text)
    if shared_match is None:
        raise Malformed("this is not the recorded assembly of a kernel: there is no comment `; shared = N`")
    shared = int(shared_match[1])
    wavefront = _metadata(text, "wavefront_size")
    waves = _metadata(text, "max_flat_workgroup_size") // wavefront
    registers = _metadata(text, "vgpr_count")
    opcodes = list(_opcodes(text))
    matrix = Counter(opcode for opcode in opcodes if opcode.startswith("v_mfma"))
    waves_per_simd = min(MAX_WAVES, VECTOR_REGISTERS // (REGISTER_GROUP * math.ceil(registers / REGISTER_GROUP)))
    return {
        "wavefront": wavefront,
        "waves": waves,
        "registers": registers,
        "waves_per_simd": waves_per_simd,
        "workgroups": min(SIMDS * waves_per_simd // waves, LDS_BYTES // shared if shared else SIMDS * MAX_WAVES),
        "matrix": dict(matrix),
        "matrix_operations": sum(count * _operations(opcode) for opcode, count in matrix.items()),
        "loaded": sum(_global_bytes(opcode, "load") for opcode in opcodes),
        "stored": sum(_global_bytes(opcode, "store") for opcode in opcodes),
        "lds_read": sum(_lds_bytes(opcode, "read") for opcode in opcodes),
        "lds_written": sum(_lds_bytes(opcode, "write") for opcode in opcodes),
        "barriers": opcodes.count("s_barrier"),
    }


def vary(rng: random.Random, text: str, wavefront: int, further: int) -> str:
    """Return the assembly with other resources, and with instructions left out, repeated, and added.

    Args:
        rng: The generator.
        text: The assembly.
        wavefront: The lanes of a wave.
        further: The number of instructions that are added, besides one of each kind.
    """
    lines = []
    for line in text.splitlines():
        if line.strip() == "s_endpgm":
            lines += [f"\t{instruction}" for instruction in rng.choices(_FURTHER_INSTRUCTIONS, k=further)]
            lines += [f"\t{instruction}" for instruction in _FURTHER_INSTRUCTIONS]
        lines += [line] * (rng.choice((0, 1, 1, 2, 3)) if _INSTRUCTION.match(line) else 1)
    changed = "\n".join(lines) + "\n"
    waves = rng.choice((1, 2, 4, 8))
    resources = {
        r"(\.wavefront_size:\s+)\d+": wavefront,
        r"(\.max_flat_workgroup_size:\s+)\d+": wavefront * waves,
        # A workgroup of 8 waves needs 2 waves per SIMD, so it gets 256 registers at most.
        r"(\.vgpr_count:\s+)\d+": rng.choice(_ROUNDED_REGISTERS),
        r"(; shared = )\d+": rng.choice((0, 512 * rng.randrange(1, 129))),
    }
    for pattern, number in resources.items():
        changed = re.sub(pattern, rf"\g<1>{number}", changed)
    return changed


def _metadata(text: str, name: str) -> int:
    match = re.search(rf"^\s+(?:- )?\.{name}:\s+(\d+)$", text, re.M)
    if match is None:
        raise Malformed(f"the metadata of the kernel has no .{name}")
    return int(match[1])


def _opcodes(text: str) -> Iterator[str]:
    """Yield the instructions of matrices, memory, and barriers, in order."""
    for line in text.splitlines():
        if match := _INSTRUCTION.match(line):
            yield match[1]


def _operations(opcode: str) -> int:
    """Return the multiplications and additions of a matrix instruction, for a whole wave."""
    match = _MATRIX.match(opcode)
    assert match is not None
    return 2 * math.prod(int(number or 1) for number in match.groups())


def _global_bytes(opcode: str, direction: str) -> int:
    """Return the bytes of one lane of an access to global memory in this direction, else 0."""
    match = _GLOBAL.match(opcode)
    if match is None or match[1] != direction:
        return 0
    return 1 if match[2] else 2 if match[3] else 4 * int(match[4] or 1)


def _lds_bytes(opcode: str, direction: str) -> int:
    """Return the bytes of one lane of an access to LDS in this direction, else 0."""
    match = _LDS.match(opcode)
    if match is None or match[1] != direction:
        return 0
    return int(match[3]) // 8 * int(match[2] or 1)
