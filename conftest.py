"""Settings that must stand before anything imports torch, for the tests of core and of its plugins."""

from __future__ import annotations

import os

# Idle OpenMP threads spin by default, which starves the other workers of a small machine.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
