"""`make bench`: every benchmark, one after another; each prints its own table.

python tests/bench/run.py            all
python tests/bench/run.py cluster    only bench_cluster.py
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def main(wanted: list[str]) -> int:
    """Runs the chosen benchmarks; answers the first exit code that is not 0."""
    code = 0
    for path in sorted(HERE.glob("bench_*.py")):
        name = path.stem.removeprefix("bench_")
        if wanted and name not in wanted:
            continue
        print(f"\n== {name}", flush=True)
        done = subprocess.run(
            [sys.executable, "-m", f"tests.bench.{path.stem}"], cwd=HERE.parent.parent, check=False
        )
        code = code or done.returncode
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
