"""The plugin of pytest: `pytest --warpcheck` runs the kernels of a test suite on the CPU and checks every access.

pytest loads this module in every run of an environment with warpcheck. Without the option it registers the marker and
the fixture, and imports nothing else of warpcheck.
"""

from __future__ import annotations

import argparse
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from warpcheck.report import Report

__all__: list[str] = []

DEFAULT_ARCH = "sm_80"
_MARKER = (
    "warpcheck(arch=..., schedules=..., uninitialized=..., bounds=..., raises=..., scope=..., skip=...): how "
    "--warpcheck runs a test: the architecture; the orders of blocks and warps; whether reads of unwritten memory are "
    "faults; whether a kernel may access a tensor or its whole allocation; the faults that the test expects and "
    "catches; scope=False for a test that enters warpcheck.gpu itself; the reason to skip it"
)


class _SetArchitecture(argparse.Action):
    """Store the architecture. The option without a value keeps the one of `addopts`, which pytest parses first."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        arch = namespace.warpcheck or DEFAULT_ARCH
        namespace.warpcheck_without_value = arch
        namespace.warpcheck = values or arch


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("warpcheck", "run GPU kernels on the CPU and check every access (warpcheck)")
    group.addoption(
        "--warpcheck",
        action=_SetArchitecture,
        nargs="?",
        default=None,
        metavar="ARCH",
        help="run the kernels of all tests on the CPU and check them, for sm_80, sm_90a or sm_100a (default: the "
        f"architecture in addopts, or {DEFAULT_ARCH})",
    )
    group.addoption(
        "--warpcheck-schedules",
        default="forward",
        metavar="NAME",
        help="the orders of blocks and warps of each launch: forward, reverse, strided or all (default: forward)",
    )
    group.addoption(
        "--warpcheck-require",
        action="store_true",
        help="fail the run if no kernel was launched, because then nothing was checked",
    )
    group.addoption(
        "--warpcheck-report",
        metavar="FILE",
        help="write all findings to FILE as SARIF 2.1.0, or as JSON Lines if its name ends with .jsonl",
    )
    group.addoption(
        "--warpcheck-annotations",
        action="store_true",
        help="print findings as annotations of GitHub Actions (default where GITHUB_ACTIONS is true)",
    )


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config, args: list[str]) -> Generator[None, None, None]:
    """Enter the scope before any conftest.py imports the code under test, which may ask for the GPU's name."""
    options = early_config.known_args_namespace
    if options.warpcheck is not None:
        _return_path_to_arguments(options, args)
        from warpcheck.pytest_checks import CheckedRun

        CheckedRun.start(early_config, options)
    return (yield)


def _return_path_to_arguments(options: Any, args: list[str]) -> None:
    """Let `pytest --warpcheck tests` mean the option without a value and the path "tests".

    An option with an optional value takes the word behind it. `args` is the command line that pytest parses next.
    """
    word = options.warpcheck
    if word.startswith("sm_") or "--warpcheck" not in args:
        return
    position = args.index("--warpcheck")
    if args[position + 1 : position + 2] == [word]:
        args[position] = "--warpcheck="
        options.warpcheck = options.warpcheck_without_value
        options.file_or_dir = [*options.file_or_dir, word]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", _MARKER)


@pytest.fixture
def warpcheck_gpu(request: pytest.FixtureRequest) -> Report:
    """The report of this test's launches, for assertions about counters: `warpcheck_gpu.launches[0].line(...)`."""
    checks = request.config.pluginmanager.get_plugin("warpcheck checks")
    if checks is None:
        pytest.skip("the fixture warpcheck_gpu needs the option --warpcheck")
    report: Report = checks.monitor.report
    return report
