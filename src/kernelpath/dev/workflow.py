"""A GitHub Actions workflow that grades a learner's repository, such as GitHub Classroom makes, with a course's own.

The declarations come from the course's repository, so that nothing that a learner commits changes how it is graded.
"""

from __future__ import annotations

import re
import string
from collections.abc import Sequence

from kernelpath.course.registry import Item
from kernelpath.dev.gradescope import extras

_COURSE = re.compile(r"(?P<repository>[\w-]+/[\w.-]+)(@(?P<ref>[\w./-]+))?")


class NotARepository(Exception):
    """What is to grade is not named as GitHub names it. The message says how that is."""


def workflow(items: Sequence[Item], course: str) -> str:
    """The text of the workflow. course: OWNER/REPO, or OWNER/REPO@REF for a branch, a tag or a commit.

    Raises NotARepository.
    """
    named = _COURSE.fullmatch(course)
    if named is None:
        raise NotARepository(f"{course!r} is not a repository on GitHub; give --course OWNER/REPO or OWNER/REPO@REF")
    return _WORKFLOW.substitute(
        repository=named["repository"],
        ref=named["ref"] or "''  # the default branch",
        extras=extras(items),
        names=" ".join(item.name for item in items),
    )


_WORKFLOW = string.Template("""\
# Grades what is pushed and writes a table to the run's summary. A learner may rewrite this file: in GitHub Classroom,
# list .github/** as a protected path. A course in a private repository needs a token, as actions/checkout describes.
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
        run: pip install './course$extras'
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
