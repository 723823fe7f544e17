"""As textbooks of MPI write it: isend, a blocking recv, then wait; one staging buffer; a tag for each phase."""

import torch
import torch.distributed as dist


def pass_right(out, into, tag):
    rank, size = dist.get_rank(), dist.get_world_size()
    request = dist.isend(out, dst=(rank + 1) % size, tag=tag)
    dist.recv(into, src=(rank + size - 1) % size, tag=tag)
    request.wait()


def bounds(n, size):
    starts = [i * (n // size) + min(i, n % size) for i in range(size + 1)]
    return [(starts[i], starts[i + 1]) for i in range(size)]


def scattered(x):
    rank, size = dist.get_rank(), dist.get_world_size()
    total, parts = x.clone(), bounds(x.numel(), size)
    staging = torch.empty_like(x)
    for step in range(size - 1):
        a, b = parts[(rank - step - 1) % size]
        c, d = parts[(rank - step - 2) % size]
        pass_right(total[a:b], staging[c:d], tag=1)
        total[c:d] += staging[c:d]
    return total, parts


def gathered(total, parts):
    rank, size = dist.get_rank(), dist.get_world_size()
    for step in range(size - 1):
        a, b = parts[(rank - step) % size]
        c, d = parts[(rank - step - 1) % size]
        pass_right(total[a:b], total[c:d], tag=2)
    return total


def two_shot(x):
    rank, size = dist.get_rank(), dist.get_world_size()
    parts = bounds(x.numel(), size)
    mine = slice(*parts[rank])
    requests, arrived = [], [torch.empty_like(x[mine]) for _ in range(size)]
    for peer in range(size):
        if peer != rank:
            requests.append(dist.irecv(arrived[peer], peer))
            requests.append(dist.isend(x[slice(*parts[peer])], peer))
    for request in requests:
        request.wait()
    arrived[rank].copy_(x[mine])
    total = torch.empty_like(x)
    total[mine] = torch.stack(arrived).double().sum(0).to(x.dtype)
    requests = []
    for peer in range(size):
        if peer != rank:
            requests.append(dist.irecv(total[slice(*parts[peer])], peer))
            requests.append(dist.isend(total[mine], peer))
    for request in requests:
        request.wait()
    return total


def collective(x, algorithm):
    rank = dist.get_rank()
    if algorithm == "two_shot":
        return two_shot(x)
    if algorithm == "all_gather":
        return gathered(x.clone(), bounds(x.numel(), dist.get_world_size()))
    total, parts = scattered(x)
    if algorithm == "reduce_scatter":
        return total[slice(*parts[rank])].clone()
    for step in range(dist.get_world_size() - 1):
        size = dist.get_world_size()
        a, b = parts[(rank - step) % size]
        c, d = parts[(rank - step - 1) % size]
        pass_right(total[a:b], total[c:d], tag=3)
    return total
