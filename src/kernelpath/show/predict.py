"""Predictions: the answer is withheld until the learner has written one down."""

from __future__ import annotations

import math
import os
import re
from types import EllipsisType

from kernelpath import words
from kernelpath.show.cells import Stop

RUN_THROUGH = "KERNELPATH_RUN_THROUGH"
"""In the environment of a run from top to bottom: predictions are left open, and the answers are shown."""

_FIRST = "Predict first: put a number in place of each ... and run the cell again. None instead shows the answer."
_SHOWN = "This notebook was run from top to bottom, so its answers are shown. Run it yourself to predict first."

_said = False

_LABELS = ("as ", "at ", "is the line ")
"""How a unit begins where the number names something, so that no ratio of two of them means anything."""

_WHOSE = re.compile(r"([^,:()\[\]]+), (.+)")
"""A unit, and whose value it is: "sectors, stride 2". What follows a colon is a name, with commas of its own."""

_SHARES: dict[float, str] = {2: "half of it", 3: "a third of it", 4: "a quarter of it", 5: "a fifth of it"}


def hold(prediction: float | str | EllipsisType | None, measured: float, unit: str) -> None:
    """Hold a prediction against what was found; None shows the answer without one.

    unit: "sectors"; with whose they are, where there are several, "sectors, stride 2"; or what the number is: "is the
    largest". Raises Stop while the prediction is still `...`, or is a
    text, so that nothing below it in the cell gives the answer away. A run from top to bottom goes on, and says so
    once.
    """
    global _said
    if isinstance(prediction, EllipsisType):
        if not os.environ.get(RUN_THROUGH):
            raise Stop(_FIRST)
        if not _said:
            print(_SHOWN)
        _said, prediction = True, None
    if isinstance(prediction, str):
        raise Stop(f"Put a number in place of {prediction!r}.")
    found = _found(measured, unit)
    if prediction is None:
        print(found)
    elif prediction == measured:
        print(f"{found}, as you predicted")
    elif unit.startswith(_LABELS) or (unit.startswith("is ") and _are_numbers_of_things(prediction, measured)):
        print(f"{found}; you predicted {words.number(prediction)}")
    else:
        print(f"{found}; you predicted {words.number(prediction)}, {_factor(prediction, measured)}")


def _are_numbers_of_things(*numbers: float) -> bool:
    """Whether the numbers may be those of a thread, a line or a test: then no number is a multiple of another."""
    return all(float(number).is_integer() for number in numbers)


def _found(measured: float, unit: str) -> str:
    """What was found: "found 32 sectors", "stride 2: found 8 sectors", "found: the largest is 4"."""
    if unit.startswith("is "):
        return f"found: {unit.removeprefix('is ')} is {words.number(measured)}"
    if split := _WHOSE.fullmatch(unit):
        return f"{split[2]}: found {words.measured(measured, split[1])}"
    return f"found {words.measured(measured, unit)}"


def _factor(prediction: float, measured: float) -> str:
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
    return _SHARES.get(1 / ratio, f"too small by a factor of {1 / ratio:.3g}")
