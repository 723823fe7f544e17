"""Test clusters of thread blocks in PTX for sm_90a: distributed shared memory, cluster barriers, and their faults."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from machine.launching import aligned, buffer
from warpcheck import simt
from warpcheck.simt import FaultKind

HEAD = ".version 8.4\n.target sm_90a\n.address_size 64\n"
REGISTERS = """.reg .pred p, q, r; .reg .b32 %r<16>, t, n, me, other, there, v; .reg .b64 %rd<8>, out;
    ld.param.u64 out, [to]; mov.u32 t, %tid.x; mov.u32 me, %cluster_ctarank;
    mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mad.lo.u32 %r1, %r1, %r2, t;
    mul.wide.u32 %rd1, %r1, 4; add.u64 out, out, %rd1;
    shl.b32 %r3, t, 2; mov.u32 %r4, s; add.u32 %r4, %r4, %r3; setp.eq.u32 r, t, 0;"""
SYNC = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"


def launch(body: str, grid: Any = 2, threads: int = 32, cluster: Any = 2, size: int = 0, **options: Any) -> list[int]:
    """Launch a kernel, and return the word that each thread has stored.

    ``s`` has 64 words of shared memory, and ``b`` is an mbarrier.
    """
    shared = ".shared .align 16 .b32 s[64]; .shared .align 8 .b64 b;"
    text = f"{HEAD}.visible .entry kernel(.param .u64 to) {{\n{shared}\n{REGISTERS}\n{body}\nret;\n}}"
    grid, cluster = (extent if isinstance(extent, tuple) else (extent,) for extent in (grid, cluster))
    c = aligned(size or int(np.prod(grid)) * threads, np.uint32)
    arguments = {"grid": grid, "block": (threads,), "args": [c.ctypes.data], "buffers": [buffer("c", c)], **options}
    simt.load(text).launch("kernel", cluster=cluster, **arguments)
    return [int(value) for value in c]


@pytest.mark.parametrize("reverse", [False, True])
def test_special_registers_give_the_position_in_a_cluster(reverse: bool) -> None:
    """The grid has 4 x 4 blocks in clusters of 2 x 2. Each thread stores another special register."""
    names = ["clusterid.x", "clusterid.y", "nclusterid.x", "nclusterid.y", "cluster_ctaid.x", "cluster_ctaid.y"]
    names += ["cluster_nctaid.x", "cluster_nctaid.y", "cluster_ctarank", "cluster_nctarank", "cluster_nctaid.z"]
    reads = "\n".join(f"setp.eq.u32 p, t, {thread}; @p mov.u32 n, %{name};" for thread, name in enumerate(names))
    body = f"""mov.u32 n, 0; {reads}
        mov.pred q, %is_explicit_cluster; setp.eq.u32 p, t, 11; @p selp.u32 n, 1, 0, q;
        mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ctaid.y; mad.lo.u32 %r1, %r2, 4, %r1; mad.lo.u32 %r1, %r1, 32, t;
        ld.param.u64 out, [to]; mul.wide.u32 %rd1, %r1, 4; add.u64 out, out, %rd1; st.global.u32 [out], n;"""
    registers = np.array(launch(body, (4, 4), 32, (2, 2), reverse=reverse)).reshape(16, 32)[:, :12]
    for block, values in enumerate(registers.tolist()):
        y, x = divmod(block, 4)
        assert values == [x // 2, y // 2, 2, 2, x % 2, y % 2, 2, 2, y % 2 * 2 + x % 2, 4, 1, 1]


SWAP = f"""
    mad.lo.u32 v, me, 100, t; st.shared.u32 [%r4], v; xor.b32 other, me, 1;
    {SYNC}
    mapa.shared::cluster.u32 there, %r4, other;
    ld.shared::cluster.u32 n, [there];
    st.global.u32 [out], n;
    {SYNC}
    st.shared.u32 [%r4], 7;"""


@pytest.mark.parametrize("reverse", [False, True])
def test_blocks_of_a_cluster_swap_values(reverse: bool) -> None:
    """After the barrier, each block overwrites the word that the other has read.

    Three clusters are more than run at the same time.
    """
    # Each block stores 100 times its rank plus the thread, so block 0 reads 100 to 131.
    assert launch(SWAP, 6, reverse=reverse) == ([*range(100, 132), *range(32)]) * 3


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("index", [0, 1])
def test_a_missing_cluster_barrier_is_a_fault(index: int, reverse: bool) -> None:
    parts = SWAP.split(SYNC)
    text = SYNC.join(parts[: index + 1]) + "bar.sync 0;" + SYNC.join(parts[index + 1 :])
    with pytest.raises(simt.Fault) as caught:
        launch(text + SYNC, reverse=reverse)
    assert caught.value.kind in (FaultKind.RACE, FaultKind.UNINITIALIZED)


def test_a_relaxed_arrival_does_not_order_memory() -> None:
    relaxed = SYNC.replace("arrive", "arrive.relaxed")
    with pytest.raises(simt.Fault) as caught:
        launch(SWAP.replace(SYNC, relaxed))
    assert caught.value.kind == FaultKind.RACE
    explicit = SYNC.replace("arrive", "arrive.release").replace("wait", "wait.acquire")
    assert launch(SWAP.replace(SYNC, explicit))[0] == 100
    assert launch(SWAP.replace(SYNC, "fence.acq_rel.cluster; " + relaxed))[0] == 100


def test_reading_from_a_block_that_has_exited_is_a_fault() -> None:
    body = (
        SWAP.rpartition(SYNC)[0]
        .replace("ld.shared::cluster", "@q bra late;\nld.shared::cluster")
        .replace(SYNC, "setp.ne.u32 q, me, 0;\n" + SYNC)
    )
    text = (
        body
        + "ret;\nlate: nanosleep.u32 20; nanosleep.u32 20; ld.shared::cluster.u32 n, [there]; st.global.u32 [out], n;"
    )
    with pytest.raises(simt.Fault) as caught:
        launch(text)
    assert caught.value.kind == FaultKind.OUT_OF_BOUNDS
    assert "thread 0 of block 0 reads 4 bytes at s[0] (byte 0 of 256) of block 1, which has exited" in str(caught.value)


def test_shared_cluster_addresses_hold_the_rank() -> None:
    """An address in shared::cluster has the rank from bit 24 on, even for its own block. Generic addresses work."""
    body = """
        mapa.shared::cluster.u32 %r5, %r4, 3; sub.u32 %r6, %r5, %r4; shr.u32 %r6, %r6, 24; add.u32 n, me, %r6;
        getctarank.shared::cluster.u32 %r7, %r5; mad.lo.u32 n, %r7, 10, n;
        getctarank.shared::cluster.u32 %r7, %r4; sub.u32 %r7, %r7, me; mad.lo.u32 n, %r7, 100, n;
        cvt.u64.u32 %rd2, %r4; cvta.shared.u64 %rd2, %rd2; mapa.u64 %rd3, %rd2, 2; getctarank.u64 %r7, %rd3;
        mad.lo.u32 n, %r7, 1000, n;
        cvta.to.shared.u64 %rd4, %rd3; shr.u64 %rd5, %rd4, 24; cvt.u32.u64 %r7, %rd5; mad.lo.u32 n, %r7, 10000, n;
        isspacep.shared::cluster p, %rd3; isspacep.shared::cta q, %rd3; selp.u32 %r8, 1, 0, p; selp.u32 %r9, 2, 0, q;
        add.u32 %r8, %r8, %r9; isspacep.global p, %rd3; @p add.u32 %r8, %r8, 4;
        setp.eq.u32 p, me, 2; @p sub.u32 %r8, %r8, 2; mad.lo.u32 n, %r8, 100000, n;
        st.global.u32 [out], n;"""
    assert launch(body, 4, 1, 4) == [122033] * 4


@pytest.mark.parametrize("reverse", [False, True])
def test_blocks_add_to_the_shared_memory_of_the_first(reverse: bool) -> None:
    """Each block adds its rank by red and atom, through shared::cluster and generic addresses."""
    body = f"""
        st.shared.u32 [%r4], 0;
        {SYNC}
        mapa.shared::cluster.u32 there, %r4, 0; mov.u64 %rd3, 0; cvt.u64.u32 %rd2, %r4; cvta.shared.u64 %rd2, %rd2;
        mapa.u64 %rd3, %rd2, 0; add.u32 n, me, 1;
        red.shared::cluster.add.u32 [there], n; atom.add.u32 v, [%rd3], n; st.shared.u32 [s+128], n;
        {SYNC}
        ld.u32 n, [%rd3]; st.global.u32 [out], n;
        {SYNC}"""
    assert launch(body, 8, 32, 8, reverse=reverse) == [72] * 256


REMOTE = f"""
    @r mbarrier.init.shared.b64 [b], 32;
    fence.mbarrier_init.release.cluster;
    {SYNC}
    xor.b32 other, me, 1; mov.u32 %r5, b; mapa.shared::cluster.u32 %r6, %r5, other;
    mapa.shared::cluster.u32 there, %r4, other; mad.lo.u32 v, me, 100, t;
    st.shared::cluster.u32 [there], v;
    mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r6];
