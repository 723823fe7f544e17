"""Test that text of a submission, as in exceptions and names, cannot end the worker or run in the grader's thread."""

from __future__ import annotations

import pytest

from kernelpath.verdict import Report, Verdict
from tests.conftest import GradeText

# The definitions of a submission, the exception that it raises, and the start of the cause.
RAISES = {
    "its text cannot be made": (
        "class Hostile(Exception):\n    def __str__(self): raise SystemExit(3)\n",
        "Hostile()",
        "Hostile: (its text cannot be made)",
    ),
    "its text ends Python": (
        "class Hostile(Exception):\n    def __str__(self): raise KeyboardInterrupt\n",
        "Hostile()",
        "Hostile: (its text cannot be made)",
    ),
    "its text is no text": (
        "class Hostile(Exception):\n    def __str__(self): return 7\n",
        "Hostile()",
        "Hostile: (its text cannot be made)",
    ),
    "half of a character": ("", "ValueError('half \\ud800')", "ValueError: half \\ud800"),
    "a text with methods of its own": (
        "class Text(str):\n    def strip(self): raise SystemExit(3)\n    splitlines = __format__ = strip\n"
        "class Hostile(Exception):\n    def __str__(self): return Text('hello')\n",
        "Hostile()",
        "Hostile: ",
    ),
    "a class that lies about its name": (
        "class Meta(type):\n    __name__ = property(lambda self: 7 / 0)\n"
        "class Hostile(Exception, metaclass=Meta): pass\n",
        "Hostile('x')",
        "Hostile: ",
    ),
    "a class that lies about itself": (
        "class Hostile(Exception):\n    __class__ = property(lambda self: 7 / 0)\n",
        "Hostile('hello')",
        "Hostile: ",
    ),
    "a traceback that is none": (
        "class Hostile(Exception):\n    __traceback__ = property(lambda self: 7 / 0, lambda self, value: None)\n",
        "Hostile('hello')",
        "Hostile: hello",
    ),
    "a fault of ours with wrong fields": (
        "from warpcheck.simt import Fault, FaultKind\n"
        "def made():\n    fault = Fault.__new__(Fault)\n"
        "    fault.kind, fault.message, fault.file, fault.line = FaultKind.RACE, 'a\\udc80', b'x', -3\n"
        "    return fault\n",
        "made()",
        "a\\udc80",
    ),
    "causes in a circle": (
        "class CompilationError(Exception): pass\n"
        "def made():\n    one, other = CompilationError('one'), CompilationError('other')\n"
        "    one.__cause__, other.__cause__ = other, one\n    return one\n",
        "made()",
        "one",
    ),
}

WHEN = {
    Verdict.COMPILE_ERROR: "{defined}\nraise {raised}\n",
    Verdict.CRASHED: "{defined}\ndef double(x):\n    raise {raised}\n",
}


@pytest.mark.parametrize("when", WHEN)
@pytest.mark.parametrize("error", RAISES)
def test_a_hostile_exception_affects_only_its_submission(grade_text: GradeText, error: str, when: Verdict) -> None:
    defined, raised, begins = RAISES[error]
    report = grade_text(WHEN[when].format(defined=defined, raised=raised))
    assert report.verdict in (when, Verdict.RACE, Verdict.COMPILE_ERROR), report.cause
    assert report.cause.startswith(begins), report.cause
    report.cause.encode()


def test_a_location_in_an_endless_file_is_not_read(grade_text: GradeText) -> None:
    report = grade_text("exec(compile('def double(x): raise ValueError(1)', '/dev/zero', 'exec'))\n")
    assert (report.verdict, report.cause) == (Verdict.CRASHED, "ValueError: 1")


STACK = (
    "def stack():\n"
    "    frame, names = sys._getframe(), []\n"
    "    while frame: names.append(frame.f_code.co_name); frame = frame.f_back\n"
    "    return ' '.join(names)\n"
)


def frames_of(report: Report) -> list[str]:
    return report.printed.split()


@pytest.mark.parametrize(
    "source",
    [
        "class Hostile(Exception):\n    def __str__(self): print(stack(), flush=True); return ''\n"
        "def double(x):\n    raise Hostile\n",
        "class Entry:\n    def __call__(self, x): return 2 * x\n"
        "    @property\n    def __signature__(self): print(stack(), flush=True); raise AttributeError\n"
        "double = Entry()\n",
    ],
)
def test_no_code_of_a_submission_runs_above_the_graders_frames(grade_text: GradeText, source: str) -> None:
    """Code in the thread that responds to the grader could find the secret of the request in the frames above."""
    frames = frames_of(grade_text(f"import sys\n{STACK}{source}"))
    assert "stack" in frames
    assert "answer" not in frames
