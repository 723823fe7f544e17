"""Run the unmodified test suites of public kernel libraries with `pytest --warpcheck`, and count their outcomes.

    python warpcheck/benchmarks/suites.py run CHECKOUTS RECORDS      # runs the suites; RECORDS is a new folder
    python warpcheck/benchmarks/suites.py count RECORDS... RESULTS   # writes a row for each suite to one JSON file
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
import re
import shlex
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomllib

FOLDER = Path(__file__).parent
SOURCES = FOLDER.parent / "src"
SUITES = FOLDER / "suites.toml"
PAGE = FOLDER.parent / "docs" / "suites.md"
TESTS_OF_SHARD = 60
"""The most tests that a process runs. The limit keeps all cores busy until the end."""

MAX_RESTARTS = 6
"""How often a process that crashes is started again for the remaining tests, at most."""


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
        markers: Markers `warpcheck` that the suite's own conftest.py would set; the page states them. Each has `tests`,
            a part of the names of its tests, `options`, the keywords of the marker, and `reason`, a sentence.
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
    markers: list[dict[str, Any]] = field(default_factory=list)

    @property
    def records(self) -> str:
        """Return the name of the suite in the names of files."""
        return re.sub(r"\W+", "_", self.name).strip("_").lower()


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
    jobs: list[tuple[int, int, int, Job]] = []
    for suite in suites:
        for number, tests in enumerate(suite.tests):
            size = min(suite.sample, sample or suite.sample)
            shards = -(-size // TESTS_OF_SHARD)
            for shard in range(shards):
                file = records / f"{suite.records}-{number:03}-{shard:02}.jsonl"
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
        "markers": suite.markers,
    }
    stand_ins = job.records.parent / f"modules-{suite.records}"
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
    """Record a test that lasts too long or has ended its process. Return whether the job needs another process."""
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


# Count


@dataclass
class Outcome:
    """The outcome of one test.

    Attributes:
        test: Its name, relative to the folder of the suite.
        kind: "passed", "skipped", "failed", "fault", "unsupported", "timeout", or "crash".
        text: The end of the failure, or the reason.
        findings: The reported faults, as JSON objects of `warpcheck.findings.KernelFinding`.
        seconds: The duration, with setup and teardown.
        launches: The number of kernel launches.
        kernels: The names of the launched kernels.
    """

    test: str
    kind: str = "passed"
    text: str = ""
    findings: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0
    launches: int = 0
    kernels: set[str] = field(default_factory=set)

    def add_report(self, record: dict[str, Any]) -> None:
        """Add the report of the setup, the call, or the teardown."""
        self.seconds += record["seconds"]
        self.launches += record["launches"]
        self.kernels |= set(record["kernels"])
        findings = [finding for finding in record["findings"] if not finding["expected"]]
        self.findings += findings
        kind = record["outcome"]
        if record["unsupported"]:
            kind = "unsupported"
        elif findings and kind == "failed":
            kind = "fault"
        elif record["xfail"]:
            kind = "passed" if kind == "skipped" else "failed"  # strict: a test that should fail has passed
        if kind != "passed" and self.kind in ("passed", "skipped"):
            self.kind = kind
            self.text = record["unsupported"] or record["text"]


def read_outcomes(path: Path) -> tuple[list[Outcome], dict[str, Any]]:
    """Return the outcomes of the finished tests of a job, and what else its records say."""
    outcomes: dict[str, Outcome] = {}
    finished = set()
    job: dict[str, Any] = {"count": 0, "problems": []}
    for record in read_records(path):
        event = record["event"]
        if event == "collected":
            job["count"] = record["count"]
        elif event == "collection failed":
            job["problems"].append(record["text"])
        elif event == "report":
            outcomes.setdefault(record["test"], Outcome(record["test"])).add_report(record)
        elif event == "finished":
            finished.add(record["test"])
        elif event == "ended":
            outcomes[record["test"]] = Outcome(record["test"], record["how"], record["text"], seconds=90.0)
            finished.add(record["test"])
    return [outcome for outcome in outcomes.values() if outcome.test in finished], job


@dataclass
class Verdict:
    """The judgement of a fault or a failure, by reading the kernel and the test.

    Attributes:
        suite: The name of the suite.
        match: A part of the text of the failure, of the message of the fault, or of the name of the test.
        verdict: "true fault", "false fault", or the reason of another failure: "unsupported",
            "too large", "tolerance", "package", "test".
        reason: One sentence.
    """

    suite: str
    match: str
    verdict: str
    reason: str


def read_verdicts() -> list[Verdict]:
    """Return the verdicts of suites.toml."""
    return [Verdict(**attributes) for attributes in tomllib.loads(SUITES.read_text()).get("verdict", [])]


def judge(suite: Suite, outcome: Outcome, verdicts: list[Verdict]) -> Verdict | None:
    """Return the first verdict that fits a test that did not pass; None if nobody has read it."""
    messages = [f"{finding['kernel']}: {finding['message']} ({finding['kind']})" for finding in outcome.findings]
    text = "\n".join([outcome.test, outcome.text, *messages])
    for verdict in verdicts:
        if verdict.suite == suite.name and verdict.match in text:
            return verdict
    if outcome.kind == "timeout":
        return Verdict(suite.name, "", "too large", outcome.text)
    return None


def count_suite(suite: Suite, folders: list[Path], verdicts: list[Verdict]) -> dict[str, Any]:
    """Return the row of a suite. The outcome of a test in a later folder replaces the one in an earlier folder."""
    outcomes_by_test: dict[str, Outcome] = {}
    collected: dict[str, int] = {}
    problems: dict[str, str] = {}
    for path in (path for folder in folders for path in sorted(folder.glob(f"{suite.records}-*.jsonl"))):
        file = suite.tests[int(path.stem.split("-")[-2])].split()[0]
        job_outcomes, job = read_outcomes(path)
        outcomes_by_test |= {outcome.test: outcome for outcome in job_outcomes}
        collected[file] = max(collected.get(file, 0), job["count"])
        if job["problems"]:
            problems[file] = job["problems"][-1]
    outcomes = list(outcomes_by_test.values())
    executed = [outcome for outcome in outcomes if outcome.kind != "skipped"]
    kinds = Counter(outcome.kind for outcome in outcomes)
    groups: dict[tuple[str, ...], dict[str, Any]] = {}
    for outcome in outcomes:
        if outcome.kind in ("passed", "skipped"):
            continue
        verdict = judge(suite, outcome, verdicts)
        finding = dict(outcome.findings[0]) if outcome.findings else {}
        if finding:  # without the folder of the checkouts
            finding["file"] = finding["file"].rpartition(f"/{suite.folder}/")[2]
        last_line = next((line for line in reversed(outcome.text.splitlines()) if line.startswith("E  ")), outcome.text)
        reason = verdict.reason if verdict else last_line[:200].removeprefix("E").strip()
        key = (outcome.kind, verdict.verdict if verdict else "", reason if verdict else finding.get("kernel", reason))
        group = groups.setdefault(
            key,
            {
                "outcome": outcome.kind,
                "verdict": verdict.verdict if verdict else "not read",
                "reason": reason,
                "tests": 0,
                "example": outcome.test,
                "fault": {name: finding[name] for name in ("kind", "kernel", "file", "line", "message") if finding},
            },
        )
        group["tests"] += 1
    verdict_counts: Counter[str] = Counter()
    for group in groups.values():
        verdict_counts[group["verdict"]] += group["tests"]
    return {
        "suite": suite.name,
        "repository": suite.repository,
        "commit": suite.commit,
        "arch": suite.arch,
        "markers": [
            {**marker, "count": sum(marker["tests"] in outcome.test for outcome in executed)}
            for marker in suite.markers
        ],
        "files": len(collected),
        "collected": sum(collected.values()),
        "tests": len(executed),
        **{kind: kinds[kind] for kind in ("passed", "skipped", "fault", "failed", "timeout", "crash")},
        "unsupported": verdict_counts["unsupported"] + kinds["unsupported"],
        "too large": verdict_counts["too large"],
        "true faults": verdict_counts["true fault"],
        "false faults": verdict_counts["false fault"],
        "not read": verdict_counts["not read"],
        "launches": sum(outcome.launches for outcome in outcomes),
        "kernels": len(set().union(*(outcome.kernels for outcome in outcomes))),
        "seconds": round(sum(outcome.seconds for outcome in outcomes)),
        "groups": sorted(groups.values(), key=lambda group: -group["tests"]),
        "not collected": {file: text.splitlines()[-1][:200] for file, text in problems.items() if text},
    }


def count(options: argparse.Namespace) -> None:
    """Write the rows of all suites with records to one JSON file, which keeps its rows of the other suites."""
    verdicts = read_verdicts()
    runs = [json.loads((records / "run.json").read_text()) for records in options.records]
    document: dict[str, Any] = {"runs": [], "suites": []}
    if options.results.exists():
        document = json.loads(options.results.read_text())
    previous = {row["suite"]: row for row in document["suites"]}
    new_rows = [count_suite(suite, options.records, verdicts) for suite in read_suites()]
    rows = {row["suite"]: row for row in new_rows if row["tests"] or row["skipped"]}
    all_rows = [rows.get(row["suite"]) or previous.get(row["suite"]) for row in new_rows]
    document = {"runs": document["runs"] + runs, "suites": [row for row in all_rows if row]}
    options.results.write_text(json.dumps(document, indent=1) + "\n")
    for row in rows.values():
        numbers = (f"{name} {row[name]}" for name in (*_COLUMNS, "not read", "timeout", "crash"))
        print(f"{row['suite']:28}", ", ".join(numbers))


_COLUMNS = ("tests", "passed", "true faults", "false faults", "unsupported", "failed", "seconds")


# Table


def replace_table(text: str, name: str, lines: list[str]) -> str:
    """Return a document with other lines between the comments that begin and end a table."""
    start = f"<!-- suites: {name} -->\n"
    before, _, remainder = text.partition(start)
    _, end, after = remainder.partition("<!-- end -->")
    if not end:
        raise ValueError(f"the document has no table {name!r}")
    return before + start + "\n".join(["", *lines, "", ""]) + end + after


def count_table(rows: list[dict[str, Any]]) -> list[str]:
    """Return the table of outcomes, with a row for each suite and their sum."""
    lines = [
        "| suite | for | tests | passed | tests with true faults | false faults | unsupported | too large "
        "| other failures | launches of kernels | seconds |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    total: Counter[str] = Counter()
    for row in rows:
        total.update({name: value for name, value in row.items() if isinstance(value, int)})
        link = f"[{row['suite']}](https://github.com/{row['repository']}/tree/{row['commit']})"
        lines.append(_count_line(link, row["arch"], row))
    lines.append(_count_line("all", "", total))
    return lines


def _count_line(name: str, arch: str, row: Mapping[str, Any]) -> str:
    columns = ("passed", "true faults", "false faults", "unsupported", "too large")
    numbers = [row["tests"], *(row[name] for name in columns)]
    numbers.append(2 * row["tests"] - sum(numbers))  # the remaining tests
    cells = [f"{number:,}" for number in numbers]
    cells += [f"{row['launches']:,} of {row['kernels']:,}", f"{row['seconds']:,}"]
    return f"| {name} | {arch} | " + " | ".join(cells) + " |"


def describe_run(run: dict[str, Any]) -> str:
    """Return a sentence about the machine and the versions of a run."""
    versions = ", ".join(f"{package} {version}" for package, version in run["versions"].items())
    return f"{run['date']}, Python {run['python']} on {run['machine']}: {versions}; {run['timeout']:.0f} s for a test."


def group_table(rows: list[dict[str, Any]], verdicts: set[str]) -> list[str]:
    """Return the table of the groups of tests with one of the verdicts."""
    lines = ["| suite | tests | outcome | reason | for example |", "| --- | ---: | --- | --- | --- |"]
    for row in rows:
        for group in row["groups"]:
            if group["verdict"] not in verdicts:
                continue
            example = group["example"].replace("|", "\\|")
            outcome = group["fault"].get("kind", group["outcome"])
            lines.append(f"| {row['suite']} | {group['tests']} | {outcome} | {group['reason']} | `{example[:90]}` |")
    return lines if len(lines) > 2 else ["None."]


def marker_table(rows: list[dict[str, Any]]) -> list[str]:
    """Return the table of the tests that ran with a marker."""
    lines = ["| suite | tests | marker | reason |", "| --- | ---: | --- | --- |"]
    for row in rows:
        for marker in row.get("markers", ()):
            options = ", ".join(f'{name}="{value}"' for name, value in marker["options"].items())
            lines.append(f"| {row['suite']} | {marker['count']} | `warpcheck({options})` | {marker['reason']} |")
    return lines if len(lines) > 2 else ["None."]


def table(options: argparse.Namespace) -> None:
    """Renew the tables of docs/suites.md."""
    PAGE.write_text(renew_tables(PAGE.read_text(), json.loads(options.results.read_text())))


def renew_tables(text: str, document: dict[str, Any]) -> str:
    """Return the page with the tables of the results."""
    rows = document["suites"]
    verdicts = {group["verdict"] for row in rows for group in row["groups"]}
    text = replace_table(
        text, "outcomes", [*count_table(rows), "", *dict.fromkeys(map(describe_run, document["runs"]))]
    )
    text = replace_table(text, "markers", marker_table(rows))
    text = replace_table(text, "true faults", group_table(rows, {"true fault"}))
    text = replace_table(text, "shortcomings", group_table(rows, {"false fault", "unsupported", "too large"}))
    other_verdicts = verdicts - {"true fault", "false fault", "unsupported", "too large"}
    return replace_table(text, "other", group_table(rows, other_verdicts))


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
    command = commands.add_parser("count", help="count the outcomes")
    command.add_argument("records", type=Path, nargs="+")
    command.add_argument("results", type=Path)
    command.set_defaults(run=count)
    command = commands.add_parser("table", help="renew docs/suites.md")
    command.add_argument("results", type=Path)
    command.set_defaults(run=table)
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
