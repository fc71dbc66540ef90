"""All benchmarks, one after the other; options are passed on to each."""

from __future__ import annotations

import subprocess
import sys

NAMES = (
    "startup",
    "training",
    "loading",
    "memory",
    "preprocessing",
    "prediction",
    "exact",
    "strategies",
    "ray_startup",
    "ray_loading",
)


def main(arguments: list[str]) -> int:
    worst = 0
    for name in NAMES:  # each in a process of its own, so that none finds the machine as another left it
        worst = max(
            worst, subprocess.run([sys.executable, "-m", f"benchmarks.{name}", *arguments], check=False).returncode
        )
    return worst


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
