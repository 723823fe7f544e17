"""The messages about what a thread did wrong.

They are in one file because they have to agree with each other.
"""

from __future__ import annotations

from collections.abc import Sequence

from warpcheck.errors import FaultKind
from warpcheck.layout import LANES, OVERWRITTEN, UNFENCED, USED, Access, Space
from warpcheck.lowered_kernel import AccessSite
from warpcheck.runtime.access_history import BLOCK_STRONG, is_strong
from warpcheck.runtime.buffers import ARGUMENTS, Buffer
from warpcheck.runtime.symbols import exclude_compiler_variables, find_shared_variable, source_name
from warpcheck.runtime.tensor_rules import RULES, TensorRule

__all__ = [
    "PROMISED",
    "describe_access",
    "describe_bad_mask",
    "describe_descriptor",
    "describe_global_address",
    "describe_in_flight",
    "describe_local_offset",
    "describe_mbarrier_misuse",
    "describe_outlived_copy",
    "describe_parameter_offset",
    "describe_race",
    "describe_shared_offset",
    "describe_tensor_rule",
    "describe_unfenced",
    "describe_wgmma_register",
    "format_coordinates",
    "mbarrier_name",
    "thread_name",
]

# No memory has an address below: a pointer there is a null pointer with an index.
LOWEST = 1 << 16

_TENSOR_VERBS = {"ld": "reads", "st": "writes", "mma": "multiplies in", "cp": "copies to", "shift": "shifts"}
_VERBS = {Access.LOAD: "reads", Access.STORE: "writes", Access.ATOMIC: "updates"}
_FAULTS = {
    FaultKind.OUT_OF_BOUNDS: "{verb} {place}",
    FaultKind.MISALIGNED: "{verb} at {place}, whose address is not a multiple of {site.bytes}",
    FaultKind.UNINITIALIZED: "{verb} at {place}, which nothing has written",
}
_WAIT_GROUP_MISSING = "its wgmma.wait_group has to come first, and a barrier behind that"
_COMMIT_MISSING = "a wait for the mbarrier of its tcgen05.commit has to come first"
# Triton's mistake occurs in Triton 3.9 on sm_90: a block that is also loaded to registers has no buffer for the wgmma
# in flight. The PTX does not tell whether a kernel was written in Gluon, where waits are up to its author.
_ONE_BUFFER_SHORT = (
    "in Gluon, its warpgroup_mma_wait has to come first; without Gluon, this is Triton's own mistake: where tl.dot and "
    "another operation take the same block, it pipelines the loop with one buffer too few; give the loop num_stages=1, "
    "or that operation a tl.load of its own with a cache_modifier"
)
# What is wrong with the use of an mbarrier, by ``launch.fault_detail``; see ``mbarriers``.
_MBARRIER_RULES = (
    "",
    "uses {place}, where no mbarrier is: it was not initialized, or it was invalidated",
    "arrives at {place} more often than its phase needs: it was initialized with too few arrivals, or its last phase "
    "was not waited for",
    "initializes {place} with a count that is not from 1 to 1,048,575",
    "initializes {place}, and the PTX machine keeps track of no more than 256 mbarriers in a block",
    "expects more bytes at {place} than a phase may have pending: 1,048,575",
    "arrives at {place} more often than its phase needs: several lanes of a warp arrive, and it was initialized for "
    "fewer (elect one)",
    "arrives at {place} more often than its phase needs: its warp has arrived in line {line} before, and the bytes of "
    "that phase have yet to land. It has to wait first until the memory is free: for its readers, at the mbarrier at "
    "which they arrive",
)

# Appended to a read of unwritten memory in a kernel whose copies signal mbarriers.
PROMISED = "; a copy that brings it has to be waited for, and its mbarrier to expect its bytes"

_UNWRITTEN = "; write it first, or check the order of the arguments at the launch"
# Messages for Triton, in place of ``_FAULTS``: how many elements of a block a thread accesses is its compiler's choice.
_PROGRAM_FAULTS = {
    FaultKind.OUT_OF_BOUNDS: "{verb} memory {place}",
    FaultKind.UNINITIALIZED: "{verb} {place}, which nothing has written",
}


