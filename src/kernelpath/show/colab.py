"""The notebooks for Colab: written beside the pages, with a first cell that installs the course where it is missing.

Colab opens notebooks from GitHub. Where the pages are published there, each links to its own; else a reader uploads it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nbformat import NotebookNode

BRANCH = "gh-pages"
FOLDER = "/content/kernelpath"
WHEELS = "/content/*.whl"
"""What is installed where no address is known: the wheels of warpcheck and the course, which the reader uploads."""

_ADDRESS = re.compile(r"(?:https://github\.com/)?([\w.-]+/[\w.-]+?)(?:\.git)?/?(?:@([\w./-]+))?")


@dataclass(frozen=True)
class Address:
    """A GitHub repository with the course, and the branch at whose root the pages are published."""

    repository: str
    branch: str = BRANCH

    @classmethod
    def of(cls, text: str) -> Address:
        """From "OWNER/REPO" or "OWNER/REPO@BRANCH". Raises ValueError."""
        found = _ADDRESS.fullmatch(text)
        if not found:
            raise ValueError(f"{text} is no address; write OWNER/REPO or OWNER/REPO@BRANCH")
        return cls(found[1], found[2] or BRANCH)

    @property
    def installed(self) -> str:
        """Return the two packages for pip: the PTX machine, and the course."""
        repository = f"git+https://github.com/{self.repository}"
        return f"'warpcheck @ {repository}#subdirectory=warpcheck' {repository}"

    def link(self, name: str) -> str:
        """Opens a notebook that lies beside the pages."""
        return f"https://colab.research.google.com/github/{self.repository}/blob/{self.branch}/{name}"


def installing(address: Address | None) -> str:
    """The source of the first cell: it does nothing except on Colab, whose machines are new each time."""
    return (
        "import sys\n\n"
        'if "google.colab" in sys.modules:  # a fresh machine: install the course, and make a folder to work in\n'
        f"    %pip install -q {address.installed if address else WHEELS}\n"
        f"    !kp new {FOLDER}\n"
        f"    %cd -q {FOLDER}"
    )


def notebook(given: NotebookNode, address: Address | None) -> NotebookNode:
    """A copy of a notebook of the course that begins with that cell."""
    import nbformat

    made: NotebookNode = nbformat.from_dict(given)
    for cell in made.cells:
        if cell.cell_type == "markdown":
            cell.source = re.sub(r"\]\((?:[^)\s]*/)?(week\w+\.ipynb)", r"](\1", cell.source)
    first = nbformat.v4.new_code_cell(installing(address))
    first["id"] = "colab"
    made.cells.insert(0, first)
    return made
