"""Predictions: the answer is withheld until the learner has written one down."""

from __future__ import annotations

import math
import os
from types import EllipsisType

from kernelpath import words
from kernelpath.show.cells import Stop

RUN_THROUGH = "KERNELPATH_RUN_THROUGH"
"""In the environment of a run from top to bottom: predictions are left open, and the answers are shown."""

_FIRST = "Predict first: replace the dots by a number. None shows the answer without one."
_SHOWN = "This notebook was run from top to bottom, so its answers are shown. Run it yourself to predict first."

_said = False


def hold(prediction: float | EllipsisType | None, measured: float, unit: str) -> None:
    """Hold a prediction against what was found; None shows the answer without one.

    Raises Stop while the prediction is still `...`, so that nothing below it in the cell gives the answer away. A run
    from top to bottom goes on, and says so once.
    """
    global _said
    if isinstance(prediction, EllipsisType):
        if not os.environ.get(RUN_THROUGH):
            raise Stop(_FIRST)
        if not _said:
            print(_SHOWN)
        _said, prediction = True, None
    found = f"found {words.measured(measured, unit)}"
    if prediction is None:
        print(found)
    elif prediction == measured:
        print(f"{found}, as you predicted")
    else:
        print(f"{found}; you predicted {words.number(prediction)}, {_factor(prediction, measured)}")


def _factor(prediction: float, measured: float) -> str:
    if prediction <= 0 or measured <= 0 or math.isinf(measured):
        return f"off by {words.number(abs(prediction - measured))}"
    ratio = prediction / measured
    if abs(ratio - 1) < 0.01:
        return "right within 1%"
    return f"{ratio:.3g} times too much" if ratio > 1 else f"{1 / ratio:.3g} times too little"
