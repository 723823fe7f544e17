"""Cross-entropy: loss and gradient without stored probabilities.

cross_entropy(logits, labels, ignore_index, gradient) takes a contiguous matrix of logits (rows, classes) in bfloat16 or
float32, with 2 to 262144 classes, and one int64 label per row. It returns loss, one float32 per row. If gradient is
True, it returns (loss, dlogits), where dlogits has the shape and dtype of the logits.

    loss = log(sum of exp(logits[r, :])) - logits[r, labels[r]]
    dlogits = (softmax(logits[r, :]) - 1 at the label) / number of rows whose label is not ignore_index

dlogits is the gradient of the mean loss over the rows whose label is not ignore_index. A row with the label
ignore_index has loss 0 and gradient 0. A label that is neither ignore_index nor a class is an error. For such a row,
read nothing outside the row, and return NaN as loss and gradient, so that nobody overlooks the error. Compute in
float32. The results must be right for logits with magnitudes up to a million, and for classes masked with -inf, as long
as the label's class isn't masked. The matrix may have more than 2**32 elements, so offsets need 64 bits.

Start with one program per row and an online maximum and sum, chunk by chunk; then add a second loop for the gradient.
The grader checks the values, the bytes moved, and the memory allocated, and on a GPU it compares the time with
PyTorch's operators.

The grader enforces these limits on the largest case; smaller cases get some slack for partial tiles. Each load or store
may touch at most 1.3 times the sectors that its bytes require. In total, global memory accesses may move at most 1.8
times the size of the inputs and outputs. Bank conflicts may add at most 1 wavefront per request. Any workspace may be
at most 0.1 times the size of the inputs and outputs.

Bytes: the loss alone reads the logits, 2.1 GB for 8192 x 128256 bfloat16, 0.47 ms at the 4.5 TB/s at which an H200
reads. With the gradient, the kernel writes as many bytes again, 1.0 ms at the 4.2 TB/s at which an H200 copies.
Operations: about 15 instructions per logit, nearly half of the instructions that the SMs can issue in that time, so
each instruction counts. Shares measured on an H200:

    classes, dtype      loss, of reading    compiled    loss and gradient, of a copy    compiled    Liger
    32000 bfloat16      0.98                0.33        0.88                            0.36        0.46
    50257 bfloat16      0.95                0.29        0.81                            0.28        0.32
    128256 bfloat16     0.97                0.35        0.81                            0.38        0.57
    262144 bfloat16     0.97                0.38        0.72                            0.38        0.47
    50257 float32       0.97                0.57        0.85                            0.38        0.57
    128256 float32      0.99                0.71        0.76                            0.56        0.61
    262144 float32      0.97                0.74        0.68                            0.57        0.57

The kernel never stores the probabilities. Given a row's maximum and sum, each probability takes one exponential. The
kernel loads the row's logits a second time, and L2 holds them if all rows in flight fit. So the longer the rows, the
fewer programs run per SM, down to a single program with 32 warps, whose waits no other program can hide. It keeps two
blocks in registers, and after storing their gradient, it loads two blocks of the next row into the same registers. If
the number of classes is odd, seven of eight rows start between multiples of 16 bytes. Such a row consists of whole
vectors, which start at the first multiple of 16 bytes, and of single elements at its two ends. Liger also uses one
program per row and two loops; per-thread sums, as in torch.compile's code, need no barrier.
"""

import torch
import triton
import triton.language as tl

LOWEST = tl.constexpr(-3.4028234663852886e38)
LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit(do_not_specialize=["rows", "ignore_index"], do_not_specialize_on_alignment=["labels"])
def count_labels(counted, labels, rows, ignore_index, BLOCK: tl.constexpr):
    """Count the labels that are not ignore_index."""
    total = tl.zeros([BLOCK], tl.int32)
    for first in range(0, rows, BLOCK):
        row = first + tl.arange(0, BLOCK)
        label = tl.load(labels + row, mask=row < rows, other=ignore_index)
        total += (label != ignore_index).to(tl.int32)
    tl.store(counted, tl.sum(total, axis=0))


