"""Speed and memory of `core` against what a person would write by hand. See README.md."""

import os

# Before torch is loaded: threads that spin while they wait ruin any timing on a busy machine.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
