"""Write a GitHub Actions workflow that grades a learner's repository, such as one of GitHub Classroom.

The declarations come from the course's repository, so that no commit of a learner changes how it is graded.
"""

from __future__ import annotations

import re
import string
from collections.abc import Sequence

from kernelpath.course.registry import ExerciseRef
from kernelpath.dev.gradescope import GIGABYTES, check_index, required_extras

_COURSE = re.compile(r"(?P<repository>[\w-]+/[\w.-]+)(@(?P<ref>[\w./-]+))?")


class InvalidRepository(Exception):
    """The course's repository is not named as GitHub names it. The message describes the format."""


def workflow(items: Sequence[ExerciseRef], course: str, extra_index: str = "") -> str:
    """Return the text of the workflow.

    Args:
        course: OWNER/REPO, or OWNER/REPO@REF for a branch, a tag or a commit.
        extra_index: An index that pip uses besides its own if the repository has no variable PIP_EXTRA_INDEX_URL.

    Raises InvalidRepository, and gradescope.InvalidIndex.
    """
    match = _COURSE.fullmatch(course)
    if match is None:
        raise InvalidRepository(f"{course!r} is not a repository on GitHub; give --course OWNER/REPO or OWNER/REPO@REF")
    return _WORKFLOW.substitute(
        repository=match["repository"],
        ref=match["ref"] or "''  # the default branch",
        extras=required_extras(items),
        extra_index=_or_else(extra_index),
        gigabytes=GIGABYTES,
        names=" ".join(item.name for item in items),
    )


def _or_else(extra_index: str) -> str:
    """Return the second operand of GitHub's ||, in which a quote inside a quoted text is doubled."""
    return " || '" + check_index(extra_index).replace("'", "''") + "'" if extra_index else ""


_WORKFLOW = string.Template("""\
# Grades what is pushed and writes a table to the run's summary. A learner may rewrite this file: in GitHub Classroom,
# list .github/** as a protected path. A course in a private repository needs a token, as actions/checkout describes.
# A grading needs $gigabytes GB of memory: GitHub's runners have more, a runner of your own may not.
name: kernelpath

on:
  push:
  workflow_dispatch:

permissions:
  contents: read

jobs:
  grade:
    runs-on: ubuntu-latest
    timeout-minutes: 30
    steps:
      - uses: actions/checkout@3d3c42e5aac5ba805825da76410c181273ba90b1 # v7.0.1
        with:
          path: class/submission
          persist-credentials: false # the token would lie beside what is graded
      - uses: actions/checkout@3d3c42e5aac5ba805825da76410c181273ba90b1 # v7.0.1
        with:
          repository: $repository
          ref: $ref
          path: course
          persist-credentials: false
      - uses: actions/setup-python@ece7cb06caefa5fff74198d8649806c4678c61a1 # v6.3.0
        with:
          python-version: "3.12"
          cache: pip
          cache-dependency-path: course/pyproject.toml
      - name: install
        # The index of PyTorch's wheels for CPUs, as a variable of the repository or of the organization: without it pip
        # takes those with CUDA's libraries, 3 GB that no exercise uses here.
        env:
          PIP_EXTRA_INDEX_URL: $${{ vars.PIP_EXTRA_INDEX_URL$extra_index }}
        run: pip install ./course/warpcheck './course$extras'
      - name: grade
        working-directory: course
        run: kp grade ../class $names --out ../grades
      - name: summary
        if: always()
        working-directory: course
        run: kp dev summary ../grades >> "$$GITHUB_STEP_SUMMARY"
      - uses: actions/upload-artifact@bbbca2ddaa5d8feaa63e36b76fdaad77386f024f # v7.0.0
        if: always()
        with:
          name: grades
          path: grades
""")
