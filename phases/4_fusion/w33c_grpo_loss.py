"""GRPO: the loss of sampled tokens and its gradient, in one pass over ragged answers.

grpo_loss(logp, old_logp, ref_logp, mask, rewards, offsets, group_size, longest, epsilon, beta) takes contiguous tensors
that start at multiples of 16 bytes. logp, old_logp, and ref_logp (tokens,) in float32 are each token's
log-probabilities under the current policy, under the policy that sampled it, and under the reference model. mask
(tokens,) in uint8 is 1 where a token counts and 0 where it doesn't, as in the output of a tool. The answers follow each
other without padding, so answer s has the tokens offsets[s] to offsets[s + 1] - 1. offsets (answers + 1,) is int32,
rewards (answers,) is float32, and answers s = g * group_size to (g + 1) * group_size - 1 form group g. It returns two
new float32 tensors, loss (answers,) and dlogp (tokens,), the gradient of the sum of loss with respect to logp:

    A = (rewards[s] - mean) / (deviation + 1e-6)        0 if all rewards of the group are equal
    ratio = exp(logp - old_logp), d = ref_logp - logp
    token_loss = -min(ratio * A, clip(ratio, 1 - epsilon, 1 + epsilon) * A) + beta * (exp(d) - d - 1)
    loss[s] = (sum of token_loss over the tokens of s with mask 1) / number of tokens with mask 1 in all answers

mean and deviation refer to the rewards of one group, and the variance divides by group_size. Rewards are at most 10 in
magnitude, and two rewards of a group may differ by less than 0.001. For tokens with mask 0, the log-probabilities may
be NaN, and dlogp is 0. If no token has mask 1, loss and dlogp are 0. No ratio is closer than 0.001 to 1 - epsilon or 1
+ epsilon. Differences of log-probabilities are at most 20 in magnitude. longest is the length of the longest answer;
other answers may have 0 tokens. There are 1 or more groups of 1 to 64 answers, and 1 or more tokens. Each tensor has
fewer than 2**31 elements. Compute in float32.

Each token moves 17 bytes, so the limit leaves no room for another pass over the log-probabilities or over dlogp. The
number of tokens has to be known before the first gradient is stored. The grader checks the values and the bytes moved.
On a GPU, it compares the time with PyTorch's operators.

The grader enforces this limit on the largest case (groups=1 group_size=8 longest=8193 epsilon=0.2 beta=0.04); smaller
cases get some slack for partial tiles. In total, global memory accesses may move at most 1.6 times the size of the
inputs and outputs.
"""

import torch
import triton
import triton.language as tl

EPS = tl.constexpr(1e-6)


@triton.jit
def load_advantage(rewards_ptr, answer, group_size, GROUP: tl.constexpr):
    """Return the advantage of one answer."""
    # TODO: load the rewards of the answer's group, and return 0 if they are all equal


# TODO: write the kernels. Which number do all programs need before they store the first gradient?


def grpo_loss(
    logp: torch.Tensor, old_logp: torch.Tensor, ref_logp: torch.Tensor, mask: torch.Tensor, rewards: torch.Tensor,
    offsets: torch.Tensor, group_size: int, longest: int, epsilon: float, beta: float,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    tokens, answers = len(logp), len(rewards)
    # TODO: allocate the outputs and launch your kernels
    raise NotImplementedError("launch your kernels, then return loss and dlogp")
