"""Test that no file contains a path or a name of a developer's computer. `lint-imports` checks the imports."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# A path of a developer's computer, or the host of a private package registry.
FOLDERS = ("home", "root", "Users", "work", "opt")
HOSTS = ("artifactory", "nexus", "devpi", "pypi-")
OF_A_MACHINE = re.compile(
    rf"(?<![\w.+/])/({'|'.join(FOLDERS)})/\w+/|\b[\w.-]*({'|'.join(HOSTS)})[\w-]*\.\w+|--(extra-)?index-url"
)
# Every match of the pattern contains one of these strings, and searching for strings is much faster.
HINTS = (*(f"/{folder}/" for folder in FOLDERS), *HOSTS, "index-url")


def names_a_machine(text: str) -> bool:
    return any(hint in text for hint in HINTS) and OF_A_MACHINE.search(text) is not None


def test_no_file_names_this_computer() -> None:
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    named = set()
    for name in filter(None, tracked.split("\0")):
        path = ROOT / name
        if path.is_file() and names_a_machine(path.read_text("utf-8", errors="replace")):
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
def test_a_path_of_a_computer_is_distinguished_from_one_of_the_checkout(text: str, named: bool) -> None:
    assert names_a_machine(text) == named
