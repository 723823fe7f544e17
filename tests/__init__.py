"""The tests. Each process of pytest-xdist has one processor, of which idle threads of torch would take half."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # read once, when torch is imported
