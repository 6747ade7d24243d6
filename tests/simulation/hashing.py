"""Whether a run depends on how Python hashes strings: only a process of its own can tell."""

from __future__ import annotations

import subprocess
import sys


def last_lines(program: str) -> set[str]:
    """The last line that a program prints, under two seeds of string hashing."""
    return {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": str(seed), "PYTHONPATH": "."},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.splitlines()[-1]
        for seed in (1, 2)
    }
