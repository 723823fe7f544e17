"""All-reduce: a sum over ranks with send and receive.

Every rank is a process and has a vector x of n elements; the default group of torch.distributed exists when collective
is called. Chunk r of a vector is x.tensor_split(size)[r]. The first n % size chunks have one more element, and with
more ranks than elements, some chunks are empty.

    reduce_scatter(x)     rank r returns chunk r of the sum of all x
    all_gather(own, n)    rank r gives chunk r of a vector of n elements; every rank returns the whole vector
    ring(x)               every rank returns the sum of all x; runs the two above, in size - 1 steps each, and in each
                          step a rank sends one message to one neighbor
    two_shot(x)           the same in two steps for any number of ranks; in each, a rank sends messages to all others

Use only send and receive: dist.isend and dist.irecv, or dist.batch_isend_irecv, which posts a step's messages together.
A send is complete when the other rank receives, so two ranks that both send first wait forever. In each of the two
phases, a rank may send all chunks but one, each of them once, so it sends 2 (size - 1) / size of its vector in all. The
bits of the sum must be the same on all ranks. The report counts bytes and messages, and times them on simulated links
with a latency of 2 µs and a bandwidth of 400 GB/s each way. Don't modify the inputs.
"""

import torch
import torch.distributed as dist


def reduce_scatter(x: torch.Tensor) -> torch.Tensor:
    """Return chunk `rank` of the sum over all ranks, as a ring with size - 1 steps of one chunk each."""
    rank, size = dist.get_rank(), dist.get_world_size()
    raise NotImplementedError("TODO: pass sums to the right, one chunk at each step, and add your own chunk to each")


def all_gather(own: torch.Tensor, n: int) -> torch.Tensor:
    """Return the vector of n elements whose chunk `rank` is `own`, as a ring that passes on each chunk."""
    rank, size = dist.get_rank(), dist.get_world_size()
    raise NotImplementedError("TODO: pass chunks to the right")


def ring(x: torch.Tensor) -> torch.Tensor:
    """Return the sum of all x in 2 (size - 1) steps. The bandwidth is best, but the latency grows with the ranks."""
    raise NotImplementedError("TODO: made of the two above")


def two_shot(x: torch.Tensor) -> torch.Tensor:
    """Return the sum of all x in two steps, with the bytes of a ring and the latency of two messages."""
    rank, size = dist.get_rank(), dist.get_world_size()
    raise NotImplementedError("TODO: send chunk r to rank r, add up, send the sum to all")


def collective(x: torch.Tensor, algorithm: str) -> torch.Tensor:
    """Run the named algorithm. The grader calls this function on every rank."""
    if algorithm == "reduce_scatter":
        return reduce_scatter(x)
    if algorithm == "all_gather":
        return all_gather(x.tensor_split(dist.get_world_size())[dist.get_rank()], x.numel())
    return {"ring": ring, "two_shot": two_shot}[algorithm](x)
