"""Withhold an answer until the learner has written down a prediction."""

from __future__ import annotations

import math
import os
import re
from types import EllipsisType

from kernelpath import words
from kernelpath.show.cells import Stop

RUN_THROUGH = "KERNELPATH_RUN_THROUGH"
"""The environment variable of a run from top to bottom, in which predictions stay open and answers are shown."""

_PREDICT_FIRST = (
    "Predict first: put a number in place of each ... and run the cell again. None instead shows the answer."
)
_ANSWERS_SHOWN = "This notebook was run from top to bottom, so its answers are shown. Run it yourself to predict first."

_has_announced = False

_LABEL_UNITS = ("as ", "at ", "is the line ")
"""The beginnings of units for which the number is a label, so that a ratio of two of them has no meaning."""

_UNIT_WITH_OWNER = re.compile(r"([^,:()\[\]]+), (.+)")
"""A unit and its owner: "sectors, stride 2". A colon introduces a name, which may have commas of its own."""

_FRACTIONS: dict[float, str] = {2: "half of it", 3: "a third of it", 4: "a quarter of it", 5: "a fifth of it"}


def hold(prediction: float | str | EllipsisType | None, measured: float, unit: str) -> None:
    """Compare a prediction with the measured value. None shows the answer without a prediction.

    Raises Stop while the prediction is `...` or a text, so that nothing below it in the cell reveals the answer. A run
    from top to bottom continues and says so once.

    Args:
        unit: "sectors"; with an owner if there are several values, "sectors, stride 2"; "× faster than eager" for a
            speedup, which may be below 1; or a statement: "is the largest".
    """
    global _has_announced
    if isinstance(prediction, EllipsisType):
        if not os.environ.get(RUN_THROUGH):
            raise Stop(_PREDICT_FIRST)
        if not _has_announced:
            print(_ANSWERS_SHOWN)
        _has_announced = True
        prediction = None
    if isinstance(prediction, str):
        raise Stop(f"Put a number in place of {prediction!r}.")
    answer = _format_measured(measured, unit)
    if prediction is None:
        print(answer)
    elif prediction == measured:
        print(f"{answer}, as you predicted")
    elif unit.startswith(_LABEL_UNITS) or (unit.startswith("is ") and _may_be_indices(prediction, measured)):
        print(f"{answer}; you predicted {words.number(prediction)}")
    else:
        print(f"{answer}; you predicted {_describe_prediction(prediction, measured, unit)}")


def _may_be_indices(*numbers: float) -> bool:
    """Return whether the numbers may be indices of a thread, a line or a test, which have no ratios."""
    return all(float(number).is_integer() for number in numbers)


def _format_measured(measured: float, unit: str) -> str:
    """Format the measured value: "found 32 sectors", "stride 2: found 8 sectors", "found: the largest is 4"."""
    if unit.startswith("is "):
        return f"found: {unit.removeprefix('is ')} is {words.number(measured)}"
    if split := _UNIT_WITH_OWNER.fullmatch(unit):
        return f"{split[2]}: found {words.measured(measured, split[1])}"
    return f"found {words.measured(measured, unit)}"


def _describe_prediction(prediction: float, measured: float, unit: str) -> str:
    """Describe a prediction and its error. Two slowdowns are compared with each other, but never with a speedup."""
    if not unit.startswith(words.FASTER):
        return f"{words.number(prediction)}, {_compare(prediction, measured)}"
    label = words.measured(prediction, words.FASTER)
    # The product is negative if one is a speedup and the other a slowdown.
    if prediction <= 0 or (prediction - 1) * (measured - 1) <= 0:
        return label
    error = _compare(prediction, measured) if measured > 1 else _compare(1 / prediction, 1 / measured)
    return f"{label}, {error}"


def _compare(prediction: float, measured: float) -> str:
    if prediction <= 0 or measured <= 0 or not math.isfinite(measured - prediction):
        return f"off by {words.number(abs(prediction - measured))}"
    ratio = prediction / measured
    if not 1e-3 < ratio < 1e3:
        return f"{'more than 1,000 times' if ratio > 1 else 'less than a thousandth of'} that"
    if abs(ratio - 1) < 0.01:
        return "right within 1%"
    if ratio > 1:
        return "twice that" if ratio == 2 else f"too large by a factor of {ratio:.3g}"
    if ratio > 0.5:
        return f"{words.share(ratio)} of it"
    return _FRACTIONS.get(1 / ratio, f"too small by a factor of {1 / ratio:.3g}")
