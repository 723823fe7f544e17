"""What every process that compiles with Triton needs first: imported once, before such processes are forked.

Triton's cache knows a kernel by a digest of Triton itself, which takes 0.4 s to work out and holds for a process.
"""

import os
from contextlib import suppress

from kernelpath.hooks import Changed
from kernelpath.hooks import triton as hooks

os.environ.pop("TRITON_INTERPRET", None)  # a learner's, for print and pdb: what is graded is what the compiler makes

import triton.experimental.gluon  # noqa: F401  (the first launch imports it)

with suppress(Changed):
    hooks.DIGEST.get()()
