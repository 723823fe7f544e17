"""Contribute upstream: a published kernel's fault, as a test that fails, and a change that fixes it.

The folder w24e_upstream/ contains the rest of the submission:

- published.cu: a published CUDA C++ kernel with a fault. Reduce the file to the kernel and what it calls, and keep its
  name, its parameters, and its lines. The comment at the top names the repository, the file, the commit with all 40
  digits, and the license. Include the license's own text where the license requires it.
- fixed.cu: the same file with the fault fixed.
- pull_request.md: the text that you would send, with the title as its first heading.

test(source, device) below launches the kernel of a source text on tensors of this device. It raises an exception if the
kernel is wrong. If the kernel has a fault, the exception comes from the PTX machine, and if its values are wrong, from
an assertion. The test compares the results with a float64 reference, or with PyTorch's results.

FAULT names the kernel, the kind of its fault, which is the name of an exception of warpcheck or "WrongValues", and the
line of published.cu that the machine reports; for "WrongValues", the line that is wrong.

The grader calls the test with both kernels. With published.cu it must end in the fault that FAULT names, and with
fixed.cu it must pass in every order of warps and blocks. The fix may change at most 6 statements. Then the test
receives more kernels, in an order that changes from grading to grading: published.cu and fixed.cu rewritten without a
change in meaning, the fixed kernel with an empty body or with different values in its stores, and, for some published
kernels, the course's own right and wrong versions. The text of the pull request has the sections Problem, Change, Test,
and Limits, each of 80 to 1500 characters, and a title of 10 to 72 characters.
"""

import torch

from kernelpath.lanes import cuda

FAULT = {"kernel": "normalization_kernel", "kind": "OutOfBounds", "line": 26}


def test(source: str, device: torch.device) -> None:
    """Normalize 8 rows of 300 floats. Their 2400 elements are not a multiple of the 256 threads of a block."""
    batch, tokens, channels, threads = 2, 4, 300, 256
    rng = torch.Generator(device).manual_seed(0)
    x = torch.randn(batch * tokens, channels, generator=rng, device=device) + 1
    weight, bias = torch.randn(2, channels, generator=rng, device=device)
    mean = x.mean(dim=1)
    rstd = 1 / x.var(dim=1, unbiased=False).add(1e-5).sqrt()
    out = torch.empty_like(x)

    kernel = cuda.kernel(source, FAULT["kernel"])
    kernel[-(-x.numel() // threads), threads](out, x, mean, rstd, weight, bias, batch, tokens, channels)

    expected = torch.nn.functional.layer_norm(x.double(), (channels,), weight.double(), bias.double(), eps=1e-5)
    torch.testing.assert_close(out.double(), expected, rtol=1e-4, atol=1e-4)


def run(source: str, device: torch.device) -> torch.Tensor:
    """Return 1 if the test passes. The grader calls this function; leave it as it is."""
    test(source, device)
    return torch.ones(1)
