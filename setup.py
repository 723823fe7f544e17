"""What pyproject.toml cannot say: a wheel carries the course's files, which a checkout has beside the package."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

CARRIED = (
    *("checks", "phases", "notebooks", "solutions", "results", "book"),
    *("benchmarks/all_reduce.py", "tests/accepts/w23a_flash_attention_cute/one_warpgroup.py"),  # notebooks run these
)
UNWANTED = shutil.ignore_patterns("__pycache__", ".*")


class BuildWithCourse(build_py):
    """Copies the course's files to kernelpath/data, where `kernelpath.course.places` looks for them."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        data = Path(self.build_lib) / "kernelpath" / "data"
        shutil.rmtree(data, ignore_errors=True)  # of an earlier build
        for name in CARRIED:
            target = data / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if Path(name).is_dir():
                shutil.copytree(name, target, ignore=UNWANTED)
            else:
                shutil.copyfile(name, target)


setup(cmdclass={"build_py": BuildWithCourse})