wait: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [b], 0;
    @!p bra wait;
    xor.b32 %r7, %r3, 124; mov.u32 %r8, s; add.u32 %r8, %r8, %r7; ld.shared.u32 n, [%r8]; st.global.u32 [out], n;
    {SYNC}"""


@pytest.mark.parametrize("reverse", [False, True])
def test_an_mbarrier_in_another_block(reverse: bool) -> None:
    assert launch(REMOTE, reverse=reverse) == [*range(131, 99, -1), *range(31, -1, -1)]
    with pytest.raises(simt.Fault) as caught:
        launch(REMOTE.replace("wait.parity.acquire", "wait.parity.relaxed"), reverse=reverse)
    assert caught.value.kind == FaultKind.RACE


@pytest.mark.parametrize("reverse", [False, True])
def test_st_async_and_red_async(reverse: bool) -> None:
    """Each thread stores 16 bytes to the other block and then adds 4 bytes. The other block's mbarrier counts them."""
    body = f"""
        st.shared.u32 [%r4], 5; st.shared.u32 [%r4+132], 5;
        @r mbarrier.init.shared.b64 [b], 1;
        {SYNC}
        @r mbarrier.arrive.expect_tx.shared::cta.b64 _, [b], 244;
        xor.b32 other, me, 1; mov.u32 %r5, b; mapa.shared::cluster.u32 %r6, %r5, other;
        shl.b32 %r7, t, 4; mov.u32 %r8, s; add.u32 %r7, %r7, %r8; mapa.shared::cluster.u32 there, %r7, other;
        mad.lo.u32 v, me, 100, t; setp.gt.u32 q, t, 10;
        @!q st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [there], {{v, v, v, 9}}, [%r6];
        @q mapa.shared::cluster.u32 there, %r4, other;
        @q red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [there+132], v, [%r6];
    wait: mbarrier.try_wait.parity.shared::cta.b64 p, [b], 0;
        @!p bra wait;
        @!q ld.shared.u32 n, [%r7]; @q ld.shared.u32 n, [%r4+132];
        st.global.u32 [out], n;
        {SYNC}"""
    expected = [[base + t if t < 11 else base + t + 5 for t in range(28)] for base in (100, 0)]
    assert launch(body, 2, 28, reverse=reverse, size=64)[:56] == expected[0] + expected[1]


