"""Cross-entropy over a vocabulary: loss and gradient without the probabilities in memory.

cross_entropy(logits, labels, ignore_index, gradient) takes a contiguous matrix of logits (rows, classes) in bfloat16
or float32, of 1 to 262144 classes, and for each row a label as int64. It returns loss, one float32 per row, and if
gradient is True also dlogits, of the shape and dtype of the logits: (loss, dlogits).

    loss = log(sum of exp(logits[r, :])) - logits[r, labels[r]]
    dlogits = (softmax(logits[r, :]) - 1 at the label) / number of rows whose label is not ignore_index

dlogits is the gradient of the mean loss over those rows. A row with the label ignore_index has loss 0 and gradient 0.
A label that is neither that nor a class is an error: nothing may be read outside of the row, and its loss and
gradient are NaN, so that nobody overlooks it. The arithmetic is float32, and right for finite logits of any size, and
for classes masked with -inf, as long as the label is not. The matrix may have more than 2**32 elements: offsets need
64 bits.

Begin with one program per row and an online maximum and sum, chunk by chunk; then a second loop for the gradient.
Graded: the values, the bytes that are moved, the memory that is allocated, and on a GPU the time against PyTorch's
operators.

"""

import torch
import triton
import triton.language as tl

LOWEST = tl.constexpr(-3.4028234663852886e38)


@triton.jit(do_not_specialize=["rows", "ignore_index"], do_not_specialize_on_alignment=["labels"])
def count_labels(counted, labels, rows, ignore_index, BLOCK: tl.constexpr):
    """How many labels are not ignore_index."""
    total = tl.zeros([BLOCK], tl.int32)
    for first in range(0, rows, BLOCK):
        row = first + tl.arange(0, BLOCK)
        label = tl.load(labels + row, mask=row < rows, other=ignore_index)
        total += (label != ignore_index).to(tl.int32)
    tl.store(counted, tl.sum(total, axis=0))