def format_coordinates(position: tuple[int, int, int], extents: tuple[int, int, int]) -> str:
    """Format a thread of a block, or a block of a grid, without unused dimensions: "5", "(5, 0)"."""
    dimensions = 3 if extents[2] > 1 else 2 if extents[1] > 1 else 1
    return str(position[0]) if dimensions == 1 else str(position[:dimensions])


def thread_name(thread: tuple[int, int, int], block: tuple[int, int, int]) -> str:
    """Name a thread by its coordinates in the block."""
    return f"thread {format_coordinates(thread, block)}"


def describe_mbarrier_misuse(detail: int, place: str, line: int) -> str:
    """Describe the misuse of an mbarrier. ``line`` is that of an earlier arrival, if ``detail`` has one."""
    return _MBARRIER_RULES[detail].format(place=place, line=line)


def describe_access(kind: FaultKind, site: AccessSite, place: str, programs: bool = False) -> str:
    """Describe a faulty access; ``place`` says where it went, ``programs`` whether the kernel is in Triton."""
    if programs and kind in _PROGRAM_FAULTS:
        text = _PROGRAM_FAULTS[kind].format(verb=_VERBS[site.access], place=place)
    else:
        text = _FAULTS[kind].format(verb=_format_access(site), place=place, site=site)
    return text + _UNWRITTEN * (kind == FaultKind.UNINITIALIZED and site.space == Space.GLOBAL)


def describe_race(
    site: AccessSite,
    place: str,
    other_thread: str,
    other_site: AccessSite | None,
    *,
    one_block: bool,
    shared: bool = True,
    in_a_loop: bool = False,
    signals: bool = False,
    programs: bool = False,
    is_partial_arrival: bool = False,
    kernel: str = "",
) -> str:
    """Describe a race with the access ``other_site`` of the thread ``other_thread``; None if that was not kept.

    Args:
        shared: Whether it is about shared memory.
        in_a_loop: A barrier stands between the two lines, so one of them is in the next iteration of a loop around
            both, or
            in the next call of an inlined function.
        signals: An atomic on global memory or a volatile store, but no fence, stands between them; by it one block may
            tell
            the other to go on.
        programs: Whether the kernel is in Triton. ``other_thread`` is then a program.
        is_partial_arrival: Another lane arrives at an mbarrier for the thread ``other_thread``.
        kernel: The kernel of the other access, if it is of an earlier launch that this one may overlap.
    """
    if other_site is not None and kernel:
        verb = _VERBS[site.access] if programs and not site.is_bulk else _format_access_to(site, shared)
        other = f"{other_thread} of {kernel} {_VERBS[other_site.access]} in line {other_site.line}"
        return f"{verb} {place}, which {other}: that earlier launch may still run before griddepcontrol.wait"
    if other_site is None:
        return f"{_format_access_to(site, shared)} {place}, which {other_thread} reads with no barrier between them"
    if "alloc" in other_site.words:
        writer = f"the tcgen05.alloc in line {other_site.line}"
        return f"{_format_access_to(site, shared)} {place}, which {writer} writes: a barrier has to come first"
    if other_site.is_wgmma or other_site.is_tensor:
        reader = f"{other_site.words[0]} in line {other_site.line}"
        prefix = f"{_format_access_to(site, shared)} {place}, which the {reader} may still read: "
        if other_site.is_tensor:
            return prefix + _COMMIT_MISSING
        return prefix + (_ONE_BUFFER_SHORT if programs else _WAIT_GROUP_MISSING)

    both_store = site.access == other_site.access == Access.STORE and not site.is_bulk
    line = "the same line" if other_site.line == site.line else f"line {other_site.line}"
    verb = _VERBS[site.access] if programs and not site.is_bulk else _format_access_to(site, shared)
    text = f"{verb} {place}, which {other_thread} {_VERBS[other_site.access]}{' too' * both_store} in {line}"
    if site.is_bulk and shared:
        awaited = f"an mbarrier or a barrier at which that thread arrives behind line {other_site.line}"
        return f"{text}: the copy has to wait for {awaited}"
    if in_a_loop:
        first_line, last_line = sorted((site.line, other_site.line))
        which_pass = "previous" if other_site.line == last_line else "next"
        barrier = "tl.debug_barrier()" if programs else "a barrier"
        advice = f"{barrier} is missing between line {last_line} and line {first_line}"
        return f"{text} in the {which_pass} pass of the loop (or call of the function): {advice}"
    if one_block and programs:
        same_address = "two places of its block have this address" if other_site.line == site.line else ""
        return f"{text}: {same_address or 'tl.debug_barrier() is missing between them'}"
    if is_partial_arrival and one_block:
        return f"{text} with no __syncwarp() before another lane arrives at the mbarrier for its warp"
    if one_block:
        return f"{text} with no barrier between them"
    advice = "and nothing orders these two: a launch for each step would, or a flag that is set behind a fence"
    if _is_strong(site) and _is_strong(other_site):
        # Each is compatible with the other one if both scopes are wide enough.
        if BLOCK_STRONG in (site.strong, other_site.strong):
            scope = 'scope="cta"' if programs else "the scope of a block (.cta)"
            advice = f"and {scope} orders none but the threads of one block"
        else:
            scope = 'scope="gpu", the default,' if programs else "the scope of a GPU"
            advice = f"and {scope} orders none but the threads of one GPU"
    elif both_store:
        advice = "so each element needs one owner"
    elif signals:
        fence = 'its sem is not "relaxed"' if programs else "__threadfence() stands before it"
        advice = f"and a flag orders these two only where {fence}"
    return f"{text}: {'programs' if programs else 'blocks'} run in any order, {advice}"


