"""Stubs made from `proto/` alone, and programs that see them and the installed packages, but not podyard."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path

from grpc_tools import protoc

PROTO = Path(__file__).resolve().parents[1] / "proto"

# `-S` leaves out what .pth files add, so the packages are there and our own, editable, is not.
_RUN = """
import runpy, sys
sys.path[:0] = sys.argv[1].split(":")
del sys.argv[:2]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def make(folder: Path) -> Path:
    """Python stubs of every file, in a folder."""
    files = sorted(str(path.relative_to(PROTO)) for path in PROTO.glob("podyard/**/*.proto"))
    files += sorted(str(path.relative_to(PROTO)) for path in PROTO.glob("k8s.io/api*/**/*.proto"))
    made = protoc.main(
        ["protoc", f"-I{PROTO}", f"--python_out={folder}", f"--grpc_python_out={folder}", *files]
    )
    assert made == 0
    return folder


def command(stubs: Path, program: Path, *arguments: str) -> tuple[str, ...]:
    """The command line that runs a program where only the standard library, packages and stubs are."""
    paths = ":".join((str(stubs), sysconfig.get_path("purelib")))
    return (sys.executable, "-I", "-S", "-u", "-c", _RUN, paths, str(program), *arguments)
