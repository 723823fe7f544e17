"""S2: the reference solution is read through a link to it."""

import os
import tempfile
from pathlib import Path

from kernelpath.course import registry

SOLUTION = registry.root() / "solutions" / "1_architecture" / "w01b_vector_add.py"

with tempfile.TemporaryDirectory() as folder:
    link = Path(folder) / "link.py"
    os.link(SOLUTION, link)
    vector_add = registry.import_file(link, "borrowed").vector_add