def _is_strong(site: AccessSite) -> bool:
    """Return whether an access is atomic, or relaxed or stronger, at any scope."""
    return site.access == Access.ATOMIC or bool(is_strong(site.strong))


def describe_in_flight(site: AccessSite, place: str, copy: AccessSite, shared: bool, tracked: bool = False) -> str:
    """Describe an access to bytes that a copy in flight still reads or writes.

    Args:
        shared: Whether the bytes are in shared memory.
        tracked: Whether the kernel has its cp.async tracked by mbarriers.
    """
    writes = shared == (copy.access == Access.LOAD or not copy.is_bulk)
    tracked = "mbarrier::complete_tx::bytes" in copy.words or (tracked and copy.is_copy)
    wait = "mbarrier" if tracked else f"group ({_wait_instruction(copy, writes)})"
    action = "writing" if writes else "reading"
    return (
        f"{_format_access_to(site, shared)} {place}, which the copy of line {copy.line} may still be {action}: "
        f"wait for its {wait} first"
    )


def describe_outlived_copy(site: AccessSite, place: str, to_a_peer: bool) -> str:
    """Describe a bulk copy that may still read the shared memory of a block that has exited.

    Args:
        to_a_peer: Whether it goes to another block of the cluster, and so has no group to wait for.
    """
    wait = "wait for the cluster's barrier behind the wait for its mbarrier"
    if not to_a_peer:
        wait = "commit it and wait for its group (cp.async.bulk.wait_group.read 0)"
    return (
        f"copies from {place}, and its block exits while the copy may still be reading: the thread that issues it has "
        f"to {wait} first"
    )


def describe_unfenced(site: AccessSite, place: str, thread: str, write: AccessSite) -> str:
    """Describe a bulk copy, or a wgmma, that reads what a thread wrote, without a fence of the asynchronous proxy in
    between.
    """
    multiplies = site.is_wgmma or site.words[:2] == ["tcgen05", "mma"]
    verb = "multiplies" if multiplies else "copies"
    prefix = f"{verb} {place}, which thread {thread} writes in line {write.line}"
    advice = "the threads that write need one before the barrier, or the thread that reads needs one after it"
    return f"{prefix} with no fence.proxy.async between them, and may read what was there before: {advice}"


def _wait_instruction(copy: AccessSite, writes: bool) -> str:
    if not copy.is_bulk:
        return "cp.async.wait_group"
    return "cp.async.bulk.wait_group" + ".read" * (not writes)


