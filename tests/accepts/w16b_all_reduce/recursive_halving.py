"""The reduce-scatter is Rabenseifner's: halves are swapped with rank ^ distance, log2(size) times; ring is a ring."""

import torch
import torch.distributed as dist


def swap(out, into, peer):
    first, second = (dist.isend, dist.irecv) if dist.get_rank() < peer else (dist.irecv, dist.isend)
    works = [one(out if one is dist.isend else into, peer) for one in (first, second)]
    for work in works:
        work.wait()


def ring_step(out, into):
    rank, size = dist.get_rank(), dist.get_world_size()
    works = [dist.isend(out, (rank + 1) % size), dist.irecv(into, (rank - 1) % size)]
    for work in reversed(works):
        work.wait()


def ring_reduce_scatter(x):
    rank, size = dist.get_rank(), dist.get_world_size()
    parts = x.clone().tensor_split(size)
    for step in range(1, size):
        into = torch.empty_like(parts[(rank - step - 1) % size])
        ring_step(parts[(rank - step) % size], into)
        parts[(rank - step - 1) % size].add_(into)
    return parts[rank].clone()


def reduce_scatter(x):
    rank, size = dist.get_rank(), dist.get_world_size()
    if size & (size - 1):
        return ring_reduce_scatter(x)
    total = x.clone()
    parts = total.tensor_split(size)
    edges = [0]
    for part in parts:
        edges.append(edges[-1] + part.numel())
    low, high, distance = 0, size, size // 2
    while distance:
        middle = low + distance
        keep, give = ((low, middle), (middle, high)) if rank < middle else ((middle, high), (low, middle))
        mine = total[edges[keep[0]] : edges[keep[1]]]
        into = torch.empty_like(mine)
        swap(total[edges[give[0]] : edges[give[1]]], into, rank ^ distance)
        mine += into
        low, high = keep
        distance //= 2
    return total[edges[rank] : edges[rank + 1]].clone()


def all_gather(own, n):
    rank, size = dist.get_rank(), dist.get_world_size()
    whole = own.new_empty(n)
    parts = whole.tensor_split(size)
    parts[rank].copy_(own)
    for step in range(size - 1):
        ring_step(parts[(rank - step) % size], parts[(rank - step - 1) % size])
    return whole


def two_shot(x):
    rank, size = dist.get_rank(), dist.get_world_size()
    peers = [p for p in range(size) if p != rank]
    parts = x.tensor_split(size)
    rows = {p: torch.empty_like(parts[rank]) for p in peers}
    works = [dist.irecv(rows[p], p) for p in peers] + [dist.isend(parts[p], p) for p in peers]
    for work in works:
        work.wait()
    rows[rank] = parts[rank]
    total = sum(rows[p].float() for p in range(size)).to(x.dtype)
    whole = torch.empty_like(x)
    into = whole.tensor_split(size)
    into[rank].copy_(total)
    works = [dist.irecv(into[p], p) for p in peers] + [dist.isend(total, p) for p in peers]
    for work in works:
        work.wait()
    return whole


def collective(x, algorithm):
    size, rank = dist.get_world_size(), dist.get_rank()
    if algorithm == "reduce_scatter":
        return reduce_scatter(x)
    if algorithm == "all_gather":
        return all_gather(x.tensor_split(size)[rank], x.numel())
    return two_shot(x) if algorithm == "two_shot" else all_gather(ring_reduce_scatter(x), x.numel())