@triton.jit(do_not_specialize=["rows", "classes", "ignore_index"], do_not_specialize_on_alignment=["labels"])
def cross_entropy_rows(
    loss, dlogits, logits, labels, counted, words, rows, classes, ignore_index, GRADIENT: tl.constexpr,
    WIDTH: tl.constexpr, TEAM: tl.constexpr, HELD: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """TEAM programs for a row: each keeps HELD blocks of its slice in registers and loads the rest, PARTS at a time."""
    member = tl.program_id(0) % TEAM
    start = member * tl.cdiv(classes, TEAM * BLOCK) * BLOCK
    lane = tl.arange(0, BLOCK // WIDTH)[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
    edge = tl.arange(0, 2 * WIDTH)
    for row in tl.range(tl.program_id(0) // TEAM, rows, tl.num_programs(0) // TEAM):
        label = tl.load(labels + row)
        known = (label != ignore_index) & (label >= 0) & (label < classes)
        # A row is a middle of whole vectors of WIDTH elements, and up to WIDTH - 1 elements at either end of it.
        begin = row.to(tl.int64) * classes
        end = begin + classes
        middle = tl.cdiv(begin, WIDTH) * WIDTH
        vectors = tl.maximum(end // WIDTH - tl.cdiv(begin, WIDTH), 0).to(tl.int32)
        stop = tl.minimum(start // WIDTH + tl.cdiv(classes, TEAM * BLOCK) * (BLOCK // WIDTH), vectors) * WIDTH
        loaded = tl.where(known, stop // WIDTH, 0) * WIDTH  # of a row without a known label nothing
        place = tl.where(edge < WIDTH, begin + edge, middle + vectors * WIDTH + edge - WIDTH)
        outside = (place < tl.where(edge < WIDTH, tl.minimum(middle, end), end)) & (member == 0)
        ends = tl.load(logits + place, mask=outside & known, other=-float("inf")).to(tl.float32)
        picked = tl.load(logits + begin + label, mask=known, other=0.0).to(tl.float32)

        top = tl.full([BLOCK // WIDTH], LOWEST, tl.float32)
        total = tl.zeros([BLOCK // WIDTH], tl.float32)
        held = load(logits + middle, start + lane, loaded, HELD, BLOCK)
        if HELD > 0:
            top, total = include(top, total, held)
        for first in tl.range(start + HELD * BLOCK, loaded, PARTS * BLOCK):
            top, total = include(top, total, load(logits + middle, first + lane, loaded, PARTS, BLOCK))
        highest = tl.maximum(tl.max(top, axis=0), tl.max(ends, axis=0))
        total = tl.sum(total * tl.exp(top - highest), axis=0) + tl.sum(tl.exp(ends - highest), axis=0)
        if TEAM > 1:
            tops, totals = exchange(words + row.to(tl.int64) * TEAM, member, highest, total, TEAM)
            highest = tl.max(tops, axis=0)
            total = tl.sum(totals * tl.exp(tops - highest), axis=0)

        otherwise = tl.where(label == ignore_index, 0.0, float("nan"))
        if member == 0:
            tl.store(loss + row, tl.where(known, tl.log(total) - (picked - highest), otherwise))
        if GRADIENT:
            share = tl.where(known, 1.0 / tl.load(counted).to(tl.float32), otherwise)
            scale = tl.where(known, share / total, otherwise)
            at = (begin + label - middle).to(tl.int32)
            store(dlogits + middle, start + lane, stop, held, highest, scale, at, share, BLOCK)
            steps = tl.cdiv(stop - start - HELD * BLOCK, PARTS * BLOCK)
            for step in tl.range(0, steps):  # the last first: it is the likeliest to be in L2 still
                first = start + HELD * BLOCK + (steps - 1 - step) * (PARTS * BLOCK)
                again = load(logits + middle, first + lane, loaded, PARTS, BLOCK)
                store(dlogits + middle, first + lane, stop, again, highest, scale, at, share, BLOCK)
            result = tl.exp(ends - highest) * scale - tl.where(place == begin + label, share, 0.0)
            tl.store(dlogits + place, result.to(dlogits.dtype.element_ty), mask=outside)


@triton.jit
def load(source, column, stop, PARTS: tl.constexpr, BLOCK: tl.constexpr):
    """PARTS blocks from `column` on, as they lie in memory, -inf from `stop` on. Whole vectors are masked, or none."""
    parts = ()
    for part in tl.static_range(PARTS):
        at = column + part * BLOCK
        parts += (tl.load(source + at, mask=at < stop, other=-float("inf")),)
    return parts


@triton.jit
def include(top, total, parts):
    """The online normalizer of each thread (Milakov and Gimelshein, 2018): one rescaling for all values of `parts`."""
    larger = top
    for part in tl.static_range(len(parts)):
        larger = tl.maximum(larger, tl.max(parts[part].to(tl.float32), axis=1))
    total *= tl.exp(top - larger)
    for part in tl.static_range(len(parts)):
        total += tl.sum(tl.exp(parts[part].to(tl.float32) - larger[:, None]), axis=1)
    return larger, total


@triton.jit
def store(target, column, stop, parts, highest, scale, label, share, BLOCK: tl.constexpr):
    """The gradient of the values in `parts`. Nothing reads it soon, so that it leaves L2 to the logits."""
    for part in tl.static_range(len(parts)):
        at = column + part * BLOCK
        result = tl.exp(parts[part].to(tl.float32) - highest) * scale - tl.where(at == label, share, 0.0)
        tl.store(target + at, result.to(target.dtype.element_ty), mask=at < stop, cache_modifier=".cs")


@triton.jit
def exchange(words, member, a, b, TEAM: tl.constexpr):
    """What each of the TEAM programs passes as a and b. A word that is -1 has not been left yet.

    Two float32 are one word of 8 bytes, which is stored and loaded at once: where it is there, both are, and nothing
    else has to be ordered by a fence. All programs of the grid must be resident: the launch is cooperative.
    """
    high = a.to(tl.uint32, bitcast=True).to(tl.uint64) << 32
    word = (high | b.to(tl.uint32, bitcast=True)).to(tl.int64, bitcast=True)
    tl.atomic_xchg(words + member, word, sem="relaxed")
    members = words + tl.arange(0, TEAM)
    while tl.min(tl.where(tl.load(members, volatile=True) == -1, 0, 1), axis=0) == 0:
        pass
    found = tl.load(members, volatile=True).to(tl.uint64, bitcast=True)
    return (found >> 32).to(tl.uint32).to(tl.float32, bitcast=True), found.to(tl.uint32).to(tl.float32, bitcast=True)


def cross_entropy(
    logits: torch.Tensor, labels: torch.Tensor, ignore_index: int, gradient: bool
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    rows, classes = logits.shape
    loss = torch.empty(len(logits), dtype=torch.float32, device=logits.device)
    dlogits = torch.empty_like(logits) if gradient else loss
    counted = torch.empty(1, dtype=torch.int32, device=logits.device)
    width = 16 // logits.element_size()
    team, held, parts, warps = 1, 0, 4, 8
    if gradient:
        count_labels[1,](counted, labels, rows, ignore_index, 4096, num_warps=16)
    cross_entropy_rows[rows,](
        loss, dlogits, logits, labels, counted, counted, rows, classes, ignore_index, gradient,
        width, team, held, parts, 32 * warps * width, num_warps=warps,
    )  # fmt: skip
    return (loss, dlogits) if gradient else loss
