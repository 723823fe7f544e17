"""Test that JAX stays on the CPU in the process of a submission and loads no GPU plugins."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelpath.course import registry
from kernelpath.grading.grade import grade
from kernelpath.verdict import Verdict
from kernelpath.work import forkserver

pytestmark = pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="JAX is not installed")

MARKER = "kernelpath_fake_plugin"
# The plugin writes below /tmp, like JAX's plugin for CUDA, and ends the process if it cannot.
PLUGIN = f"""
import os, sys, tempfile

def initialize():
    print("the plugin was initialized", file=sys.stderr)
    try:
        for folder in ("/tmp", tempfile.gettempdir()):
            with open(os.path.join(folder, "{MARKER}"), "w"):
                pass
    except OSError:
        os._exit(3)  # as XLA ends a process whose files it cannot write
"""


@pytest.fixture
def installed_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a folder on the path of workers with plugins that JAX discovers by entry point and by namespace."""
    (tmp_path / "fake_plugin.py").write_text(PLUGIN)
    metadata = tmp_path / "fake_plugin-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: fake-plugin\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[jax_plugins]\nfake = fake_plugin\n")
    (tmp_path / "jax_plugins" / "fake").mkdir(parents=True)
    (tmp_path / "jax_plugins" / "fake" / "__init__.py").write_text(PLUGIN)
    monkeypatch.syspath_prepend(str(tmp_path))
    forkserver.set_environment()  # force a new fork server, which has this path
    yield tmp_path
    forkserver.set_environment()
    Path("/tmp", MARKER).unlink(missing_ok=True)


@pytest.mark.usefixtures("installed_plugin")
def test_a_plugin_for_gpus_is_not_loaded_by_a_submission() -> None:
    item = registry.find("portability")
    report = grade(item, item.solution, device="cpu", seed=1)
    assert (report.verdict, report.cause) == (Verdict.PASSED, "")
    assert "plugin" not in report.printed
    assert not Path("/tmp", MARKER).exists()


def test_the_plugin_of_these_tests_is_one_that_jax_loads(installed_plugin: Path) -> None:
    """The other tests prove something only if JAX loads this plugin outside of a submission."""
    script = "import jax; print(jax.default_backend())"
    environment = {"PYTHONPATH": str(installed_plugin), "TMPDIR": str(installed_plugin)}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment)
    assert done.stdout == "cpu\n"
    assert done.stderr.count("the plugin was initialized") == 2
    assert Path("/tmp", MARKER).exists()


def test_xla_starts_few_threads_on_a_machine_with_many_cores() -> None:
    """XLA takes the number of cores from NPROC if it is set, and starts as many threads in several pools."""
    script = """
import os
from kernelpath.work import pallas
import jax
jax.numpy.ones(3) + 1
print(len(os.listdir("/proc/self/task")))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env={"NPROC": "64"}, check=True
    )
    assert int(done.stdout) < 64


def test_the_doctor_loads_no_plugin(installed_plugin: Path) -> None:
    script = "from kernelpath import doctor; print(doctor.try_lane('Pallas', doctor._PALLAS, 'cpu').works)"
    environment = {"PYTHONPATH": str(installed_plugin)}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment)
    assert (done.stdout, done.stderr) == ("True\n", "")
