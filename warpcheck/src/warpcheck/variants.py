"""The variants of an instruction: which modifiers may follow its opcode.

A variant lists what follows the opcode, as the syntax sections of the PTX ISA manual do: ``a|b`` is a choice, ``a?`` is
optional, capitals stand for a choice below.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["CHOICES", "variant_pattern"]

CHOICES = {
    "INTEGER": "u16|s16|u32|s32|u64|s64",
    "WORD": "u32|s32|u64|s64",
    "BITS": "b16|b32|b64",
    "FLOAT": "f32|f64",
    "HALF": "f16|f16x2",
    "BHALF": "bf16|bf16x2",
    "ROUND": "rn|rz|rm|rp",
    "INTEGRAL": "rni|rzi|rmi|rpi",
    "COMPARE": "eq|ne|lt|le|gt|ge|lo|ls|hi|hs|equ|neu|ltu|leu|gtu|geu|num|nan",
    "LOGIC": "and|or|xor",
    "SHARED": "shared(?:::cta)?",
    "CLUSTER": "shared::cluster",
    "SPACE": "global|const|local|shared(?:::cta|::cluster)?|param(?:::entry|::func)?",
    "SCOPE": "cta|cluster|gpu|sys",
    "CACHE": "ca|cg|cs|lu|cv|wb|wt",
    "EVICT1": r"L1::\w+",
    "EVICT2": r"L2::evict_\w+",
    "HINT": "L2::cache_hint",
    "PREFETCH": "L2::64B|L2::128B|L2::256B",
    "TILE": "m16n16k16|m32n8k16|m8n32k16|m16n16k8",
}


def variant_pattern(opcode: str, variants: Iterable[str]) -> re.Pattern[str]:
    """Return a pattern that matches the names of an opcode's variants."""
    return re.compile(opcode + "(?:" + "|".join("".join(map(_slot, variant.split())) for variant in variants) + ")")


def _slot(choice: str) -> str:
    r"""Return one item of a variant as a regular expression: ``ftz?`` becomes ``(?:\.(?:ftz))?``."""
    names = re.sub(r"\b[A-Z][A-Z0-9]*\b", lambda match: CHOICES.get(match[0], match[0]), choice.removesuffix("?"))
    return rf"(?:\.(?:{names}))" + "?" * choice.endswith("?")
