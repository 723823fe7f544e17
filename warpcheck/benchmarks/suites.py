"""Run the unmodified test suites of public kernel libraries with `pytest --warpcheck`, and count their outcomes.

    python warpcheck/benchmarks/suites.py run CHECKOUTS RECORDS      # runs the suites; RECORDS is a new folder
    python warpcheck/benchmarks/suites.py count RECORDS RESULTS      # writes one JSON file with a row for each suite
    python warpcheck/benchmarks/suites.py table RESULTS              # renews docs/suites.md

`suites.toml` lists the suites: the repository and its commit, the folder below CHECKOUTS that holds it, the test files
that need a single GPU and no data, and the size of the sample. It also holds the verdict about each fault, by reading.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import json
import os
import platform
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomllib

FOLDER = Path(__file__).parent
SOURCES = FOLDER.parent / "src"
SUITES = FOLDER / "suites.toml"
TESTS_OF_SHARD = 40
"""A process runs at most so many tests, so that all cores have work until the end."""

MAX_RESTARTS = 6
"""A process that a test has ended is started again for the remaining tests, at most so often."""


@dataclass
class Suite:
    """The tests of one library.

    Attributes:
        name: The library.
        repository: Its place on GitHub.
        commit: The commit that was run.
        folder: The folder below the folder of checkouts.
        tests: Test files below the folder, each with pytest's options for it after a space, such as `-k "not bench"`.
        path: Folders below the folder that join PYTHONPATH.
        arch: The architecture.
        sample: At most so many tests of each file run.
        environment: Variables of the environment.
        options: Options of pytest for all files.
        working_folder: The folder below the folder in which pytest starts.
        modules: Modules that stand in for packages that the kernels do not need, with their source.
    """

    name: str
    repository: str
    commit: str
    folder: str
    tests: list[str]
    path: list[str] = field(default_factory=lambda: ["."])
    arch: str = "sm_80"
    sample: int = 40
    environment: dict[str, str] = field(default_factory=dict)
    options: str = ""
    working_folder: str = "."
    modules: dict[str, str] = field(default_factory=dict)


@dataclass
class Job:
    """One process of pytest: a shard of the sample of one test file."""

    suite: Suite
    tests: str
    shard: int
    shards: int
    records: Path
    sample: int
    restarts: int = 0
    process: subprocess.Popen[bytes] | None = None


def read_suites() -> list[Suite]:
    """Return the suites of suites.toml."""
    return [Suite(**attributes) for attributes in tomllib.loads(SUITES.read_text())["suite"]]


# Run


def make_jobs(suites: list[Suite], records: Path, sample: int | None) -> list[Job]:
    """Return the jobs of all suites. The suites take turns, in case that the time does not suffice.

    Args:
        sample: Replaces the sample of each suite if it is smaller.
    """
    jobs = []
    for suite in suites:
        for number, tests in enumerate(suite.tests):
            size = min(suite.sample, sample or suite.sample)
            shards = -(-size // TESTS_OF_SHARD)
            for shard in range(shards):
                file = records / f"{suite.folder}-{suite.arch}-{number:03}-{shard:02}.jsonl"
                jobs.append((shard, number, len(jobs), Job(suite, tests, shard, shards, file, size)))
    return [job for *_, job in sorted(jobs, key=lambda entry: entry[:3])]


def start(job: Job, checkouts: Path) -> None:
    """Start the process of a job."""
    suite = job.suite
    root = checkouts / suite.folder
    file, *options = shlex.split(job.tests)
    finished = [record["test"] for record in read_records(job.records) if record["event"] in ("finished", "ended")]
    settings = {
        "records": str(job.records),
        "sample": job.sample,
        "shard": job.shard,
        "shards": job.shards,
        "finished": finished,
    }
    stand_ins = job.records.parent / f"modules-{suite.folder}"
    for name, source in suite.modules.items():
        stand_ins.mkdir(exist_ok=True)
        (stand_ins / f"{name}.py").write_text(source)
    paths = [
        *(str(root / path) for path in suite.path),
        str(stand_ins),
        str(FOLDER),
        str(SOURCES),
        os.environ.get("PYTHONPATH", ""),
    ]
    environment = {
        **os.environ,
        **suite.environment,
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": "1",
        "TORCHDYNAMO_DISABLE": "1",  # Inductor's own kernels are not what is checked
        "WARPCHECK_SUITE": json.dumps(settings),
    }
    command = [sys.executable, "-m", "pytest", "-p", "warpcheck.pytest_plugin", "-p", "suite_recorder"]
    command += [
        f"--warpcheck={suite.arch}",
        "-q",
        "-p",
        "no:cacheprovider",
        *shlex.split(suite.options),
        *options,
        file,
    ]
    with job.records.with_suffix(".log").open("ab") as log:
        job.process = subprocess.Popen(
            command,
            cwd=root / suite.working_folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def read_records(path: Path) -> list[dict[str, Any]]:
    """Return the records of a job; the last line may be cut off."""
    records = []
    if path.exists():
        for line in path.read_text().splitlines():
            with contextlib.suppress(json.JSONDecodeError):
                records.append(json.loads(line))
    return records


def running_test(records: list[dict[str, Any]]) -> tuple[str, float] | None:
    """Return the test that has started and has not finished, with the time of its start."""
    for record in reversed(records):
        if record["event"] in ("finished", "ended", "collected"):
            return None
        if record["event"] == "started":
            return record["test"], record["time"]
    return None


def stop(job: Job) -> None:
    """End the process of a job, and the processes that it has started."""
    assert job.process is not None
    with contextlib.suppress(ProcessLookupError):
        os.killpg(job.process.pid, signal.SIGKILL)
    job.process.wait()


def add_record(job: Job, **values: Any) -> None:
    with job.records.open("a") as file:
        file.write(json.dumps({"time": time.time(), **values}) + "\n")


def should_restart(job: Job, timeout: float) -> bool:
    """Look at a job whose test may last too long or may have ended its process; record that, and return whether the
    remaining tests need another process.
    """
    assert job.process is not None
    has_ended = job.process.poll() is not None
    test = running_test(read_records(job.records))
    if test is None:
        return False
    name, started = test
    if has_ended:
        add_record(job, event="ended", test=name, how="crash", text=f"exit status {job.process.returncode}")
        return True
    if time.time() - started > timeout:
        stop(job)
        add_record(job, event="ended", test=name, how="timeout", text=f"no end after {timeout:.0f} s")
        return True
    return False


def run(options: argparse.Namespace) -> None:
    """Run the suites, and leave a file of records for each job."""
    options.records.mkdir(parents=True, exist_ok=True)
    checkouts = options.checkouts.resolve()
    suites = [suite for suite in read_suites() if not options.suite or suite.name in options.suite]
    suites = [suite for suite in suites if (checkouts / suite.folder).is_dir()]
    waiting = make_jobs(suites, options.records.resolve(), options.sample)
    waiting = [job for job in waiting if not options.file or options.file in job.tests]
    running: list[Job] = []
    deadline = time.monotonic() + options.limit
    (options.records / "run.json").write_text(json.dumps(_describe_machine(options), indent=1))
    while (waiting or running) and time.monotonic() < deadline:
        while waiting and len(running) < options.jobs:
            job = waiting.pop(0)
            start(job, checkouts)
            running.append(job)
        time.sleep(0.3)
        for job in list(running):
            restart = should_restart(job, options.timeout)
            assert job.process is not None
            if job.process.poll() is None:
                continue
            running.remove(job)
            if restart and job.restarts < MAX_RESTARTS:
                job.restarts += 1
                waiting.append(job)
    for job in running:
        stop(job)
        add_record(job, event="out of time")
    for job in waiting:
        add_record(job, event="out of time")


def _describe_machine(options: argparse.Namespace) -> dict[str, Any]:
    versions = {}
    for package in ("torch", "triton", "nvidia-cutlass-dsl", "llvmlite", "pytest"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    return {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "python": platform.python_version(),
        "machine": platform.machine(),
        "processes": options.jobs,
        "timeout": options.timeout,
        "versions": versions,
    }


def main() -> None:
    """Run one of the commands."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("run", help="run the suites")
    command.add_argument("checkouts", type=Path)
    command.add_argument("records", type=Path)
    command.add_argument("--suite", action="append", help="the name of a suite; all of them without the option")
    command.add_argument("--file", help="a part of the name of the only test file to run")
    command.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes at a time")
    command.add_argument("--limit", type=float, default=3600, help="seconds for all suites")
    command.add_argument("--timeout", type=float, default=90, help="seconds for a test")
    command.add_argument("--sample", type=int, help="at most so many tests of each file")
    command.set_defaults(run=run)
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
