"""Attention without the log-sum-exp: out = softmax(q @ k^T / sqrt(head)) @ v for each head, causal or not."""

from __future__ import annotations

from dataclasses import replace

import torch

from kernelpath.course.problems import attention


def reference(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    return attention.reference(q, k, v, causal)[0]


def magnitudes(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    """Return sum(p * |v|)."""
    return reference(q, k, v.abs(), causal)


def eager(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    """Compute attention by its formula, as attention.eager does."""
    return attention.eager(q, k, v, causal)[0]


def compulsory_bytes(
    batch: int, heads: int, kv_heads: int, tokens: int, head: int, causal: bool, dtype: str = "bfloat16"
) -> int:
    """Count q, k and v read, and out written."""
    return batch * tokens * 2 * head * (2 * heads + 2 * kv_heads)


PROBLEM = replace(
    attention.PROBLEM,
    reference=reference,
    outputs=("out",),
    magnitudes=magnitudes,
    faults=attention.softmax_faults(attention.reference),
    compulsory_bytes=compulsory_bytes,
)