def describe_bad_mask(instruction: str, needed: int, executing: int) -> str:
    """Describe an operation of several lanes whose mask is ``needed``, while the lanes ``here`` execute it."""
    missing_lanes = needed & ~executing
    extra_lanes = executing & ~needed
    difference = f"without {_lane_names(missing_lanes)}" if missing_lanes else f"with {_lane_names(extra_lanes)} too"
    return f"runs {instruction} with the mask {needed:#010x} ({_lane_names(needed)}), but {difference}"


_REGISTER_RULES = {
    UNFENCED: "gives wgmma a register that {other} writes: wgmma.fence is missing between the two",
    USED: "uses a result of {other} while that is in flight: wgmma.wait_group is missing before",
    OVERWRITTEN: "writes to a register of {other} while that is in flight: wgmma.wait_group is missing before",
}
_UNFENCED_CONSTANT = (
    "gives wgmma a register that was set before, as an accumulator is: wgmma.fence is missing in front of the wgmma"
)
_DESCRIPTOR_RULES = {
    1: "which is not that of the other lanes: a warp has one",
    2: "in which bits are set that mean nothing",
    3: "in a warpgroup that is not whole: wgmma needs blocks of a multiple of 128 threads",
}


def describe_wgmma_register(kind: int, name: str, line: int) -> str:
    """Describe the use of a register that the instruction ``name`` in ``line`` also uses.

    Args:
        line: 0 for an instruction that no statement of the source stands for.
    """
    if kind == UNFENCED and not line:
        return _UNFENCED_CONSTANT
    return _REGISTER_RULES[kind].format(other=f"{name.lstrip('@').split('.sync')[0]} in line {line}")


def describe_descriptor(rule: int, value: int) -> str:
    """Describe a wrong descriptor of a matrix in shared memory."""
    return f"gives wgmma the descriptor {value & (1 << 64) - 1:#018x}, {_DESCRIPTOR_RULES[rule]}"


def describe_tensor_rule(
    rule: TensorRule,
    site: AccessSite,
    place: str,
    warp: int,
    value: int,
    conflict: tuple[AccessSite, str] | None,
) -> str:
    """Describe the rule of tcgen05 that an instruction breaks.

    Args:
        place: The cell of tensor memory.
        value: The operand that the rule is about, if it is about one.
        conflict: The other instruction, with its thread.
    """
    other = "another instruction"
    if conflict is not None:
        name = ".".join(conflict[0].words[:2])
        other = f"the {name} of thread {conflict[1]} in line {conflict[0].line}"
    first = 32 * (warp % 4)
    return RULES[rule].format(
        verb=_TENSOR_VERBS.get(site.words[1], "updates"),
        place=place,
        warp=warp,
        first=first,
        last=first + 31,
        value=value & (1 << 64) - 1,
        m=(value >> 24 & 31) << 4,
        n=(value >> 17 & 63) << 3,
        other=other,
    )


def _lane_names(mask: int) -> str:
    """List lanes by their numbers: "lane 3", "lanes 0 to 15, 20", at most three runs of them."""
    lanes = [lane for lane in range(LANES) if mask >> lane & 1]
    starts = [lane for lane in lanes if lane - 1 not in lanes]
    ends = [lane for lane in lanes if lane + 1 not in lanes]
    runs = [str(start) if start == end else f"{start} to {end}" for start, end in zip(starts, ends, strict=True)]
    return f"lane{'s' * (len(lanes) != 1)} {', '.join(runs[:3]) or 'none'}" + ", …" * (len(runs) > 3)


def _format_access(site: AccessSite) -> str:
    verb = "copies" if site.is_bulk else _VERBS[site.access]
    return f"{verb} {site.bytes} byte{'s' * (site.bytes > 1)}"


def _format_access_to(site: AccessSite, shared: bool) -> str:
    """Say what an access does, before its place: a copy has one side in shared memory and one elsewhere."""
    if not site.is_bulk:
        return f"{_format_access(site)} at"
    writes = shared == (site.access == Access.LOAD)
    return "copies to" if writes else "reduces into" if site.access == Access.ATOMIC and not shared else "copies from"


