"""The tests. Each process of pytest-xdist has one processor, of which idle threads of torch would take half."""

import os
import sys

os.environ.setdefault("OMP_NUM_THREADS", "1")  # read once, when torch is imported

# A grammar of IRIs, which no schema of nbformat's has: jsonschema would take seconds to compile it for nothing.
sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]
