"""Parse the performance-tuning and cluster directives of a kernel, and refuse the launches that they forbid.

PTX ISA manual, "Performance-Tuning Directives" and "Cluster Dimension Directives". `_LAUNCH_RULES` has a row for each
directive that limits a launch. Two others limit none: ``.minnctapersm`` is a wish to ptxas, and ``.maxnreg`` a limit
for ptxas, which assigns the registers that the launch is then held to.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

__all__ = ["Directives", "pad", "parse_directives"]

Extents = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Directives:
    """The directives between the parameters of a kernel and its body.

    reqntid, cluster: the threads of a block and the blocks of a cluster that every launch must have, empty where the
    kernel fixes none. maxntid: the most threads of a block, the product of its extents, for no extent has a limit of
    its own. maxclusterrank: the most blocks of a cluster. maxnreg: the most registers of a thread. All three are 0
    where the kernel has no such limit. explicit_cluster: whether a launch must give the cluster's extents.
    """

    reqntid: tuple[int, ...] = ()
    maxntid: int = 0
    cluster: tuple[int, ...] = ()
    maxclusterrank: int = 0
    explicit_cluster: bool = False
    maxnreg: int = 0

    def refusal(self, kernel: str, block: Extents, cluster: Extents | None) -> str:
        """Return why the driver refuses a launch in these blocks and clusters; empty where it does not.

        cluster: the extents that the launch gives, None where it gives none.
        """
        reasons = (rule(self, block, cluster) for rule in _LAUNCH_RULES.values())
        reason = next(filter(None, reasons), "")
        return reason.format(kernel=kernel)


def _refuse_other_block(directives: Directives, block: Extents, cluster: Extents | None) -> str:
    required = pad(directives.reqntid)
    if required in (None, block):
        return ""
    return f"invalid argument: {{kernel}} is compiled for blocks of {required} threads (.reqntid), not of {block}"


def _refuse_larger_block(directives: Directives, block: Extents, cluster: Extents | None) -> str:
    threads = math.prod(block)
    # PTX ISA, ".maxntid": the product of the extents is the limit, and no single extent.
    limit = directives.maxntid
    if not limit or threads <= limit:
        return ""
    return (
        f"invalid argument: a block of {threads} threads, and {{kernel}} is compiled for {limit} at most "
        "(__launch_bounds__, .maxntid)"
    )


def _refuse_other_cluster(directives: Directives, block: Extents, cluster: Extents | None) -> str:
    required = pad(directives.cluster)
    if required is None or cluster in (None, required):
        return ""
    return f"invalid cluster size: {{kernel}} is compiled for clusters of {required}, not of {cluster}"


def _refuse_larger_cluster(directives: Directives, block: Extents, cluster: Extents | None) -> str:
    blocks = math.prod(cluster or (1,))
    limit = directives.maxclusterrank
    if not limit or blocks <= limit:
        return ""
    return (
        f"invalid cluster size: {blocks} blocks, and {{kernel}} is compiled for {limit} at most "
        "(the third number of __launch_bounds__, .maxclusterrank)"
    )


def _refuse_implicit_cluster(directives: Directives, block: Extents, cluster: Extents | None) -> str:
    if not directives.explicit_cluster or directives.cluster or cluster:
        return ""
    return "invalid cluster size: {kernel} has to be launched with the extents of a cluster (.explicitcluster)"


# The rule of each directive that limits a launch: it returns the driver's reason to refuse it, or an empty text.
_LAUNCH_RULES: Mapping[str, Callable[[Directives, Extents, Extents | None], str]] = {
    "reqntid": _refuse_other_block,
    "maxntid": _refuse_larger_block,
    "reqnctapercluster": _refuse_other_cluster,
    "maxclusterrank": _refuse_larger_cluster,
    "explicitcluster": _refuse_implicit_cluster,
}


def pad(extents: tuple[int, ...]) -> Extents | None:
    """Return extents along all three axes, 1 where the directive gives none; None for no directive."""
    if not extents:
        return None
    # PTX ISA, ".reqntid": extents that are not given are 1.
    x, y, z = (*extents, 1, 1)[:3]
    return x, y, z


def parse_directives(text: str) -> Directives:
    """Parse the text between the parameters of a kernel and its body, which may be empty."""
    return Directives(
        reqntid=_numbers("reqntid", text),
        maxntid=_product("maxntid", text),
        cluster=_numbers("reqnctapercluster", text),
        maxclusterrank=_product("maxclusterrank", text),
        explicit_cluster=re.search(r"\.explicitcluster\b", text) is not None,
        maxnreg=_product("maxnreg", text),
    )


def _numbers(directive: str, text: str) -> tuple[int, ...]:
    """Return the numbers after a directive, none if the text does not have it."""
    match = re.search(rf"\.{directive}\s+(\d+(?:\s*,\s*\d+)*)", text, re.ASCII)
    return tuple(map(int, match[1].split(","))) if match else ()


def _product(directive: str, text: str) -> int:
    numbers = _numbers(directive, text)
    return math.prod(numbers) if numbers else 0