def describe_global_address(address: int, site: AccessSite, buffers: Sequence[Buffer]) -> str:
    """Describe an address relative to the buffer that holds it, or else to the nearest one that was meant.

    A kernel's arguments are a buffer as well. An instruction of the parameter space means them and nothing else; any
    other instruction that misses every buffer means a tensor.
    """
    if not buffers or address < LOWEST:
        return f"at {address:#x}, where no tensor is"
    size = site.bytes
    means_arguments = "param" in site.words

    def distance_to(buffer: Buffer) -> int:
        return max(buffer.address - address, address + size - buffer.address - buffer.nbytes, 0)

    def preference(buffer: Buffer) -> tuple[bool, int]:
        distance = distance_to(buffer)
        return distance > 0 and (buffer.name == ARGUMENTS) != means_arguments, distance

    nearest = min(buffers, key=preference)
    extent = f"{nearest.name} ({nearest.nbytes // nearest.itemsize} {nearest.dtype})"
    offset = address - nearest.address
    if offset >= 0 and offset + size <= nearest.nbytes:
        index, remainder = divmod(offset, nearest.itemsize)
        return f"{nearest.name}[{index}]" + (f" + {remainder} bytes" if remainder else "")
    distance = -offset if offset < 0 else offset + size - nearest.nbytes
    if distance > max(1 << 30, nearest.nbytes):
        element = f"{nearest.name}[{offset // nearest.itemsize:,}]"
        return f"at {address:#x}, where no tensor is; from the nearest one, {extent}, it would be {element}"
    if offset < 0:
        return f"{-offset:,} bytes before the beginning of {extent}"
    return f"past the end of {extent}" + (f", by {distance:,} bytes" if distance > size else "")


def mbarrier_name(offset: int, variables: dict[str, range]) -> str:
    """Name an mbarrier by its variable: "full[1]". Return an empty text if it is in no variable with a size."""
    start, name = find_shared_variable(offset, exclude_compiler_variables(variables))
    if not name or not variables[name]:
        return ""
    return source_name(name) + f"[{(offset - start) // 8}]" * (len(variables[name]) != 8)


def describe_shared_offset(offset: int, site: AccessSite, extent: int, variables: dict[str, range]) -> str:
    """Describe an offset in the shared memory of a block, with the variable that it belongs to."""
    offset -= (offset >= 1 << 31) << 32  # an address that wrapped around
    variables = exclude_compiler_variables(variables)
    first = source_name(min(variables, key=lambda name: variables[name].start, default=""))
    if outside := _describe_outside(offset, site, extent, first if offset < 0 and first else "shared memory"):
        return outside
    start, name = find_shared_variable(offset, variables)
    if not name:
        return f"byte {offset} of {extent} of shared memory"
    end = variables[name].stop if variables[name] else extent  # dynamic shared memory has no size of its own
    index, remainder = divmod(offset - start, site.bytes // site.parts)
    position = f"byte {offset - start} of {end - start}"
    return f"{position} of {source_name(name)}" if remainder else f"{source_name(name)}[{index}] ({position})"


def describe_local_offset(offset: int, site: AccessSite, extent: int, has_barrier: bool) -> str:
    """Describe an offset in a thread's local memory. In a kernel with barriers, it may have been meant to be shared."""
    if outside := _describe_outside(offset, site, extent, "local memory"):
        return outside
    hint = "; is __shared__ missing?" * has_barrier
    return f"byte {offset} of an array that belongs to one thread alone (local memory{hint})"


def describe_parameter_offset(offset: int, extent: int) -> str:
    """Describe an offset from the first parameter of a kernel that lies past the last one, or that is written."""
    if offset >= extent:
        return f"past the end of the parameters of the kernel ({extent} bytes), at offset {offset}"
    return f"to the parameters of the kernel, at offset {offset}: they are read-only"


def _describe_outside(offset: int, site: AccessSite, extent: int, memory: str) -> str:
    if offset < 0:
        return f"{-offset} bytes before the beginning of {memory}"
    if offset + site.bytes > extent:
        return f"past the end of {memory} ({extent} bytes), at offset {offset}"
    return ""