@triton.jit(do_not_specialize=["rows", "classes", "ignore_index"], do_not_specialize_on_alignment=["labels"])
def cross_entropy_rows(
    loss, dlogits, logits, labels, counted, rows, classes, ignore_index, GRADIENT: tl.constexpr,
    WIDTH: tl.constexpr, HELD: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Process row after row. HELD blocks stay in registers; the others are loaded twice, PARTS at a time."""
    ONCE: tl.constexpr = "evict_first" if GRADIENT else ""  # L2 is for what is loaded a second time
    AGAIN: tl.constexpr = "evict_last" if GRADIENT else ""
    lane = tl.arange(0, BLOCK // WIDTH)[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
    edge = tl.arange(0, 2 * WIDTH)
    begin, middle, stop = vectors_of(tl.program_id(0), rows, classes, WIDTH)
    held = load(logits + middle, lane, stop, HELD, BLOCK, ONCE)
    label = tl.load(labels + tl.program_id(0))
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0)):
        begin, middle, stop = vectors_of(row, rows, classes, WIDTH)
        known = (label != ignore_index) & (label >= 0) & (label < classes)
        needed = tl.where(known, stop // WIDTH, 0) * WIDTH  # of a row without a known label no more is loaded
        place = tl.where(edge < WIDTH, begin + edge, middle + stop + edge - WIDTH)
        outside = place < tl.where(edge < WIDTH, tl.minimum(middle, begin + classes), begin + classes)
        ends = tl.load(logits + place, mask=outside, other=-float("inf")).to(tl.float32)
        picked = tl.load(logits + begin + label, mask=known, other=0.0).to(tl.float32)

        base = tl.full([BLOCK // WIDTH], LOWEST, tl.float32)
        total = tl.zeros([BLOCK // WIDTH], tl.float32)
        base, total = include(base, total, held)
        for first in tl.range(HELD * BLOCK, needed, PARTS * BLOCK):
            base, total = include(base, total, load(logits + middle, first + lane, needed, PARTS, BLOCK, AGAIN))
        highest = tl.maximum(tl.max(base, axis=0), tl.max(ends, axis=0) * LOG2_E)
        total = tl.sum(total * tl.exp2(base - highest), axis=0) + tl.sum(power(ends, highest), axis=0)
        otherwise = tl.where(label == ignore_index, 0.0, float("nan"))
        difference = tl.log2(total) - (picked * LOG2_E - highest)
        tl.store(loss + row, tl.where(known, difference / LOG2_E, otherwise))

        if GRADIENT:
            share = tl.where(known, 1.0 / tl.load(counted).to(tl.float32), otherwise)
            scale = tl.where(known, share / total, otherwise)
            store(dlogits + middle, lane, stop, held, highest, scale, BLOCK)
            # Their registers are free, so the next row's first blocks come from memory while this row's other blocks
            # come from L2, last block first.
            following = row + tl.num_programs(0)
            _, next_middle, next_stop = vectors_of(following, rows, classes, WIDTH)
            held = load(logits + next_middle, lane, next_stop, HELD, BLOCK, ONCE)
            next_label = tl.load(labels + following, mask=following < rows, other=ignore_index)
            steps = tl.cdiv(stop - HELD * BLOCK, PARTS * BLOCK)
            for step in tl.range(0, steps):
                column = HELD * BLOCK + (steps - 1 - step) * (PARTS * BLOCK) + lane
                again = load(logits + middle, column, needed, PARTS, BLOCK, ONCE)
                store(dlogits + middle, column, stop, again, highest, scale, BLOCK)
            tl.store(dlogits + place, (power(ends, highest) * scale).to(dlogits.dtype.element_ty), mask=outside)
            tl.debug_barrier()  # another thread has written what stands at the label
            result = power(picked, highest) * scale - share
            tl.store(dlogits + begin + label, result.to(dlogits.dtype.element_ty), mask=known)
            label = next_label


@triton.jit
def vectors_of(row, rows, classes, WIDTH: tl.constexpr):
    """Return the start of a row, the start of its whole vectors of WIDTH elements, and their number of elements.

    Up to WIDTH - 1 elements precede and follow them. The compiler sees that both are multiples of WIDTH.
    """
    begin = row.to(tl.int64) * classes
    vectors = tl.maximum((begin + classes) // WIDTH - tl.cdiv(begin, WIDTH), 0).to(tl.int32)
    return begin, tl.cdiv(begin, WIDTH) * WIDTH, tl.where(row < rows, vectors, 0) * WIDTH


@triton.jit
def load(source, column, stop, PARTS: tl.constexpr, BLOCK: tl.constexpr, EVICTION: tl.constexpr):
    """Load PARTS blocks as stored, starting at `column`, with -inf from `stop`. Masks cover whole vectors only."""
    parts = ()
    for part in tl.static_range(PARTS):
        at = column + part * BLOCK
        parts += (tl.load(source + at, mask=at < stop, other=-float("inf"), eviction_policy=EVICTION),)
    return parts


@triton.jit
def power(logit, base):
    """Return 2 ** (logit * log2(e) - base) with one multiply-add, which rounds once; base may be rounded in any way.

    Written as a product and a difference, it becomes two instructions if the compiler hoists the product.
    """
    return tl.exp2(tl.fma(logit, LOG2_E, -base))


@triton.jit
def include(base, total, parts):
    """Update each thread's online normalizer (Milakov and Gimelshein, 2018), with one rescaling for all `parts`.

    base: the largest logit so far, times log2(e). total: the sum of `power` for this base.
    """
    larger = base
    for part in tl.static_range(len(parts)):
        larger = tl.maximum(larger, tl.max(parts[part].to(tl.float32), axis=1) * LOG2_E)
    total *= tl.exp2(base - larger)
    for part in tl.static_range(len(parts)):
        total += tl.sum(power(parts[part].to(tl.float32), larger[:, None]), axis=1)
    return larger, total


@triton.jit
def store(target, column, stop, parts, highest, scale, BLOCK: tl.constexpr):
    """Store the probabilities of `parts`, times a row's share. L2 is for logits, because nothing reads these soon."""
    for part in tl.static_range(len(parts)):
        at = column + part * BLOCK
        result = power(parts[part].to(tl.float32), highest) * scale
        tl.store(target + at, result.to(target.dtype.element_ty), mask=at < stop, cache_modifier=".cs")


def cross_entropy(
    logits: torch.Tensor, labels: torch.Tensor, ignore_index: int, gradient: bool
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    rows, classes = logits.shape
    loss = torch.empty(len(logits), dtype=torch.float32, device=logits.device)
    dlogits = torch.empty_like(logits) if gradient else loss
    counted = torch.empty(1, dtype=torch.int32, device=logits.device)
    width = 16 // logits.element_size()
    held, parts, warps, programs, options = 2, 2, 8, rows, {}
    if gradient:
        # Launch as many programs as can have their rows in L2 at the same time. They need all registers of an SM.
        size = classes * logits.element_size()
        per_sm = 4 if size <= 1 << 16 else 2 if size <= 1 << 17 else 1
        parts, warps, options = 4, 32 // per_sm, {"maxnreg": 64}
        programs = min(rows, per_sm * multiprocessors(logits.device))
        count_labels[1,](counted, labels, rows, ignore_index, 4096, num_warps=16)
    cross_entropy_rows[programs,](
        loss, dlogits, logits, labels, counted, rows, classes, ignore_index, gradient,
        width, held, parts, 32 * warps * width, num_warps=warps, **options,
    )  # fmt: skip
    return (loss, dlogits) if gradient else loss


def multiprocessors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device if device.type == "cuda" else None).multi_processor_count
