"""S1: PyTorch's operators do the work."""

import torch


def cross_entropy(logits, labels, ignore_index, gradient):
    wide = logits.float()
    known = (labels != ignore_index) & (labels >= 0) & (labels < logits.shape[1])
    place = labels.where(known, 0)[:, None]
    otherwise = torch.where(labels == ignore_index, 0.0, float("nan"))
    loss = torch.where(known, torch.logsumexp(wide, 1) - wide.gather(1, place)[:, 0], otherwise)
    if not gradient:
        return loss
    share = torch.where(known, 1 / (labels != ignore_index).sum(), otherwise)[:, None]
    return loss, (torch.softmax(wide, 1) * share).scatter_add_(1, place, -share).to(logits.dtype)
