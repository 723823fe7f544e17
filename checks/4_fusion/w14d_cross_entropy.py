"""Cross-entropy: loss and gradient without stored probabilities.

Week 14. loss = logsumexp(logits) - logits[label] along each row, and dlogits = (softmax - 1 at the label) / n.
"""

from collections.abc import Sequence
from itertools import product
from typing import Any

import torch

from kernelpath.course.problems import cross_entropy
from kernelpath.course.spec import Exercise, Traffic


def gradient_like_logits(inputs: Sequence[Any], outputs: Sequence[torch.Tensor]) -> str | None:
    """The gradient goes back into the product that made the logits, in their dtype."""
    for gradient in outputs[1:]:
        if gradient.dtype != inputs[0].dtype:
            found, wanted = (str(tensor.dtype).removeprefix("torch.") for tensor in (gradient, inputs[0]))
            return f"dlogits has dtype {found}, and the logits have {wanted}"
    return None


EXERCISE = Exercise(
    entry="cross_entropy",
    problem=cross_entropy.PROBLEM,
    bench={"rows": 8192, "classes": 128_256, "dtype": "bfloat16", "gradient": True},  # 2.1 GB in, 2.1 GB out
    sweep=tuple(
        {"rows": (1 << 29) // classes, "classes": classes, "dtype": dtype, "gradient": gradient}
        for gradient, dtype, classes in product(
            (True, False), ("bfloat16", "float32"), (32_000, 50_257, 65_536, 128_256, 151_936, 262_144)
        )
    ),
    baseline=cross_entropy.operators,
    # On an H200 the reference kernel reaches 3.9, a row per program 2.3 to 2.6, torch.compile's way 1.7.
    min_speedup=1.6,
    # Logits read for the sum and again for the gradient make 1.5, and 1.7 with those of ignored rows. A pass for the
    # maximum alone makes 1.9 or more.
    traffic=Traffic(sectors=1.3, bank_conflicts=1.0, bytes=1.8, edges=None),
    workspace=0.1,  # the probabilities would be 0.5
    check=gradient_like_logits,
)
