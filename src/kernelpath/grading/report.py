"""Grade in steps, and report the first finding."""

from __future__ import annotations

import time
from collections.abc import Sequence

from kernelpath import words
from kernelpath.grading import devices, measure, network
from kernelpath.grading.context import GradingContext, Step
from kernelpath.packages import versions
from kernelpath.verdict import Finding, NetworkTraffic, Report, Verdict


def grade_in_steps(context: GradingContext, steps: Sequence[Step]) -> Report:
    """Take the steps in order, end the processes, and return the report. The first finding is the verdict."""
    finding: Finding | None = None
    for step in steps:
        finding = step(context)
        if finding is not None:
            break
    # Only now have the processes printed everything, which the report quotes.
    context.close()
    job = context.job
    verdict = finding.verdict if finding else Verdict.PASSED
    file = job.display_path(finding.file) if finding else ""
    next_step = finding.step if finding else verdict.then
    return Report(
        exercise=job.item.path_id,
        title=job.item.title,
        submission=job.display_path(str(job.submission)),
        device=devices.device_name(job.device, job.target),
        seed=context.seed,
        verdict=verdict,
        cause=words.shown(finding.cause) if finding else "",
        file=file,
        line=finding.line if finding else 0,
        stars=measure.stars(context.measurement, verdict, job.item.stars),
        next_step=next_step.format(
            file=file or job.file_to_fix(verdict), name=job.item.name, seed=context.seed, check=job.command
        ),
        not_measured=(
            *context.speed_not_measured,
            *job.substitutions,
            *_describe_missing_counters(context, verdict),
            *context.not_measured,
            *measure.MISSING_PROTECTIONS,
        ),
        cases=tuple(case.result for case in context.graded),
        traffic=context.counters.traffic if context.counters else (),
        instructions=context.counters.instructions if context.counters else (),
        network=_network_traffic(context),
        measurement=context.measurement,
        printed=context.runner.printed,
        versions=versions(),
        graded=context.copy.digests,
        seconds=time.monotonic() - context.start,
        compile_seconds=context.runner.compile_seconds,
    )


def _describe_missing_counters(context: GradingContext, verdict: Verdict) -> tuple[str, ...]:
    """Say why there are no counters where the PTX machine could not count beside the GPU."""
    if context.cpu_shadow is not None:
        return context.cpu_shadow.not_measured
    return (context.missing_counters,) if context.missing_counters and verdict is not Verdict.UNAVAILABLE else ()


def _network_traffic(context: GradingContext) -> tuple[NetworkTraffic, ...]:
    """Return the traffic between the ranks of each case that returned."""
    logs = [(case.result.case, case.observation.log) for case in context.graded if case.observation is not None]
    links = context.job.exercise.network.links
    return tuple(network.measure_traffic(case, log, links) for case, log in logs if log is not None)
