"""PyTorch's views: permute, reshape and as_strided of one torch.arange."""

import torch


def offsets(name: str, matrix: torch.Tensor) -> torch.Tensor:
    m, n = matrix.shape
    count = torch.arange(2 * (m + 1) * (n + 1), device=matrix.device)
    match name:
        case "row_major":
            return count[: m * n].view(m, n).clone()
        case "column_major":
            return count[: m * n].view(n, m).t().contiguous()
        case "padded":
            return count[: m * (n + 1)].view(m, n + 1)[:, :n].contiguous()
        case "broadcast":
            return count[:n].expand(m, n).contiguous()
        case "tiled":
            return count[: m * n].view(m // 4, n // 8, 4, 8).permute(0, 2, 1, 3).reshape(m, n)
        case "thread_values":
            return torch.as_strided(count, (m, n // 4, 4), (4, 4 * m, 1)).reshape(m, n)
    raise KeyError(name)
