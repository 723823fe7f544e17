"""Withhold an answer until the learner has written down a prediction."""

from __future__ import annotations

import math
import os
import re
from types import EllipsisType

from kernelpath import words
from kernelpath.show.cells import Stop

# The environment variable of a run from top to bottom, in which predictions stay open and answers are shown.
RUN_THROUGH = "KERNELPATH_RUN_THROUGH"

_WORK_OUT_FIRST = (
    "Work it out first: put a number in place of each ... and run the cell again. None instead shows the answer."
)
_GUESS_FIRST = (
    "Guess first: put a number in place of each ... and run the cell again. Nobody can work out a time exactly; within "
    "a factor of 1.5 is a good guess. None instead shows the answer."
)
_ANSWERS_SHOWN = "This notebook was run from top to bottom, so its answers are shown. Run it yourself to predict first."

_has_announced = False

# The beginnings of units whose integers name a thing, such as a line or a lane: another number is another thing.
_IDENTITY_UNITS = ("as ", "at ", "is ", "for lane ", "in lane ", "in out", "in the ", "where")

# Things that are few enough to be counted, so that a wrong count is wrong, whatever its ratio to the right one.
_COUNTED_THINGS = ("barriers", "boxes", "kernels", "launches", "ranks", "stages", "waits")

# Matches a unit of a time or a speed, which is measured.
_TIMED_UNIT = re.compile(
    r"(× |times as long|times slower|% (gained|slower)|(useful )?[GT]B/s|TFLOP/s|tokens per second"
    r"|(ns|ms|µs|seconds|milliseconds|microseconds)\b"
    r"|of (a copy|cuBLAS|cuDNN|mma\.sync|PyTorch|the (best|speed|read-only speed))\b)"
)

# Matches a unit of a time or a speed that is calculated, as if only one thing mattered.
_CALCULATED_UNIT = re.compile(r"if bytes decide|at best|no gaps|by the number of")

# The factor within which a guess of a time or a speed is good.
GOOD_GUESS = 1.5

# A unit and its owner: "sectors, stride 2". A colon introduces a name, which may have commas of its own.
_UNIT_WITH_OWNER = re.compile(r"([^,:()\[\]]+), (.+)")

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
            raise Stop(_GUESS_FIRST if is_guess(unit) else _WORK_OUT_FIRST)
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
    elif is_exact(unit, prediction, measured):
        print(f"{answer}; wrong, you predicted {words.number(prediction)}")
    else:
        print(f"{answer}; you predicted {_describe_prediction(prediction, measured, unit)}")


def is_guess(unit: str) -> bool:
    """Return whether a value in this unit has to be guessed: a time or a speed, which depends on the whole machine.

    Other values can be worked out from the page, with pencil and paper.
    """
    return _TIMED_UNIT.match(unit) is not None and _CALCULATED_UNIT.search(unit) is None


def is_exact(unit: str, prediction: float, measured: float) -> bool:
    """Return whether a prediction is right or wrong, and not more or less so.

    A number that names a thing (a line, a lane) has no ratio to another one, and a count of few things, such as
    launches, is right or wrong. Both are integers.
    """
    named = unit.startswith(_IDENTITY_UNITS) or unit.split(" ", 1)[0].strip(",") in _COUNTED_THINGS
    return named and all(float(number).is_integer() for number in (prediction, measured))


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
        return f"{words.number(prediction)}, {_score(prediction, measured, unit)}"
    label = words.measured(prediction, words.FASTER)
    # The product is negative if one is a speedup and the other a slowdown.
    if prediction <= 0 or (prediction - 1) * (measured - 1) <= 0:
        return label
    error = _score(prediction, measured, unit) if measured > 1 else _score(1 / prediction, 1 / measured, unit)
    return f"{label}, {error}"


def _score(prediction: float, measured: float, unit: str) -> str:
    """Compare two amounts. A guess is good within a factor of GOOD_GUESS."""
    error = compare(prediction, measured)
    if not is_guess(unit) or prediction <= 0 or measured <= 0:
        return error
    ratio = prediction / measured
    return f"{error}: a good guess" if 1 / GOOD_GUESS <= ratio <= GOOD_GUESS else error


def compare(prediction: float, measured: float) -> str:
    """Describe the ratio of a number to the right one: "half of it", "too large by a factor of 2.5"."""
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
