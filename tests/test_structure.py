"""No file names the machine that it was written on. `lint-imports` holds which package imports which."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# A path of somebody's machine, or the host of a private package registry.
OF_A_MACHINE = re.compile(
    r"(?<![\w.+/])/(home|root|Users|work|opt)/\w+/"
    r"|\b[\w.-]*(artifactory|nexus|devpi|pypi-)[\w-]*\.\w+|--(extra-)?index-url"
)


def test_nothing_names_this_machine() -> None:
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    named = set()
    for name in filter(None, tracked.split("\0")):
        path = ROOT / name
        if path.is_file() and OF_A_MACHINE.search(path.read_text("utf-8", errors="replace")):
            named.add(name)
    assert named == set()


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("see /{}/anna/notes.txt".format("home"), True),
        ("/{}/main/.venv".format("work"), True),
        ("https://{}.example.com/simple".format("nexus"), True),
        ("pip install --extra-{}-url https://example.com".format("index"), True),
        ("https://pypi.org/project/torch", False),
        ("src/{}/runner.py and course/{}/page".format("work", "home"), False),
    ],
)
def test_a_path_of_a_machine_is_told_from_one_of_the_checkout(text: str, named: bool) -> None:
    assert bool(OF_A_MACHINE.search(text)) == named
