"""The wheel in an environment of its own, as users have it, outside the repository."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Installed:
    """The wheel in an environment of its own; `copy` is what it was built from."""

    copy: Path
    python: Path

    def run(self, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """Runs the environment's Python; output and messages together."""
        return subprocess.run(
            [self.python, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            **options,
        )


def install(folder: Path) -> Installed:
    """Builds the wheel and makes the environment, with the extras for tests and kubectl."""
    copy = folder / "copy"
    list_files = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    tracked = subprocess.run(list_files, cwd=REPOSITORY, capture_output=True, check=True).stdout.split(b"\0")
    for name in filter(None, (raw.decode() for raw in tracked)):
        if (REPOSITORY / name).exists():
            target = copy / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes((REPOSITORY / name).read_bytes())
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(copy)]
    subprocess.run(build, check=True, capture_output=True)
    [wheel] = folder.glob("podyard-*.whl")
    subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
    python = folder / "venv" / "bin" / "python"
    extras = f"podyard[testing,kubectl] @ {wheel.as_uri()}"
    subprocess.run([python, "-m", "pip", "install", "-q", extras], check=True, capture_output=True)
    return Installed(copy, python)
