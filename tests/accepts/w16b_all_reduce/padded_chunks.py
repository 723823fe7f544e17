"""As gradient buckets do it: the vector is padded to equal chunks; a class of a ring."""

import torch
import torch.distributed as dist
import torch.nn.functional as F


class Ring:
    def __init__(self, n):
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.n, self.chunk = n, -(-n // self.world)

    def shift(self, tensor):
        """What the left neighbor had, for what this rank has."""
        if self.world == 1:
            return tensor
        into = torch.empty_like(tensor)
        for work in (
            dist.irecv(into, (self.rank - 1) % self.world),
            dist.isend(tensor, (self.rank + 1) % self.world),
        ):
            while not work.is_completed():
                pass
            work.wait()
        return into

    def reduce_scatter(self, x):
        rows = F.pad(x, (0, self.chunk * self.world - self.n)).view(self.world, self.chunk)
        total = rows[(self.rank - 1) % self.world].clone()
        for step in range(2, self.world + 1):
            total = self.shift(total) + rows[(self.rank - step) % self.world]
        return total

    def all_gather(self, own):
        rows = own.new_empty(self.world, self.chunk)
        for step in range(self.world):
            rows[(self.rank - step) % self.world] = own
            own = self.shift(own) if step < self.world - 1 else own
        return rows


def two_shot(x):
    ring = Ring(x.numel())
    rows = F.pad(x, (0, ring.chunk * ring.world - ring.n)).view(ring.world, ring.chunk)

    def everyone(mine):
        into = [torch.empty_like(mine[0]) for _ in range(ring.world)]
        into[ring.rank] = mine[ring.rank]
        operations = []
        for distance in range(1, ring.world):
            peer = (ring.rank + distance) % ring.world
            operations += [dist.P2POp(dist.isend, mine[peer], peer), dist.P2POp(dist.irecv, into[peer], peer)]
        for work in dist.batch_isend_irecv(operations) if operations else []:
            work.wait()
        return torch.stack(into)

    total = everyone(rows).float().sum(0).to(x.dtype)
    return everyone(total.expand(ring.world, -1)).view(-1)[: ring.n].clone()


def collective(x, algorithm):
    n, ring = x.numel(), Ring(x.numel())
    if algorithm == "two_shot":
        return two_shot(x)
    pieces = [piece.numel() for piece in x.tensor_split(ring.world)]
    if algorithm == "ring":
        return ring.all_gather(ring.reduce_scatter(x)).view(-1)[:n].clone()
    if algorithm == "reduce_scatter":  # unequal chunks: each row is one of them, padded
        rows = torch.stack([F.pad(piece, (0, ring.chunk - piece.numel())) for piece in x.tensor_split(ring.world)])
        return ring.reduce_scatter_rows(rows)[: pieces[ring.rank]].clone()
    own = x.tensor_split(ring.world)[ring.rank]
    rows = ring.all_gather(F.pad(own, (0, ring.chunk - own.numel())))
    return torch.cat([row[:count] for row, count in zip(rows, pieces, strict=True)])


def _reduce_scatter_rows(self, rows):
    total = rows[(self.rank - 1) % self.world].clone()
    for step in range(2, self.world + 1):
        total = self.shift(total) + rows[(self.rank - step) % self.world]
    return total


Ring.reduce_scatter_rows = _reduce_scatter_rows
