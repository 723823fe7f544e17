"""S2: another program copies the reference solution, where no hook in Python sees it."""

import subprocess
import tempfile
from pathlib import Path

from kernelpath.course import registry

SOLUTION = registry.root() / "solutions" / "1_architecture" / "w01b_vector_add.py"

with tempfile.TemporaryDirectory() as folder:
    subprocess.run(["cp", SOLUTION, SOLUTION.with_suffix(".cu"), folder], check=True)
    vector_add = registry.import_file(Path(folder) / "w01b_vector_add.py", "borrowed").vector_add
