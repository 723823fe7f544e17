"""Return relu(a @ b.T + bias) for a of shape (m, k), b of shape (n, k), and bias of shape (n,), in Helion."""

import helion
import helion.language as hl
import torch


@helion.kernel(config=helion.Config(block_sizes=[64, 64, 64], num_warps=4, num_stages=3, indexing="pointer"))
def linear_relu(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    m, k = a.shape
    n = b.shape[0]
    out = torch.empty([m, n], dtype=a.dtype, device=a.device)
    for row, column in hl.tile([m, n]):
        acc = hl.zeros([row, column], dtype=torch.float32)
        for step in hl.tile(k):
            acc = torch.addmm(acc, a[row, step], b[column, step].T)
        out[row, column] = torch.relu(acc + bias[column]).to(out.dtype)
    return out
