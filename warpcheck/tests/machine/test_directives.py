"""Test the directives of a kernel that limit its launches (`warpcheck.ptx.directives`)."""

from __future__ import annotations

import re

import pytest

from machine.programs import wrap
from warpcheck import simt
from warpcheck.ptx.directives import parse_directives

Extent = tuple[int, ...]

REFUSED: dict[str, tuple[str, Extent, Extent, str]] = {
    "one thread more than maxntid": (
        ".maxntid 128",
        (129,),
        (),
        "invalid argument: a block of 129 threads, and k is compiled for 128 at most (__launch_bounds__, .maxntid)",
    ),
    "a product beyond that of maxntid": (".maxntid 64, 2, 1", (16, 16), (), "a block of 256 threads"),
    "fewer threads than reqntid": (
        ".reqntid 128",
        (64,),
        (),
        "invalid argument: k is compiled for blocks of (128, 1, 1) threads (.reqntid), not of (64, 1, 1)",
    ),
    "as many threads as reqntid in another shape": (".reqntid 16, 8", (128,), (), "compiled for blocks of (16, 8, 1)"),
    "another cluster": (
        ".explicitcluster\n.reqnctapercluster 2, 1, 1",
        (32,),
        (4,),
        "invalid cluster size: k is compiled for clusters of (2, 1, 1), not of (4, 1, 1)",
    ),
    "a larger cluster": (
        ".maxntid 128\n.maxclusterrank 2",
        (32,),
        (4,),
        "invalid cluster size: 4 blocks, and k is compiled for 2 at most",
    ),
    "no cluster where one must be explicit": (
        ".explicitcluster",
        (32,),
        (),
        "k has to be launched with the extents of a cluster",
    ),
}
ACCEPTED: dict[str, tuple[str, Extent, Extent]] = {
    "all the threads of maxntid": (".maxntid 128", (128,), ()),
    "another shape of as many threads as maxntid": (".maxntid 64, 2, 1", (8, 16), ()),
    "the threads of reqntid": (".reqntid 16, 8", (16, 8), ()),
    "the fixed cluster, given or not": (".explicitcluster\n.reqnctapercluster 2, 1, 1", (32,), ()),
    "the fixed cluster, given again": (".explicitcluster\n.reqnctapercluster 2, 1, 1", (32,), (2, 1, 1)),
    "the largest cluster": (".maxclusterrank 2", (32,), (2,)),
    "an explicit cluster": (".explicitcluster", (32,), (2,)),
    "wishes that limit no launch": (".maxntid 32\n.minnctapersm 4\n.maxnreg 64", (32,), ()),
}


def launch(directives: str, block: Extent, cluster: Extent) -> None:
    module = simt.load(wrap("ret;").replace("entry k()", f"entry k()\n{directives}\n"))
    module.launch("k", grid=(4,), block=block, cluster=cluster)


@pytest.mark.parametrize(("directives", "block", "cluster", "reason"), REFUSED.values(), ids=REFUSED.keys())
def test_a_launch_that_violates_a_directive_is_an_error(
    directives: str, block: Extent, cluster: Extent, reason: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)):
        launch(directives, block, cluster)


@pytest.mark.parametrize(("directives", "block", "cluster"), ACCEPTED.values(), ids=ACCEPTED.keys())
def test_a_launch_within_the_directives_runs(directives: str, block: Extent, cluster: Extent) -> None:
    launch(directives, block, cluster)


def test_directives_are_parsed_in_any_order_and_across_lines() -> None:
    parsed = parse_directives("\n.minnctapersm 2 .maxnreg 64\n.maxntid 8,\n 4, 2 .explicitcluster")
    assert (parsed.maxntid, parsed.maxnreg, parsed.explicit_cluster, parsed.cluster) == (64, 64, True, ())
