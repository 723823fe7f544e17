"""Refuse instructions that an older architecture lacks, in ptxas's words. PTX ISA manual, "Target ISA Notes"."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache

from warpcheck.op import registers
from warpcheck.ptx import Instruction
from warpcheck.target import TARGETS, capability

__all__ = ["refusal", "target_with"]

# The first compute capability with a variant, and a pattern that matches its name; the groups are what ptxas calls it.
#
# Targets before sm_75 are not distinguished: the compilers of CUDA 13 do not support them.
_FEATURES = (
    (90, r"(mbarrier\.(?:try_wait|expect_tx|complete_tx))\b"),
    (90, r"(mbarrier\.arrive(?:_drop)?\.expect_tx)\b"),
    (90, r"(elect|mapa|getctarank|stmatrix|griddepcontrol|st\.async|red\.async|tensormap\.cp_fenceproxy)\b"),
    (90, r"(barrier\.cluster\.\w+)"),
    (90, r"fence(?:\.proxy)?(\.async|\.tensormap|\.mbarrier_init)"),
    (90, r"(cp\.(?:reduce\.)?async\.bulk)\b"),
    (90, r"prefetch(\.tensormap)"),
    (90, r"(multimem)\b"),
    (90, r".*(::cluster)\b"),
    (90, r"(?:ld|st|atom|red|fence|mbarrier|cp)\b.*(\.cluster)\b"),
    (90, r"(?:atom|red)\b.*(\.v[248])\b"),
    (90, r"(?:min|max)(\.relu)\.s"),
    (89, r"(cvt)\b.*\.e[45]m[23]x2"),
    (89, r"mma\b.*(\.e[45]m[23])\b"),
    (90, r"mma\b.*(\.m16n8k(?:4|8|16))\.row\.col\.f64"),
    (100, r"(add|sub|mul|fma)\b.*(\.f32x2|\.f32\.b?f16)"),
    (100, r"(clusterlaunchcontrol\.try_cancel\.async)\b"),
    (100, r"clusterlaunchcontrol\.query_cancel(\.\w+)"),
    (100, r"cp\.(?:reduce\.)?async\.bulk\.tensor\b.*(\.tile::(?:gather|scatter)4)\b"),
    (100, r"(st\.bulk)\b"),
    (90, r"(add|sub|mul|set|setp|tanh|ex2)\b.*(\.bf16(?:x2)?)\b"),
    (90, r"(?:atom|red)\b.*(\.bf16(?:x2)?)\b"),
    (90, r"(add|min|max)\b.*(\.[us]16x2)\b"),
    (90, r"(cvt)\b.*(\.bf16\.(?!f32\b)\w+|\.(?!f32\b)\w+\.bf16)$"),
    (86, r"(?:min|max)\b.*\.xorsign(\.abs)\b"),
    (80, r"(redux|discard|applypriority)\b"),
    (80, r"(createpolicy\.\w+|mbarrier\.\w+)"),
    (80, r"(cp\.async(?:\.(?:commit_group|wait_group|wait_all|mbarrier\.arrive))?)\b"),
    (80, r".*(\.bf16(?:x2)?|\.tf32)\b"),
    (80, r"mma\b.*(\.m16n8k(?:16|32|64|128|256))\b"),
    (80, r"w?mma\b.*(\.f64)\b"),
    (80, r"mma\b.*(\.and)\b"),
    (80, r"(min|max)\b.*(\.f16(?:x2)?)\b"),
    (80, r"(?:min|max)\b.*(\.NaN)\b"),
    (80, r"(?:fma|cvt)\b.*(\.relu)\b"),
    (80, r"(cvt)\b.*(\.f16x2\.f32)\b"),
    (80, r".*(\.L2::(?:cache_hint|256B))\b"),
    (80, r"prefetch\b.*(\.L2::evict_\w+)"),
)

_WIDE_ACCESS = re.compile(r"(?:ld|st)\b.*\.(?:v8\.\w32|v4\.\w64)")

# Variants that only architecture-specific targets from sm_100a on have.
_BLACKWELL = (
    (r"(tcgen05\.(?!ld\b|st\b)\w+)", "Instruction"),
    (r"tcgen05\.(?:ld|st)\b.*?(\.\d+x\d+b)", "Feature"),
    (r"(redux)\.sync\b.*(\.f32)", "Instruction"),
    (r"cvt(\.rs)\b", "Feature"),
    (r"(cvt)\b.*(\.(?:e2m[13]|e3m2|ue8m0)x2\b.*)", "Feature"),
    (r"(cvt)\b.*(\.\w+\.(?:e2m[13]|e3m2|ue8m0)x2)", "Feature"),
    (r"mma\b.*(\.block_scale|\.kind::\w+)", "Feature"),
    (r"(?:ld|st)matrix\b.*(\.m16n16|\.m8n16|\.m16n8)\b", "Feature"),
    (r"cp\b.*(\.im2col::w::128)", "Feature"),
    (r"cp\b.*(\.cta_group::\d)", "Feature"),
)

# Instructions that only the architecture-specific target sm_90a has.
_HOPPER = re.compile(r"(wgmma\.\w+)\b")

# Instructions that only architecture-specific targets from sm_90a on have.
_SPECIFIC = re.compile(r"(setmaxnreg\.\w+|tensormap\.replace)\b")

# Instructions of Blackwell that sm_100a lacks: sm_103f and sm_110f have them.
_ELSEWHERE = re.compile(r"(tcgen05\.ld\.red)\b")

_REGISTERS = re.compile(r"%(?:is_explicit_cluster|n?clusterid|cluster_n?cta(?:id|rank)|aggr_smem_size)\b")


def refusal(instruction: Instruction, target: str, since: int) -> str:
    """Return why ptxas refuses an instruction for a target, or an empty text.

    Args:
        target: Such as "sm_80".
        since: The first compute capability that has the opcode.
    """
    name = instruction.name
    if refused := _refusal_of_specific(name, target):
        return refused
    available = capability(target)
    special = ((90, register.partition(".")[0]) for register in _special_registers(registers(instruction.operands)))
    requirements = (*_features(name), *_by_operands(instruction), *special, (since, instruction.opcode))
    # Of several features that are missing, the first row that matches names the one that is reported.
    unavailable = [(first, name) for first, name in requirements if first > available]
    return f"Feature '{unavailable[0][1]}' requires .target sm_{unavailable[0][0]} or higher" if unavailable else ""


@cache
def _refusal_of_specific(name: str, target: str) -> str:
    """Return why ptxas refuses a variant that only architecture-specific targets have, or an empty text."""
    # A kernel has a hundred times as many instructions as variants.
    available = capability(target)
    # Architecture-specific: PTX for plain sm_90 lacks them, too (PTX ISA, ".target").
    is_specific = available >= 90 and not target[-1].isdigit()
    if target != "sm_90a" and (hopper := _HOPPER.match(name)):
        return f"Instruction '{hopper[1]}' not supported on .target '{target}'"
    if not is_specific and (specific := _SPECIFIC.match(name)):
        return f"Instruction '{specific[1]}' not supported on .target '{target}'"
    if (available < 100 or not is_specific) and (unsupported := _only_on_blackwell(name)):
        return f"{unsupported} not supported on .target '{target}'"
    if elsewhere := _ELSEWHERE.match(name):
        return f"Instruction '{elsewhere[1]}' not supported on .target '{target}'"
    return ""


def target_with(refused: str) -> str:
    """Return the first of the machine's targets that has what ``refusal`` says is missing; empty where none has it."""
    feature = re.fullmatch(r"Feature '.*' requires \.target (sm_\d+) or higher", refused)
    specific = re.fullmatch(r"(Instruction|Feature) '(.*)' not supported on \.target '\w+'", refused)
    if specific and _ELSEWHERE.match(specific[2]):
        return ""
    if specific:
        is_of_hopper = _HOPPER.match(specific[2]) or _SPECIFIC.match(specific[2])
        return "sm_90a" if is_of_hopper else "sm_100a"
    candidates = (name for name in TARGETS if feature and capability(name) >= capability(feature[1]))
    return min(candidates, key=capability, default="")


@cache
def _features(name: str) -> tuple[tuple[int, str], ...]:
    """Return what a variant needs by its name: the first compute capability, and what ptxas calls it."""
    matches = ((first, re.match(variant, name)) for first, variant in _FEATURES)
    features = [(first, "".join(filter(None, match.groups()))) for first, match in matches if match]
    if _WIDE_ACCESS.match(name):
        features.append((100, "256 bit wide load/store"))
    return tuple(features)


def _by_operands(instruction: Instruction) -> Iterator[tuple[int, str]]:
    """Yield the same for what the operands decide."""
    if instruction.opcode in ("min", "max") and len(instruction.operands) == 4:
        yield 100, f"{instruction.opcode}.{instruction.modifiers[-1]} with 3 input operands"


@cache
def _only_on_blackwell(name: str) -> str:
    """Return what ptxas calls a variant that targets before sm_100a lack; an empty text for all others."""
    matches = ((kind, re.match(variant, name)) for variant, kind in _BLACKWELL)
    return next((f"{kind} '{''.join(filter(None, match.groups()))}'" for kind, match in matches if match), "")


def _special_registers(names: Iterable[str]) -> Iterator[str]:
    return (name for name in names if _REGISTERS.match(name))
