"""Prepare the notebooks for Colab: a first cell installs the course where it is missing.

Colab opens notebooks from GitHub. Where the pages are published there, each links to its own notebook; elsewhere a
reader uploads it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nbformat import NotebookNode

BRANCH = "gh-pages"
FOLDER = "/content/kernelpath"

# The wheels of warpcheck and the course, which the reader uploads, for an installation without a known address.
#
# Beside the files, the name only adds the extra: pip takes the package from the file.
WHEELS = "/content/*.whl 'kernelpath[all]'"

_ADDRESS = re.compile(r"(?:https://github\.com/)?([\w.-]+/[\w.-]+?)(?:\.git)?/?(?:@([\w./-]+))?")


@dataclass(frozen=True)
class Address:
    """A GitHub repository with the course, and the branch at whose root the pages are published."""

    repository: str
    branch: str = BRANCH

    @classmethod
    def of(cls, text: str) -> Address:
        """Parse "OWNER/REPO" or "OWNER/REPO@BRANCH". Raises ValueError."""
        match = _ADDRESS.fullmatch(text)
        if not match:
            raise ValueError(f"{text} is no address; write OWNER/REPO or OWNER/REPO@BRANCH")
        return cls(match[1], match[2] or BRANCH)

    @property
    def pip_requirements(self) -> str:
        """Return the two packages for pip: the PTX machine, and the course."""
        repository = f"git+https://github.com/{self.repository}"
        return f"'warpcheck @ {repository}#subdirectory=warpcheck' 'kernelpath[all] @ {repository}'"

    def link(self, name: str) -> str:
        """Return the link that opens a notebook in the folder of the pages."""
        return f"https://colab.research.google.com/github/{self.repository}/blob/{self.branch}/{name}"


def install_cell(address: Address | None) -> str:
    """Return the source of the first cell, which acts only on Colab, whose machines are new each time."""
    return (
        "import sys\n\n"
        'if "google.colab" in sys.modules:  # a fresh machine: install the course, and make a folder to work in\n'
        f"    %pip install -q {address.pip_requirements if address else WHEELS}\n"
        f"    !kp new {FOLDER}\n"
        f"    %cd -q {FOLDER}"
    )


def add_install_cell(original: NotebookNode, address: Address | None) -> NotebookNode:
    """Return a copy of a notebook of the course that begins with the installing cell."""
    import nbformat

    copy: NotebookNode = nbformat.from_dict(original)
    for cell in copy.cells:
        if cell.cell_type == "markdown":
            cell.source = re.sub(r"\]\((?:[^)\s]*/)?(week\w+\.ipynb)", r"](\1", cell.source)
    install = nbformat.v4.new_code_cell(install_cell(address))
    install["id"] = "colab"
    copy.cells.insert(0, install)
    return copy
