"""S2: another program copies the reference solution, where no hook in Python sees it."""

import subprocess
import tempfile
from pathlib import Path

from kernelpath.course import registry

with tempfile.TemporaryDirectory() as folder:
    subprocess.run(["cp", *registry.find("vector_add").files("solutions"), folder], check=True)
    vector_add = registry.import_file(Path(folder) / "w01b_vector_add.py", "borrowed").vector_add
