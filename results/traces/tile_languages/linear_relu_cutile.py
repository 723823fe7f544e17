"""Write relu(a @ b.T + bias) to out, in cuTile."""

import cuda.tile as ct


@ct.kernel
def linear_relu(a, b, bias, out, TILE: ct.Constant[int]):
    row, column = ct.bid(0), ct.bid(1)
    acc = ct.zeros((TILE, TILE), dtype=ct.float32)
    for step in range(ct.num_tiles(a, axis=1, shape=(TILE, TILE))):
        a_tile = ct.load(a, index=(row, step), shape=(TILE, TILE))
        b_tile = ct.load(b, index=(column, step), shape=(TILE, TILE))
        acc = ct.mma(a_tile, ct.transpose(b_tile), acc)
    bias_tile = ct.load(bias, index=(column,), shape=(TILE,))
    acc = ct.maximum(acc + bias_tile, 0)
    ct.store(out, index=(row, column), tile=ct.astype(acc, out.dtype))