def test_a_hang_names_the_barriers_of_both_blocks() -> None:
    body = """
        setp.eq.u32 p, me, 1;
        @p bra on;
        barrier.cluster.arrive; barrier.cluster.wait;
    on:
        @!p bra done;
        @r mbarrier.init.shared.b64 [b], 2;
    wait: mbarrier.try_wait.parity.shared::cta.b64 q, [b], 0;
        @!q bra wait;
    done:"""
    with pytest.raises(simt.TimedOut) as caught:
        launch(body, 2, 1)
    assert "warp 0 of block 0 waits in line 0 at the barrier of its cluster" in caught.value.message
    assert "warp 0 of block 1 waits in line 0 for mbarrier b, which is in phase 0 (pending" in caught.value.message


def test_sixteen_blocks_with_all_their_shared_memory() -> None:
    """Each block reads the last word of the next block. The word after it is out of bounds in every block."""
    body = f"""
        mov.u32 %r5, s; add.u32 %r5, %r5, 232440; st.shared.u32 [%r5], me;
        {SYNC}
        add.u32 other, me, 1; and.b32 other, other, 15; mapa.shared::cluster.u32 there, %r5, other;
        ld.shared::cluster.u32 n, [there]; st.global.u32 [out], n;
        {SYNC}"""
    # A block of sm_90a has at most 227 KiB. `s` and `b` take 264 bytes of it, which alignment rounds up to 272.
    dynamic = 227 * 1024 - 272
    body = body.replace("232440", str(227 * 1024 - 16))
    assert launch(body, 16, 1, 16, shared=dynamic) == [*range(1, 16), 0]
    with pytest.raises(simt.Fault) as caught:
        launch(body.replace("[there]", "[there+20]"), 16, 1, 16, shared=dynamic)
    assert caught.value.kind == FaultKind.OUT_OF_BOUNDS


def test_a_sample_of_blocks_runs_their_whole_clusters() -> None:
    """The sample is the block at (1, 1) of 4 x 4 blocks in clusters of 2 x 2."""
    body = """mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ctaid.y; mad.lo.u32 %r1, %r2, 4, %r1; ld.param.u64 out, [to];
        mul.wide.u32 %rd1, %r1, 4; add.u64 out, out, %rd1; st.global.u32 [out], 1;"""
    words = launch(body, (4, 4), 1, (2, 2), blocks=[5])
    assert [block for block, value in enumerate(words) if value] == [0, 1, 4, 5]


@pytest.mark.parametrize(
    ("grid", "cluster", "message"),
    [(32, 17, "invalid cluster size: 17"), (3, 2, "a grid of 3 along x is not a multiple of the cluster's 2")],
)
def test_an_invalid_cluster_size_is_an_error(grid: int, cluster: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        launch(SWAP, grid, cluster=cluster)
